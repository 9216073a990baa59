/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/embeddings.h"

#include <errno.h>

#include "lib/base/err.h"
#include "lib/base/test.h"

static void requests_are_read(void **state)
{
    static const struct {
        const char *body;
        size_t n;
        bool is_ids;
    } cases[] = {
        {"{\"model\":\"m\",\"input\":\"a\\n\"}", 1, false},
        {"{\"model\":\"m\",\"input\":[\"a\",\"b\",\"c\"],\"foo\":1}", 3, false},
        {"{\"model\":\"m\",\"input\":[1,2]}", 1, true},
        {"{\"model\":\"m\",\"input\":[[1],[],[2]]}", 3, true},
        {"{\"model\":\"m\",\"input\":[],\"user\":null,\"nvext\":{\"annotations\":[\"x\"]}}", 0,
         false},
        {"{\"model\":\"\",\"input\":\"a\",\"foo\":1,\"foo\":2,\"nvext\":{\"annotations\":null,"
         "\"x\":5}}",
         1, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(arena_free) struct arena *a = arena_new();
        struct openai_request r;
        struct api_error e;

        assert_true(embeddings_request_parse(str_from(cases[i].body), a, &r, &e));
        assert_int_equal(r.api, API_EMBEDDINGS);
        assert_int_equal(r.n_prompts, cases[i].n);
        for (size_t k = 0; k < r.n_prompts; k++)
            assert_int_equal(r.prompts[k].is_ids, cases[i].is_ids);
    }
}

static void requests_are_refused(void **state)
{
    static const struct {
        const char *body, *param;
    } cases[] = {
        {"{\"model\":\"m\"}", "input"},
        {"{\"input\":\"a\"}", "model"},
        {"{\"model\":\"m\",\"input\":null}", "input"},
        {"{\"model\":\"m\",\"input\":[1,\"a\"]}", "input"},
        {"{\"model\":\"m\",\"input\":[\"a\",1]}", "input"},
        {"{\"model\":\"m\",\"input\":[[1],\"a\"]}", "input"},
        {"{\"model\":\"m\",\"input\":[\"a\",[1]]}", "input"},
        {"{\"model\":\"m\",\"input\":[4294967296]}", "input"},
        {"{\"model\":\"m\",\"input\":[1.5]}", "input"},
        {"{\"model\":\"m\",\"input\":\"a\",\"encoding_format\":\"x\"}", "encoding_format"},
        {"{\"model\":\"m\",\"input\":\"a\",\"dimensions\":-1}", "dimensions"},
        {"{\"model\":\"m\",\"input\":\"a\",\"nvext\":{\"annotations\":\"x\"}}", "annotations"},
        {"{\"model\":\"m\",\"input\":\"a\",\"nvext\":[]}", "nvext"},
        {"{\"model\":\"m\",\"input\":\"a\",\"input\":\"a\"}", "input"},
        {"{\"model\":\"m\",\"input\":\"a\",\"user\":null,\"user\":\"u\"}", "user"},
        {"[]", ""},
        {"{\"model\":\"m\",\"input\":[\"a\"", ""},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(arena_free) struct arena *a = arena_new();
        struct openai_request r;
        struct api_error e;

        assert_false(embeddings_request_parse(str_from(cases[i].body), a, &r, &e));
        assert_int_equal(e.status, 400);
        assert_string_equal(e.param, cases[i].param);
    }
}

static void inputs_are_bounded(void **state)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    AUTO(arena_free) struct arena *a = arena_new();
    struct openai_request r;
    struct api_error e;

    (void)state;
    buf_put_cstr(&body, "{\"model\":\"m\",\"input\":[\"a\"");
    for (size_t i = 0; i < EMBEDDINGS_INPUTS_MAX; i++)
        buf_put_cstr(&body, ",\"a\"");
    buf_put_cstr(&body, "]}");
    assert_false(embeddings_request_parse(buf_str(&body), a, &r, &e));
    assert_string_equal(e.text, "Validation: input has more than 65536 entries");
}

/* wire.md §5.3 */
static void payloads(void **state)
{
    static const uint32_t all[] = {1, 2, 3};
    static const size_t ends[] = {2, 2, 3};
    AUTO(buf_done) struct buf out = BUF_NULL;
    AUTO(arena_free) struct arena *a = arena_new();
    struct openai_request r;
    struct api_error e;

    (void)state;
    assert_true(embeddings_request_parse(STR("{\"model\":\"m\",\"input\":\"x\",\"dimensions\":2,"
                                             "\"nvext\":{\"annotations\":[\"n\"]}}"),
                                         a, &r, &e));
    embeddings_put_ids(&out, &r, &(struct embeddings_ids){all, ends, 3}, STR("sum"));
    assert_string_equal(buf_cstr(&out),
                        "{\"token_ids\":[[1,2],[],[3]],\"model\":\"m\",\"encoding_format\":null,"
                        "\"dimensions\":2,\"mdc_sum\":\"sum\",\"annotations\":[\"n\"]}");
    buf_clear(&out);
    embeddings_put_body(&out, STR("{\"foo\":1,\"input\":[\"a\"],\"user\":null,\"model\":\"m\"}"),
                        true);
    assert_string_equal(buf_cstr(&out), "{\"model\":\"m\",\"input\":[\"a\"]}");
    buf_clear(&out);
    embeddings_put_body(&out, STR("{\"model\":\"m\",\"nvext\":{\"x\":1,\"annotations\":[\"n\"]}}"),
                        true);
    assert_string_equal(buf_cstr(&out), "{\"model\":\"m\",\"nvext\":{\"annotations\":[\"n\"]}}");
    buf_clear(&out);
    embeddings_put_body(&out, STR("{\"model\":\"m\",\"nvext\":{\"annotations\":null}}"), true);
    assert_string_equal(buf_cstr(&out), "{\"model\":\"m\",\"nvext\":{}}");
}

/* Keys that 0.9.0 does not know may be anything there, and reach no worker. */
static void keys_of_newer_workers(void **state)
{
    static const struct {
        const char *body, *wrong;
        int64_t truncate;
        bool special;
    } cases[] = {
        {"{\"add_special_tokens\":true,\"truncate_prompt_tokens\":7,", NULL, 7, true},
        {"{\"add_special_tokens\":false,\"truncate_prompt_tokens\":-1,", NULL, -1, false},
        {"{\"add_special_tokens\":null,\"truncate_prompt_tokens\":null,", NULL, 0, false},
        {"{\"add_special_tokens\":\"true\",", "add_special_tokens", 0, false},
        {"{\"truncate_prompt_tokens\":2.0,", "truncate_prompt_tokens", 0, false},
        {"{\"truncate_prompt_tokens\":9223372036854775808,", "truncate_prompt_tokens", 0, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(arena_free) struct arena *a = arena_new();
        AUTO(buf_done) struct buf body = BUF_NULL, told = BUF_NULL;
        struct openai_request r;
        struct api_error e;

        buf_printf(&body, "%s\"model\":\"m\",\"input\":\"x\"}", cases[i].body);
        assert_true(embeddings_request_parse(buf_str(&body), a, &r, &e));
        assert_int_equal(embeddings_request_settle(&r, true, &e), cases[i].wrong == NULL);
        if (cases[i].wrong)
            assert_string_equal(e.param, cases[i].wrong);
        assert_int_equal(r.embedding.truncate.v, cases[i].truncate);
        assert_int_equal(r.embedding.special.v, cases[i].special);
        assert_true(embeddings_request_settle(&r, false, &e));
        assert_false(r.embedding.truncate.set || r.embedding.special.set);
        embeddings_put_body(&told, buf_str(&body), false);
        assert_string_equal(buf_cstr(&told), "{\"model\":\"m\",\"input\":\"x\"}");
    }
}

static void texts_that_are_cut_are_told_so(void **state)
{
    const struct openai_request r = {.model = STR("m"), .embedding.truncate = {true, -1}};
    AUTO(buf_done) struct buf out = BUF_NULL;

    (void)state;
    embeddings_put_ids(&out, &r, &(struct embeddings_ids){.n = 0}, STR("sum"));
    assert_non_null(strstr(buf_cstr(&out), "\"truncate_prompt_tokens\":-1,"));
}

#define BYTES "zczMPQAAAL8AAMB/AQAAAA==" /* 0.1, -0.5, NaN, the smallest */

static void answers(void **state)
{
    static const char told[] = "{\"embeddings\":[[1,2e0],\"" BYTES "\"],\"prompt_tokens\":3,"
                               "\"total_tokens\":4}";
    static const char *const want[] = {"[0.1,-0.5,null,1e-45]", "\"" BYTES "\""};
    struct err e;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        AUTO(embeddings_answer_done) struct embeddings_answer a = {.base64 = i > 0};
        AUTO(buf_done) struct buf out = BUF_NULL, expected = BUF_NULL;

        EXPECT_OK(embeddings_add_vectors(&a, STR(told), &e), &e);
        embeddings_put(&a, STR("m"), &out);
        buf_printf(&expected,
                   "{\"object\":\"list\",\"model\":\"m\",\"data\":[{\"index\":0,\"object\":"
                   "\"embedding\",\"embedding\":[1,2e0]},{\"index\":1,\"object\":\"embedding\","
                   "\"embedding\":%s}],\"usage\":{\"prompt_tokens\":3,\"total_tokens\":4}}",
                   want[i]);
        assert_string_equal(buf_cstr(&out), buf_cstr(&expected));
    }
}

static void answers_are_joined(void **state)
{
    static const char told[] = "{\"object\":\"list\",\"model\":\"their\",\"data\":[{\"index\":7,"
                               "\"embedding\":[0.5],\"x\":1}],\"usage\":{\"prompt_tokens\":3,"
                               "\"total_tokens\":4}}";
    AUTO(embeddings_answer_done) struct embeddings_answer a = {.base64 = false};
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct err e;

    (void)state;
    EXPECT_OK(embeddings_add_answer(&a, STR(told), &e), &e);
    EXPECT_OK(embeddings_add_answer(&a, STR(told), &e), &e);
    embeddings_put(&a, STR("m"), &out);
    assert_string_equal(
        buf_cstr(&out),
        "{\"object\":\"list\",\"model\":\"their\",\"data\":[{\"index\":7,\"object\":"
        "\"embedding\",\"embedding\":[0.5]},{\"index\":7,\"object\":\"embedding\","
        "\"embedding\":[0.5]}],\"usage\":{\"prompt_tokens\":6,\"total_tokens\":8}}");
}

static void wrong_answers(void **state)
{
    static const char *const vectors[] = {
        "[]",
        "{",
        "{\"embeddings\":[[1]]}",
        "{\"embeddings\":[[\"a\"]],\"prompt_tokens\":1,\"total_tokens\":1}",
        "{\"embeddings\":[\"abc\"],\"prompt_tokens\":1,\"total_tokens\":1}",
        "{\"embeddings\":[\"YWJj\"],\"prompt_tokens\":1,\"total_tokens\":1}",
        "{\"embeddings\":[{}],\"prompt_tokens\":1,\"total_tokens\":1}"};
    static const char *const bodies[] = {
        "{}", "{\"object\":\"list\",\"data\":[]}",
        "{\"object\":\"list\",\"model\":\"m\",\"data\":[],\"usage\":null}",
        "{\"object\":\"list\",\"model\":\"m\",\"data\":[{}],\"usage\":{\"prompt_tokens\":1,\"total_"
        "tokens\":1}}"};
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
        AUTO(embeddings_answer_done) struct embeddings_answer a = {.base64 = false};

        assert_int_equal(embeddings_add_vectors(&a, str_from(vectors[i]), &e), -EINVAL);
    }
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        AUTO(embeddings_answer_done) struct embeddings_answer a = {.base64 = false};

        assert_int_equal(embeddings_add_answer(&a, str_from(bodies[i]), &e), -EINVAL);
    }
}

int main(void)
{
    return TEST_RUN(T(requests_are_read), T(requests_are_refused), T(inputs_are_bounded),
                    T(payloads), T(keys_of_newer_workers), T(texts_that_are_cut_are_told_so),
                    T(answers), T(answers_are_joined), T(wrong_answers));
}
