/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/load/trace_line.h"
#include "lib/base/test.h"

#include <errno.h>

#include "lib/base/json_tree.h"

static void a_line_of_mooncake_is_read(void **state)
{
    AUTO(trace_line_done) struct trace_line t = {.hash_ids = NULL};
    struct err e;

    (void)state;
    EXPECT_OK(
        trace_line_parse(STR("{\"timestamp\": 27482, \"input_length\": 1300, "
                             "\"output_length\": 52, \"hash_ids\": [46, 47, 2353], \"x\": {}}"),
                         &t, &e),
        &e);
    assert_true(t.timestamp_ms == 27482);
    assert_int_equal(t.input_length, 1300);
    assert_int_equal(t.output_length, 52);
    assert_int_equal(t.n_hash_ids, 3);
    assert_int_equal(t.hash_ids[2], 2353);
}

static void bad_lines_are_refused(void **state)
{
    static const char *const lines[] = {
        "",
        "[]",
        "{\"timestamp\":-1,\"input_length\":1,\"output_length\":1}",
        "{\"input_length\":1,\"output_length\":1}",
        "{\"timestamp\":1,\"input_length\":0,\"output_length\":1}",
        "{\"timestamp\":1,\"input_length\":99999999,\"output_length\":1}",
        "{\"timestamp\":1,\"input_length\":5,\"output_length\":0}",
        "{\"timestamp\":1,\"input_length\":5,\"output_length\":1,\"hash_ids\":[\"a\"]}",
        "{\"timestamp\":1,\"input_length\":5,\"output_length\":1",
    };
    AUTO(trace_line_done) struct trace_line t = {.hash_ids = NULL};
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        assert_int_equal(trace_line_parse(str_from(lines[i]), &t, &e), -EINVAL);
}

static struct json *prompt_of(uint64_t *hash_ids, size_t n_ids, uint64_t length, uint64_t salt)
{
    const struct trace_line t = {.input_length = length, .hash_ids = hash_ids, .n_hash_ids = n_ids};
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct json *v;
    struct err e;

    trace_line_put_prompt(&text, &t, 300, 999, salt);
    EXPECT_OK(json_parse(&v, buf_str(&text), &e), &e);
    assert_int_equal(json_len(v), length);
    return v;
}

static int64_t token(const struct json *prompt, size_t i)
{
    int64_t v = -1;

    assert_true(json_i64(json_at(prompt, i), &v));
    assert_true(v >= 300 && v <= 999);
    return v;
}

static void equal_hash_ids_give_equal_tokens(void **state)
{
    AUTO(json_free) struct json *a = prompt_of((uint64_t[]){0, 1, 2}, 3, 1300, 1);
    AUTO(json_free) struct json *b = prompt_of((uint64_t[]){0, 1, 3}, 3, 1300, 2);
    AUTO(json_free) struct json *bare = prompt_of(NULL, 0, 600, 1);
    AUTO(json_free) struct json *other = prompt_of(NULL, 0, 600, 2);
    size_t n_same = 0, n_bare = 0;

    (void)state;
    for (size_t i = 0; i < 1024; i++)
        assert_int_equal(token(a, i), token(b, i));
    for (size_t i = 1024; i < 1300; i++)
        n_same += token(a, i) == token(b, i);
    assert_true(n_same < 20);
    for (size_t i = 0; i < 600; i++)
        n_bare += token(bare, i) == token(other, i);
    assert_true(n_bare < 20);
}

int main(void)
{
    return TEST_RUN(T(a_line_of_mooncake_is_read), T(bad_lines_are_refused),
                    T(equal_hash_ids_give_equal_tokens));
}
