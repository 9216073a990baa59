/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenize.mb_per_s: prompts of 16 KB, English sentences in an order never seen before, through the
 * example model's byte-level tokenizer; tokenize.fallback_mb_per_s: through TinyLlama's, which has
 * no pre-tokenizer, where ../shared has it. detok.ns_per_token: the ids of the same text, one after
 * the other. Best of several rounds. e2e/bench/tokenizer_bench.py has the same against PyPI tokenizers.
 */
#include "router/token/detok.h"

#include <stdio.h>
#include <time.h>

#include "lib/base/err.h"
#include "router/token/tokenizer.h"

enum { ROUNDS = 7, PROMPTS = 64, PROMPT_BYTES = 16 << 10 };

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
    for (int i = 0; i < PROMPTS; i++)
        buf_done(&b.prompts[i]);
    token_ids_done(&b.ids);
    tokenizer_scratch_free(b.s);
    tokenizer_free(b.t);
}

int main(void)
{
    const char *shared = getenv("COMMUTATOR_SHARED");
    AUTO(mem_free)
    char *tinyllama =
        xasprintf("%s/data/models/TinyLlama_v1.1/tokenizer.json", shared ? shared : "../shared");

    bench_file("examples/model/tokenizer.json", "tokenize.mb_per_s", true);
    bench_file(tinyllama, "tokenize.fallback_mb_per_s", false);
    return 0;
}
