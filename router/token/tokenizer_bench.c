/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenize.mb_per_s: prompts of 16 KB, English sentences in an order never seen before, through the
 * example model's byte-level tokenizer; tokenize.fallback_mb_per_s: through TinyLlama's, which has
 * no pre-tokenizer, where ../shared has it. detok.ns_per_token: the ids of the same text, one after
 * the other. Best of several rounds. tokenize.turns_us: a prompt of a conversation of up to 20 turns and
 * 17 KB, whose earlier turns were in the prompt before; its ratio is to tokenizing all of it.
 *
 * tokenizer_bench TOKENIZER PROMPTS encodes each text of a file (they end in a NUL each) once, with
 * caches that begin empty; e2e/bench/tokenizer_bench.py compares that with other libraries.
 */
#include "router/token/detok.h"

#include <stdio.h>
#include <time.h>

#include "lib/base/err.h"
#include "router/token/prompt_cache.h"
#include "router/token/tokenizer.h"

enum { ROUNDS = 7, PROMPTS = 64, PROMPT_BYTES = 16 << 10, TURNS = 20 };

static double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool read_file(const char *path, struct buf *out)
{
    FILE *f = fopen(path, "rb");
    size_t n;

    if (!f)
        return false;
    do {
        n = fread(buf_reserve(out, 65536), 1, 65536, f);
        buf_commit(out, n);
    } while (n > 0);
    (void)fclose(f);
    return true;
}

static uint32_t draw(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

/* Sentences of @from in random order, with a number before each, so that no two prompts agree. */
static void put_prompt(struct str from, uint32_t *seed, struct buf *out)
{
    while (out->len < PROMPT_BYTES) {
        struct str rest = str_skip(from, draw(seed) % from.len), sentence;

        (void)str_cut(&rest, '.', &sentence); /* the middle of one */
        (void)str_cut(&rest, '.', &sentence);
        buf_printf(out, "%u.", draw(seed) % 10000);
        for (size_t i = 0; i < sentence.len; i++)
            if (sentence.ptr[i] != '\n')
                buf_put_char(out, sentence.ptr[i]);
            else if (i + 1 < sentence.len && sentence.ptr[i + 1] != ' ')
                buf_put_char(out, ' ');
        buf_put_char(out, '.');
    }
}

struct bench {
    struct tokenizer *t;
    struct tokenizer_scratch *s;
    struct buf prompts[PROMPTS];
    struct token_ids ids;
};

static double encode_seconds(struct bench *b)
{
    double start = cpu_seconds();
    struct err e;

    for (int i = 0; i < PROMPTS; i++) {
        b->ids.len = 0;
        if (tokenizer_encode(b->t, b->s, buf_str(&b->prompts[i]), &b->ids, &e) < 0)
            abort();
    }
    return cpu_seconds() - start;
}

/* Per token of the last prompt. */
static double detok_seconds(const struct bench *b)
{
    AUTO(detok_done) struct detok d;
    double start = cpu_seconds();
    size_t bytes = 0;

    detok_init(&d, b->t, NULL, 0, false);
    for (int round = 0; round < 20; round++)
        for (size_t i = 0; i < b->ids.len; i++)
            bytes += detok_push(&d, b->ids.ptr[i]).len;
    if (bytes == 0)
        abort();
    return (cpu_seconds() - start) / 20 / (double)b->ids.len;
}

static void report(const char *name, double value, const char *unit, const char *better)
{
    printf("{\"name\":\"%s\",\"value\":%.4g,\"unit\":\"%s\",\"better\":\"%s\"}\n", name, value,
           unit, better);
    (void)fflush(stdout);
}

static void run(struct bench *b, const char *name, bool with_detok)
{
    double best = 1e9, best_detok = 1e9, mb = 0;
    uint32_t seed = 2026;
    AUTO(buf_done) struct buf text = BUF_NULL;

    if (!read_file("LICENSE", &text))
        abort();
    for (int round = 0; round < ROUNDS; round++) {
        double seconds;

        mb = 0;
        for (int i = 0; i < PROMPTS; i++) {
            buf_clear(&b->prompts[i]);
            put_prompt(buf_str(&text), &seed, &b->prompts[i]);
            mb += (double)b->prompts[i].len / 1e6;
        }
        seconds = encode_seconds(b);
        best = MIN(best, seconds);
        seconds = detok_seconds(b);
        best_detok = MIN(best_detok, seconds);
    }
    report(name, mb / best, "MB/s", "higher");
    if (with_detok)
        report("detok.ns_per_token", best_detok * 1e9, "ns", "lower");
}

/* Seconds for a prompt, on average over a conversation that no cache has seen. */
static double turns_seconds(struct bench *b, struct prompt_cache *c, struct str from,
                            uint32_t *seed)
{
    AUTO(buf_done) struct buf prompt = BUF_NULL;
    AUTO(buf_done) struct buf words = BUF_NULL;
    double seconds = 0;
    size_t known = 0;
    struct err e;

    for (int turn = 0; turn < TURNS; turn++) {
        struct prompt_reuse reuse = {0};
        double start;

        buf_clear(&words);
        put_prompt(from, seed, &words);
        buf_put_cstr(&prompt, turn % 2 ? "<|im_start|>assistant\n" : "<|im_start|>user\n");
        buf_put_str(&prompt, str_slice(buf_data(&words), 800));
        buf_put_cstr(&prompt, "<|im_end|>\n");
        b->ids.len = 0;
        start = cpu_seconds();
        if ((c ? prompt_cache_encode(c, b->s, buf_str(&prompt), &b->ids, &reuse, &e)
               : tokenizer_encode(b->t, b->s, buf_str(&prompt), &b->ids, &e)) < 0)
            abort();
        seconds += cpu_seconds() - start;
        known += reuse.bytes;
    }
    if (c && known == 0)
        abort();
    return seconds / TURNS;
}

static void bench_turns(struct bench *b)
{
    AUTO(prompt_cache_free) struct prompt_cache *c = prompt_cache_new(b->t, 8 << 20, 1);
    AUTO(buf_done) struct buf text = BUF_NULL;
    double with = 1, without = 1;
    uint32_t seed = 7;

    if (!read_file("LICENSE", &text))
        abort();
    for (int i = 0; i < 50; i++) {
        double s = turns_seconds(b, c, buf_str(&text), &seed);

        with = MIN(with, s);
        s = turns_seconds(b, NULL, buf_str(&text), &seed);
        without = MIN(without, s);
    }
    printf("{\"name\":\"tokenize.turns_us\",\"value\":%.4g,\"unit\":\"us\",\"better\":\"lower\","
           "\"peer\":\"without the cache\",\"ratio\":%.2f}\n",
           with * 1e6, without / with);
    (void)fflush(stdout);
}

static void bench_file(const char *path, const char *name, bool with_detok)
{
    AUTO(buf_done) struct buf json = BUF_NULL;
    struct bench b = {0};
    struct err e;

    if (!read_file(path, &json))
        return; /* a clone without ../shared */
    if (tokenizer_load(&b.t, buf_str(&json), &e) < 0) {
        fprintf(stderr, "%s: %s\n", path, e.text);
        exit(1);
    }
    b.s = tokenizer_scratch_new(b.t);
    run(&b, name, with_detok);
    if (with_detok)
        bench_turns(&b);
    for (int i = 0; i < PROMPTS; i++)
        buf_done(&b.prompts[i]);
    token_ids_done(&b.ids);
    tokenizer_scratch_free(b.s);
    tokenizer_free(b.t);
}

/* Nothing but the encoding is timed. */
static int encode_once(const char *tokenizer, const char *prompts)
{
    AUTO(buf_done) struct buf json = BUF_NULL;
    AUTO(buf_done) struct buf texts = BUF_NULL;
    struct bench b = {0};
    struct str rest, text;
    uint64_t sum = 0;
    size_t n_ids = 0;
    double seconds = 0;
    struct err e;

    if (!read_file(tokenizer, &json) || !read_file(prompts, &texts) ||
        tokenizer_load(&b.t, buf_str(&json), &e) < 0)
        return 1;
    b.s = tokenizer_scratch_new(b.t);
    for (rest = buf_str(&texts); str_cut(&rest, '\0', &text); n_ids += b.ids.len) {
        double start = cpu_seconds();

        b.ids.len = 0;
        if (tokenizer_encode(b.t, b.s, text, &b.ids, &e) < 0)
            return 1;
        seconds += cpu_seconds() - start;
        for (size_t i = 0; i < b.ids.len; i++)
            sum = sum * 1000003 + b.ids.ptr[i];
    }
    printf("{\"mb_per_cpu_s\":%.2f,\"tokens\":%zu,\"sum\":\"%llu\"}\n",
           (double)texts.len / seconds / 1e6, n_ids, (unsigned long long)sum);
    token_ids_done(&b.ids);
    tokenizer_scratch_free(b.s);
    tokenizer_free(b.t);
    return 0;
}

int main(int argc, char **argv)
{
    const char *shared = getenv("COMMUTATOR_SHARED");
    AUTO(mem_free)
    char *tinyllama =
        xasprintf("%s/data/models/TinyLlama_v1.1/tokenizer.json", shared ? shared : "../shared");

    if (argc == 3)
        return encode_once(argv[1], argv[2]);
    bench_file("examples/model/tokenizer.json", "tokenize.mb_per_s", true);
    bench_file(tinyllama, "tokenize.fallback_mb_per_s", false);
    return 0;
}
