/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/body.h"

#include <errno.h>

#include "lib/base/test.h"

struct all {
    struct str name, object, any;
    struct opt_u64 wide, narrow;
    struct opt_f64 share;
    struct opt_bool flag;
    struct u32_list tokens;
    struct u64_list hashes;
    struct str_list strings;
    struct number_list numbers;
    struct media_list media;
};

static const struct body_field TABLE[] = {
    {"name", BODY_STR, offsetof(struct all, name), true},
    {"object", BODY_OBJECT, offsetof(struct all, object), false},
    {"any", BODY_JSON, offsetof(struct all, any), false},
    {"wide", BODY_U64, offsetof(struct all, wide), false},
    {"narrow", BODY_U32, offsetof(struct all, narrow), false},
    {"share", BODY_F64, offsetof(struct all, share), false},
    {"flag", BODY_BOOL, offsetof(struct all, flag), false},
    {"tokens", BODY_TOKENS, offsetof(struct all, tokens), false},
    {"hashes", BODY_HASHES, offsetof(struct all, hashes), false},
    {"strings", BODY_STRINGS, offsetof(struct all, strings), false},
    {"numbers", BODY_NUMBERS, offsetof(struct all, numbers), false},
    {"media", BODY_MEDIA, offsetof(struct all, media), false},
};

static int parse(struct arena *a, const char *json, struct all *ret, struct err *e)
{
    *ret = (struct all){.flag = {false, false}};
    return body_parse(a, str_from(json), TABLE, ARRAY_LEN(TABLE), ret, e);
}

static void test_reads_every_type(void **state)
{
    AUTO(arena_free) struct arena *a = arena_new();
    struct all v;
    struct err e;

    (void)state;
    EXPECT_OK(parse(a,
                    "{\"name\":\"a\\u0062\",\"object\":{\"x\":[1]},\"any\":[null],\"unknown\":{},"
                    "\"wide\":18446744073709551615,\"narrow\":7,\"share\":0.5,\"flag\":true,"
                    "\"tokens\":[1,4294967295],\"hashes\":[18446744073709551615,-1,5]}",
                    &v, &e),
              &e);
    assert_true(str_is(v.name, "ab"));
    assert_true(str_is(v.object, "{\"x\":[1]}"));
    assert_true(str_is(v.any, "[null]"));
    assert_true(v.wide.set && v.wide.v == UINT64_MAX);
    assert_true(v.narrow.set && v.narrow.v == 7);
    assert_true(v.share.set && v.share.v == 0.5);
    assert_true(v.flag.set && v.flag.v);
    assert_int_equal(v.tokens.len, 2);
    assert_true(v.tokens.ptr[1] == UINT32_MAX);
    assert_int_equal(v.hashes.len, 3);
    assert_true(v.hashes.ptr[0] == UINT64_MAX && v.hashes.ptr[1] == UINT64_MAX &&
                v.hashes.ptr[2] == 5);
}

static void test_reads_lists_and_numbers_by_name(void **state)
{
    static const char *const wrong[] = {
        "{\"name\":\"\",\"strings\":\"a\"}", "{\"name\":\"\",\"strings\":[1]}",
        "{\"name\":\"\",\"numbers\":[1]}", "{\"name\":\"\",\"numbers\":{\"a\":\"b\"}}"};
    AUTO(arena_free) struct arena *a = arena_new();
    struct all v;
    struct err e;

    (void)state;
    EXPECT_OK(parse(a,
                    "{\"name\":\"\",\"strings\":[\"\",\"b\\u0063\"],"
                    "\"numbers\":{\"\":1,\"x\":-0.5,\"x\":2e3}}",
                    &v, &e),
              &e);
    assert_int_equal(v.strings.len, 2);
    assert_true(str_is(v.strings.ptr[0], "") && str_is(v.strings.ptr[1], "bc"));
    assert_int_equal(v.numbers.len, 3);
    assert_true(str_is(v.numbers.ptr[1].name, "x") && v.numbers.ptr[1].v == -0.5);
    assert_true(v.numbers.ptr[2].v == 2000);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_int_equal(parse(a, wrong[i], &v, &e), -EINVAL);
}

static void test_absent_and_null_are_the_same(void **state)
{
    AUTO(arena_free) struct arena *a = arena_new();
    struct all v;
    struct err e;

    (void)state;
    EXPECT_OK(parse(a, "{\"name\":\"\",\"wide\":null,\"tokens\":null}", &v, &e), &e);
    assert_non_null(v.name.ptr);
    assert_null(v.tokens.ptr);
    assert_false(v.wide.set);
    EXPECT_OK(parse(a, "{\"name\":\"\",\"tokens\":[]}", &v, &e), &e);
    assert_non_null(v.tokens.ptr);
    assert_int_equal(v.tokens.len, 0);
}

static void test_names_what_is_wrong(void **state)
{
    static const struct {
        const char *json;
        int r;
        const char *says;
    } cases[] = {
        {"", BODY_NOT_JSON, ""},
        {"{\"name\":", BODY_NOT_JSON, ""},
        {"{\"name\":\"a\"} x", BODY_NOT_JSON, ""},
        {"[]", -EINVAL, ""},
        {"{}", -EINVAL, "missing field `name`"},
        {"{\"name\":null}", -EINVAL, "missing field `name`"},
        {"null", -EINVAL, "null is no object"},
        {"{\"name\":5}", -EINVAL, "name"},
        {"{\"name\":\"\",\"wide\":-1}", -EINVAL, "wide"},
        {"{\"name\":\"\",\"narrow\":4294967296}", -EINVAL, "narrow"},
        {"{\"name\":\"\",\"tokens\":[\"a\"]}", -EINVAL, "tokens"},
        {"{\"name\":\"\",\"tokens\":{}}", -EINVAL, "tokens"},
        {"{\"name\":\"\",\"hashes\":[1.5]}", -EINVAL, "hashes"},
        {"{\"name\":\"\",\"hashes\":[18446744073709551616]}", -EINVAL, "hashes"},
        {"{\"name\":\"\",\"object\":[]}", -EINVAL, "object"},
        {"{\"name\":\"\",\"flag\":1}", -EINVAL, "flag"},
    };
    AUTO(arena_free) struct arena *a = arena_new();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err e;
        struct all v;
        int r = parse(a, cases[i].json, &v, &e);

        if (r != cases[i].r || !str_has(str_from(e.text), str_from(cases[i].says)))
            fail_msg("%s: %d: %s", cases[i].json, r, e.text);
    }
}

/* What 1.6.1 takes, and what it answers 415. */
static void test_knows_content_types_of_json(void **state)
{
    static const char *const json[] = {"application/json", "application/json; charset=utf-8",
                                       "application/ld+json", "Application/JSON",
                                       "application/cloud+json;a=b"};
    static const char *const other[] = {"",
                                        "json",
                                        "text/plain",
                                        "text/json",
                                        "application/x-www-form-urlencoded",
                                        "application/json;x",
                                        "application/json; a=b; x",
                                        "application/+json",
                                        "application/jsonx",
                                        "application/",
                                        "application"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(json); i++)
        if (!body_is_json(str_from(json[i])))
            fail_msg("%s is JSON", json[i]);
    for (size_t i = 0; i < ARRAY_LEN(other); i++)
        if (body_is_json(str_from(other[i])))
            fail_msg("%s is not JSON", other[i]);
}

#define OBJECTS(...) "{\"mm_objects\":[" __VA_ARGS__ "],\"x\":[]}"
#define MEDIUM(hash, offsets) "{\"offsets\":" offsets ",\"mm_hash\":" hash ",\"x\":{}}"

static void test_reads_media_of_blocks(void **state)
{
    static const char *const wrong[] = {"{}",
                                        "[1]",
                                        "[[]]",
                                        "[{}]",
                                        "[" OBJECTS("null") "]",
                                        "[" OBJECTS("{\"mm_hash\":1}") "]",
                                        "[" OBJECTS(MEDIUM("-1", "[]")) "]",
                                        "[" OBJECTS(MEDIUM("1", "[[1]]")) "]",
                                        "[" OBJECTS(MEDIUM("1", "[[null,2]]")) "]",
                                        "[" OBJECTS(MEDIUM("1", "[2,3]")) "]",
                                        "[" OBJECTS(MEDIUM("1", "null")) "]"};
    AUTO(arena_free) struct arena *a = arena_new();
    struct all v;
    struct err e;

    (void)state;
    EXPECT_OK(parse(a,
                    "{\"name\":\"\",\"media\":[null," OBJECTS(
                        MEDIUM("18446744073709551615",
                               "[[0,1],[4,5]]") "," MEDIUM("3", "[]")) "," OBJECTS() "]}",
                    &v, &e),
              &e);
    assert_int_equal(v.media.len, 2);
    assert_true(v.media.ptr[0].block == 1 && v.media.ptr[0].mm_hash == 3);
    assert_true(v.media.ptr[1].block == 1 && v.media.ptr[1].mm_hash == UINT64_MAX);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        char *body = arena_printf(a, "{\"name\":\"\",\"media\":%s}", wrong[i]);

        if (parse(a, body, &v, &e) >= 0)
            fail_msg("%s", wrong[i]);
    }
}

int main(void)
{
    return TEST_RUN(T(test_reads_media_of_blocks), T(test_reads_every_type),
                    T(test_reads_lists_and_numbers_by_name), T(test_absent_and_null_are_the_same),
                    T(test_names_what_is_wrong), T(test_knows_content_types_of_json));
}
