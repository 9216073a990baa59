/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/post_processor.h"

#include <string.h>

#include "lib/base/err.h"
#include "lib/base/test.h"

#define TEMPLATE(single)                                                                           \
    "{\"type\":\"TemplateProcessing\",\"single\":[" single "],\"special_tokens\":{\"b\":{\"ids\":" \
    "[1]},\"e\":{\"ids\":[2,3]},\"bad\":{\"ids\":[-1]}}}"
#define SPECIAL(name) "{\"SpecialToken\":{\"id\":\"" name "\",\"type_id\":0}}"
#define TEXT "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}"
#define SECOND "{\"Sequence\":{\"id\":\"B\",\"type_id\":0}}"
#define BERT "{\"type\":\"BertProcessing\",\"cls\":[\"c\",7],\"sep\":[\"s\",8]}"
#define ROBERTA "{\"type\":\"RobertaProcessing\",\"cls\":[\"c\",5],\"sep\":[\"s\",6]}"
#define BYTES "{\"type\":\"ByteLevel\"}"
#define AROUND TEMPLATE(SPECIAL("b") "," TEXT "," SPECIAL("e"))
#define ALL(processors) "{\"type\":\"Sequence\",\"processors\":[" processors "]}"

static struct post_processor load(const char *text)
{
    AUTO(json_free) struct json *config = NULL;
    struct post_processor p = {.unknown = NULL};
    struct err e;

    EXPECT_OK(json_parse(&config, str_from(text), &e), &e);
    post_processor_load(&p, config);
    return p;
}

static void put(const struct token_ids *ids, struct buf *out)
{
    for (size_t i = 0; i < ids->len; i++)
        buf_printf(out, "%u ", ids->ptr[i]);
}

static void what_is_put_around_a_text(void **state)
{
    static const char *const cases[][2] = {
        {"null", "T "},
        {BYTES, "T "},
        {AROUND, "1 T 2 3 "},
        {TEMPLATE(TEXT), "T "},
        {TEMPLATE(SPECIAL("b") "," SPECIAL("e") "," TEXT), "1 2 3 T "},
        {BERT, "7 T 8 "},
        {ALL(BYTES "," AROUND), "1 T 2 3 "},
        {ALL(AROUND "," BYTES), "1 T 2 3 "},
        {ALL(BERT "," ROBERTA), "5 7 T 8 6 "},
        {ALL(ROBERTA "," AROUND), "1 5 T 6 2 3 "},
        {ALL(TEMPLATE(TEXT) "," BERT), "7 T 8 "},
        {ALL(""), "T "},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct post_processor p = load(cases[i][0]);
        AUTO(buf_done) struct buf got = BUF_NULL;

        put(&p.before, &got);
        buf_put_cstr(&got, "T ");
        put(&p.after, &got);
        assert_string_equal(buf_cstr(&got), cases[i][1]);
        assert_null(p.unknown);
        post_processor_done(&p);
    }
}

static void what_is_not_known(void **state)
{
    static const char *const cases[] = {
        "{}",
        "[]",
        "{\"type\":\"New\"}",
        "{\"type\":\"BertProcessing\",\"cls\":[\"c\",7]}",
        "{\"type\":\"BertProcessing\",\"cls\":[\"c\",7],\"sep\":[\"s\",-8]}",
        "{\"type\":\"RobertaProcessing\",\"cls\":[\"c\",7],\"sep\":[\"s\",8,9]}",
        "{\"type\":\"TemplateProcessing\"}",
        TEMPLATE(""),
        TEMPLATE(SPECIAL("b")),
        TEMPLATE(TEXT "," TEXT),
        TEMPLATE(SPECIAL("b") "," SECOND),
        TEMPLATE(SPECIAL("bad") "," TEXT),
        TEMPLATE(SPECIAL("missing") "," TEXT),
        ALL(AROUND "," BERT), /* the library puts its ends into the template */
        ALL(ALL(ALL(ALL(ALL(ALL(ALL(ALL(ALL(BERT))))))))),
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct post_processor p = load(cases[i]);

        if (!p.unknown)
            fail_msg("%s", cases[i]);
        post_processor_done(&p);
    }
}

static void ids_are_bounded(void **state)
{
    AUTO(buf_done) struct buf many = BUF_NULL;
    struct post_processor p;

    (void)state;
    buf_put_cstr(&many, "{\"type\":\"Sequence\",\"processors\":[" BERT);
    for (size_t i = 1; i < POST_PROCESSOR_MAX; i++)
        buf_put_cstr(&many, "," BERT);
    buf_put_cstr(&many, "]}");
    p = load(buf_cstr(&many));
    assert_null(p.unknown);
    assert_int_equal(p.before.len, POST_PROCESSOR_MAX);
    post_processor_done(&p);
    many.len -= strlen("]}");
    buf_put_cstr(&many, "," BERT "]}");
    p = load(buf_cstr(&many));
    assert_non_null(p.unknown);
    assert_int_equal(p.before.len, POST_PROCESSOR_MAX);
    post_processor_done(&p);
}

int main(void)
{
    return TEST_RUN(T(what_is_put_around_a_text), T(what_is_not_known), T(ids_are_bounded));
}
