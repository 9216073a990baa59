/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.scan: every value of a document read through json_pull, strings decoded and integers exact,
 * against cJSON building and freeing its tree from the same bytes. Best of several rounds, the two
 * taking turns, so that a busy machine slows both.
 */
#include "lib/base/json_pull.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <time.h>

#include "lib/base/json_put.h"

enum { ROUNDS = 9, ROUND_BYTES = 16 << 20 };

/* What was read, so that no reader can be optimised away. */
static volatile uint64_t sink;

/* --- documents ------------------------------------------------------------------------------- */

static void put_message(struct json_put *j, const char *role, const char *text, int repeat)
{
    AUTO(buf_done) struct buf content = BUF_NULL;

    for (int i = 0; i < repeat; i++)
        buf_put_cstr(&content, text);
    json_put_object(j);
    json_put_key(j, "role");
    json_put_cstr(j, role);
    json_put_key(j, "content");
    json_put_str(j, buf_str(&content));
    json_put_object_end(j);
}

/* About 2.5 KB: a system prompt and two turns. */
static void put_chat(struct json_put *j)
{
    json_put_object(j);
    json_put_key(j, "model");
    json_put_cstr(j, "Qwen/Qwen3-0.6B");
    json_put_key(j, "messages");
    json_put_array(j);
    put_message(j, "system", "You are a careful assistant. Answer in short sentences. ", 8);
    put_message(j, "user", "Explain \"prefix caching\" to a caf\xc3\xa9 owner,\nstep by step. ",
                12);
    put_message(j, "assistant", "A kitchen that keeps the dough need not knead it again.\n", 14);
    put_message(j, "user", "And what happens when the cache is full?", 4);
    json_put_array_end(j);
    json_put_key(j, "temperature");
    json_put_f64(j, 0.7);
    json_put_key(j, "max_tokens");
    json_put_u64(j, 256);
    json_put_key(j, "stream");
    json_put_bool(j, true);
    json_put_key(j, "stop");
    json_put_null(j);
    json_put_object_end(j);
}

/* As a worker publishes it on JetStream, 32 blocks. */
static void put_kv_event(struct json_put *j)
{
    uint64_t hash = UINT64_C(14643705804678351452);

    json_put_object(j);
    json_put_key(j, "worker_id");
    json_put_u64(j, UINT64_C(2228896975727120901));
    json_put_key(j, "event");
    json_put_object(j);
    json_put_key(j, "event_id");
    json_put_u64(j, 3);
    json_put_key(j, "data");
    json_put_object(j);
    json_put_key(j, "stored");
    json_put_object(j);
    json_put_key(j, "parent_hash");
    json_put_null(j);
    json_put_key(j, "blocks");
    json_put_array(j);
    for (int i = 0; i < 32; i++, hash *= UINT64_C(6364136223846793005)) {
        json_put_object(j);
        json_put_key(j, "block_hash");
        json_put_u64(j, hash);
        json_put_key(j, "tokens_hash");
        json_put_u64(j, ~hash);
        json_put_key(j, "mm_extra_info");
        json_put_null(j);
        json_put_object_end(j);
    }
    json_put_array_end(j);
    json_put_object_end(j);
    json_put_object_end(j);
    json_put_key(j, "dp_rank");
    json_put_u64(j, 0);
    json_put_object_end(j);
    json_put_object_end(j);
}

static void put_sse_chunk(struct json_put *j)
{
    json_put_raw(
        j, STR("{\"id\":\"chatcmpl-6f2b9d1e-8c1a-4f57\",\"object\":\"chat.completion.chunk\","
               "\"created\":1763724000,\"model\":\"Qwen/Qwen3-0.6B\",\"choices\":[{\"index\":0,"
               "\"delta\":{\"role\":\"assistant\",\"content\":\" cache\"},"
               "\"finish_reason\":null,\"logprobs\":null}]}"));
}

/* --- readers --------------------------------------------------------------------------------- */

static uint64_t read_number(struct json_pull *p)
{
    struct json_pull whole = *p;
    uint64_t integer = 0;
    double number = 0;

    if (json_pull_u64(&whole, &integer))
        *p = whole;
    else if (json_pull_f64(p, &number))
        integer = (uint64_t)number;
    return integer;
}

static uint64_t read_value(struct json_pull *p, struct buf *scratch)
{
    struct str s = STR_NULL;
    uint64_t sum = 0;
    bool flag = false;

    switch (json_pull_peek(p)) {
    case JSON_KIND_OBJECT:
        if (json_pull_object(p))
            while (json_pull_key(p, &s))
                sum += s.len + read_value(p, scratch);
        return sum;
    case JSON_KIND_ARRAY:
        if (json_pull_array(p))
            while (json_pull_element(p))
                sum += read_value(p, scratch);
        return sum;
    case JSON_KIND_STRING:
        buf_clear(scratch);
        (void)json_pull_string(p, scratch, &s);
        return s.len;
    case JSON_KIND_NUMBER:
        return read_number(p);
    case JSON_KIND_BOOL:
        return json_pull_bool(p, &flag) && flag;
    case JSON_KIND_NULL:
        return json_pull_null(p);
    case JSON_KIND_NONE:
        break;
    }
    abort();
}

static void scan(struct str text)
{
    static struct buf scratch; /* kept, as a connection keeps its own */
    struct json_pull p;

    json_pull_init(&p, text);
    sink += read_value(&p, &scratch);
    if (json_pull_end(&p, NULL) < 0)
        abort();
}

static void scan_with_cjson(struct str text)
{
    cJSON *tree = cJSON_ParseWithLength(text.ptr, text.len);

    if (!tree)
        abort();
    sink += (uint64_t)tree->type;
    cJSON_Delete(tree);
}

/* --- measuring ------------------------------------------------------------------------------- */

static double seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double mb_per_s(void (*reader)(struct str), struct str text)
{
    size_t times = ROUND_BYTES / text.len;
    double start = seconds();

    for (size_t i = 0; i < times; i++)
        reader(text);
    return (double)(times * text.len) / (seconds() - start) / 1e6;
}

static void measure(const char *name, void (*put)(struct json_put *))
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct json_put j = json_put_on(&text);
    double ours = 0, theirs = 0;

    put(&j);
    for (int i = 0; i < ROUNDS; i++) {
        ours = MAX(ours, mb_per_s(scan, buf_str(&text)));
        theirs = MAX(theirs, mb_per_s(scan_with_cjson, buf_str(&text)));
    }
    printf("{\"name\":\"%s\",\"value\":%.1f,\"unit\":\"MB/s\",\"better\":\"higher\","
           "\"peer\":\"cJSON\",\"ratio\":%.2f}\n",
           name, ours, ours / theirs);
    (void)fflush(stdout);
}

int main(void)
{
    measure("json.scan", put_chat);
    measure("json.scan.kv_event", put_kv_event);
    measure("json.scan.sse_chunk", put_sse_chunk);
    return 0;
}
