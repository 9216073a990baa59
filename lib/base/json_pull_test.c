/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/json_pull.h"

#include <cjson/cJSON.h>
#include <errno.h>

#include "lib/base/json_put.h"
#include "lib/base/test.h"

static struct json_pull pull_on(const char *text)
{
    struct json_pull p;

    json_pull_init(&p, str_from(text));
    return p;
}

static bool is_valid(struct str text)
{
    struct json_pull p;

    json_pull_init(&p, text);
    return json_pull_skip(&p, NULL) && json_pull_end(&p, NULL) == 0;
}

static void test_typical_reader(void **state)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct json_pull p = pull_on(" {\"id\": 18446744073709551615, \"x\":{\"y\":[1,{}]},\n"
                                 "\"tokens\":[1,2 ,3],\"s\":\"a\\u00e9\",\"n\":null,\"b\":true} ");
    struct str key, text = STR_NULL, skipped = STR_NULL;
    uint64_t id = 0, sum = 0, token;
    bool flag = false, null = false;
    struct err e;

    (void)state;
    assert_true(json_pull_object(&p));
    while (json_pull_key(&p, &key)) {
        if (str_is(key, "id"))
            assert_true(json_pull_u64(&p, &id));
        else if (str_is(key, "tokens") && json_pull_array(&p))
            while (json_pull_element(&p) && json_pull_u64(&p, &token))
                sum += token;
        else if (str_is(key, "s"))
            assert_true(json_pull_string(&p, &scratch, &text));
        else if (str_is(key, "n"))
            null = json_pull_null(&p);
        else if (str_is(key, "b"))
            assert_true(json_pull_bool(&p, &flag));
        else
            assert_true(json_pull_skip(&p, &skipped));
    }
    EXPECT_OK(json_pull_end(&p, &e), &e);
    assert_true(id == UINT64_MAX && sum == 6 && flag && null);
    assert_true(str_is(text, "a\xc3\xa9"));
    assert_true(str_is(skipped, "{\"y\":[1,{}]}"));
}

static void test_documents_accepted_and_refused(void **state)
{
    static const struct {
        struct str text;
        bool valid;
    } cases[] = {
        {STR("1"), true},
        {STR(" [ ] "), true},
        {STR("{}"), true},
        {STR("\t\r\n\"\""), true},
        {STR("{\"a\":{\"b\":[[],{},\"\"]},\"\":0}"), true},
        {STR("[-0,0.0,-1.5e+10,1E9,0e-0]"), true},
        {STR("\"\\u0000\\uD800\\/\""), true}, /* well formed; only json_unescape minds */
        {STR("\"\xf4\x8f\xbf\xbf\""), true},
        {STR(""), false},
        {STR(" "), false},
        {STR("1 2"), false},
        {STR("[1 2]"), false},
        {STR("[1,]"), false},
        {STR("[,1]"), false},
        {STR("[1"), false},
        {STR("[1,"), false},
        {STR("[1}"), false},
        {STR("]"), false},
        {STR("{\"a\":1,}"), false},
        {STR("{\"a\"}"), false},
        {STR("{\"a\":}"), false},
        {STR("{\"a\" 1}"), false},
        {STR("{a:1}"), false},
        {STR("{\"a\":1 \"b\":2}"), false},
        {STR("{1:2}"), false},
        {STR("01"), false},
        {STR("-"), false},
        {STR("-a"), false},
        {STR("+1"), false},
        {STR("1."), false},
        {STR(".5"), false},
        {STR("1e"), false},
        {STR("1e+"), false},
        {STR("0x10"), false},
        {STR("NaN"), false},
        {STR("nul"), false},
        {STR("nulll"), false},
        {STR("True"), false},
        {STR("'a'"), false},
        {STR("\"a"), false},
        {STR("\"a\\\""), false},
        {STR("\"\\x\""), false},
        {STR("\"\\"), false},
        {STR("\"\\u12"), false},
        {STR("\"\\u12g4\""), false},
        {STR("\"\\\0\""), false},
        {STR("\"a\nb\""), false},
        {STR("\"12345678\x1f\""), false},
        {STR("\"\xc0\x80\""), false},         /* overlong */
        {STR("\"\xed\xa0\x80\""), false},     /* a surrogate */
        {STR("\"\xf4\x90\x80\x80\""), false}, /* beyond U+10FFFF */
        {STR("\"12345678\xe2\x82\""), false}, /* cut */
        {STR("{\"\xff\":1}"), false},
        {STR("\xef\xbb\xbf{}"), false}, /* no byte order mark */
        {STR("1\0"), false},
        {STR("/**/1"), false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (is_valid(cases[i].text) != cases[i].valid)
            fail_msg("%.*s: expected %s", STR_ARG(cases[i].text), cases[i].valid ? "valid" : "not");
}

static void test_u64(void **state)
{
    static const struct {
        const char *text;
        bool ok;
        uint64_t want;
    } cases[] = {
        {"0", true, 0},
        {"18446744073709551615", true, UINT64_MAX},
        {"11400714819323198485", true, UINT64_C(11400714819323198485)},
        {"18446744073709551616", false, 0},
        {"99999999999999999999", false, 0},
        {"184467440737095516150", false, 0},
        {"-1", false, 0},
        {"-0", false, 0},
        {"1.0", false, 0},
        {"1e3", false, 0},
        {"00", false, 0},
        {"\"1\"", false, 0},
        {"null", false, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct json_pull p = pull_on(cases[i].text);
        uint64_t got = 7; /* stays when it fails */

        if (json_pull_u64(&p, &got) != cases[i].ok || got != (cases[i].ok ? cases[i].want : 7))
            fail_msg("%s: got %llu", cases[i].text, (unsigned long long)got);
        assert_int_equal(json_pull_ok(&p), cases[i].ok);
    }
}

static void test_i64(void **state)
{
    static const struct {
        const char *text;
        bool ok;
        int64_t want;
    } cases[] = {
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775807", true, INT64_MAX},
        {"-0", true, 0},
        {"-12", true, -12},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"-", false, 0},
        {"-01", false, 0},
        {"1e0", false, 0},
        {"true", false, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct json_pull p = pull_on(cases[i].text);
        int64_t got = 7;

        if (json_pull_i64(&p, &got) != cases[i].ok || got != (cases[i].ok ? cases[i].want : 7))
            fail_msg("%s: got %lld", cases[i].text, (long long)got);
    }
}

static void test_f64(void **state)
{
    static const char *const good[] = {
        "0",
        "-0",
        "1.5",
        "0.1",
        "123456789012345",
        "1234567890123456789",
        "0.000000000000001",
        "1e3",
        "1E-7",
        "5e-324",
        "1.7976931348623157e308",
        "9007199254740993",
        "-2.5e+3",
        "0.30000000000000004",
        "1e-400",
        "0.1000000000000000055511151231257827021181583404541015625000000000000000000000000001"};
    static const char *const bad[] = {"1e999", "-1e999", "NaN", "1.", "\"1\"", ".1", "1e"};
    double got;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct json_pull p = pull_on(good[i]);
        double want = strtod(good[i], NULL);

        if (!json_pull_f64(&p, &got) || memcmp(&got, &want, sizeof(got)) != 0)
            fail_msg("%s: got %.17g", good[i], got);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct json_pull p = pull_on(bad[i]);

        assert_false(json_pull_f64(&p, &got));
    }
}

static void test_unescape(void **state)
{
    static const struct {
        const char *raw;
        const char *want; /* NULL: malformed */
    } cases[] = {
        {"", ""},
        {"plain", "plain"},
        {"\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\b\f\n\r\t"},
        {"\\u0041\\u00e9\\u20AC", "A\xc3\xa9\xe2\x82\xac"},
        {"<\\ud83d\\ude00>", "<\xf0\x9f\x98\x80>"},
        {"\\uDBFF\\uDFFF", "\xf4\x8f\xbf\xbf"},
        {"\\ud83d", NULL},
        {"\\ud83dx", NULL},
        {"\\ud83d\\n12345", NULL},
        {"\\ud83d\\u0041", NULL},
        {"\\ude00", NULL},
        {"\\u12", NULL},
        {"\\u 123", NULL},
        {"\\x", NULL},
        {"a\\", NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf out = BUF_NULL;
        bool ok;

        buf_put_cstr(&out, "<");
        ok = json_unescape(str_from(cases[i].raw), &out);
        if (ok != (cases[i].want != NULL))
            fail_msg("%s: %d", cases[i].raw, ok);
        assert_true(str_is(str_skip(buf_str(&out), 1), cases[i].want ? cases[i].want : ""));
    }
}

static void test_escaped_strings_share_the_scratch(void **state)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct json_pull p = pull_on("[\"plain\",\"\\n\",\"\\t\"]");
    struct str got;

    (void)state;
    assert_true(json_pull_array(&p));
    assert_true(json_pull_element(&p) && json_pull_string(&p, &scratch, &got));
    assert_ptr_equal(got.ptr, p.begin + 2);
    assert_true(json_pull_element(&p) && json_pull_string(&p, &scratch, &got) && str_is(got, "\n"));
    assert_true(json_pull_element(&p) && json_pull_raw_string(&p, &got) && str_is(got, "\\t"));
    assert_false(json_pull_element(&p));
    assert_int_equal(json_pull_end(&p, NULL), 0);
}

static void test_peek_names_the_next_value(void **state)
{
    static const struct {
        const char *text;
        enum json_kind want;
    } cases[] = {
        {" {", JSON_KIND_OBJECT}, {"[", JSON_KIND_ARRAY},  {"\"", JSON_KIND_STRING},
        {"-", JSON_KIND_NUMBER},  {"9", JSON_KIND_NUMBER}, {"true", JSON_KIND_BOOL},
        {"f", JSON_KIND_BOOL},    {"n", JSON_KIND_NULL},   {"x", JSON_KIND_NONE},
        {"", JSON_KIND_NONE},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct json_pull p = pull_on(cases[i].text);

        assert_int_equal(json_pull_peek(&p), cases[i].want);
        assert_int_equal(json_pull_peek(&p), cases[i].want);
    }
}

static void test_null_instead_of_a_bracket_is_consumed(void **state)
{
    struct json_pull p = pull_on("[null,null,1]");
    uint64_t one;

    (void)state;
    assert_true(json_pull_array(&p));
    assert_true(json_pull_element(&p));
    assert_false(json_pull_object(&p));
    assert_true(json_pull_element(&p));
    assert_false(json_pull_array(&p));
    assert_true(json_pull_element(&p));
    assert_false(json_pull_null(&p));
    assert_true(json_pull_u64(&p, &one));
    assert_false(json_pull_element(&p));
    assert_int_equal(json_pull_end(&p, NULL), 0);
}

static void test_first_error_sticks(void **state)
{
    struct json_pull p = pull_on("{\"a\":tru,\"b\":1}");
    struct str key;
    struct err e;
    bool flag;

    (void)state;
    assert_true(json_pull_object(&p) && json_pull_key(&p, &key));
    assert_false(json_pull_bool(&p, &flag));
    assert_false(json_pull_key(&p, &key));
    assert_false(json_pull_skip(&p, NULL));
    json_pull_fail(&p, "later");
    assert_int_equal(json_pull_peek(&p), JSON_KIND_NONE);
    assert_int_equal(json_pull_end(&p, &e), -EINVAL);
    assert_string_equal(e.text, "byte 5: expected true or false");
}

static void test_misuse_is_an_error_and_never_a_loop(void **state)
{
    struct json_pull in_object = pull_on("{\"a\":1}"), in_array = pull_on("[1]"),
                     top = pull_on("1");
    struct str key;

    (void)state;
    assert_true(json_pull_object(&in_object));
    assert_false(json_pull_element(&in_object));
    assert_true(json_pull_array(&in_array));
    assert_false(json_pull_key(&in_array, &key));
    assert_false(json_pull_element(&top));
    assert_int_equal(json_pull_end(&top, NULL), -EINVAL);
}

static void test_depth_is_limited(void **state)
{
    AUTO(buf_done) struct buf text = BUF_NULL;

    (void)state;
    for (int i = 0; i < JSON_PULL_DEPTH; i++)
        buf_put_cstr(&text, i % 2 ? "[" : "{\"a\":");
    buf_put_cstr(&text, "1");
    for (int i = JSON_PULL_DEPTH; i-- > 0;)
        buf_put_cstr(&text, i % 2 ? "]" : "}");
    assert_true(is_valid(buf_str(&text)));
    buf_clear(&text);
    for (int i = 0; i <= JSON_PULL_DEPTH; i++)
        buf_put_char(&text, '[');
    for (int i = 0; i <= JSON_PULL_DEPTH; i++)
        buf_put_char(&text, ']');
    assert_false(is_valid(buf_str(&text)));
}

/* --- against cJSON --------------------------------------------------------------------------- */

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void put_random(struct json_put *j, uint32_t *seed, int depth)
{
    static const char *const strings[] = {"",
                                          "a",
                                          "line\nbreak",
                                          "\xe2\x82\xac uro",
                                          "\"q\"\\",
                                          "exactly8",
                                          "a longer string with \x01 in its middle"};
    uint32_t kind = next_random(seed) % (depth > 4 ? 5 : 7);

    if (kind == 0)
        json_put_cstr(j, strings[next_random(seed) % ARRAY_LEN(strings)]);
    else if (kind == 1)
        json_put_i64(j, (int64_t)next_random(seed) - (1 << 23));
    else if (kind == 2)
        json_put_f64(j, next_random(seed) / 1000.0);
    else if (kind == 3)
        json_put_bool(j, next_random(seed) & 1);
    else if (kind == 4)
        json_put_null(j);
    else if (kind == 5) {
        json_put_array(j);
        for (uint32_t n = next_random(seed) % 5; n > 0; n--)
            put_random(j, seed, depth + 1);
        json_put_array_end(j);
    } else {
        json_put_object(j);
        for (uint32_t n = next_random(seed) % 5; n > 0; n--) {
            json_put_key(j, strings[next_random(seed) % 4 == 2]);
            put_random(j, seed, depth + 1);
        }
        json_put_object_end(j);
    }
}

static void assert_same(struct json_pull *p, const cJSON *want);

static void assert_same_children(struct json_pull *p, const cJSON *want)
{
    bool object = cJSON_IsObject(want);
    struct str key;

    assert_true(object ? json_pull_object(p) : json_pull_array(p));
    for (const cJSON *child = want->child; child; child = child->next) {
        AUTO(buf_done) struct buf name = BUF_NULL;

        assert_true(object ? json_pull_key(p, &key) : json_pull_element(p));
        if (object) {
            assert_true(json_unescape(key, &name));
            assert_string_equal(buf_cstr(&name), child->string);
        }
        assert_same(p, child);
    }
    assert_false(object ? json_pull_key(p, &key) : json_pull_element(p));
}

static void assert_same(struct json_pull *p, const cJSON *want)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct str s;
    double number;
    bool flag;

    if (cJSON_IsString(want)) {
        assert_true(json_pull_string(p, &scratch, &s));
        assert_true(str_is(s, want->valuestring));
    } else if (cJSON_IsNumber(want)) {
        assert_true(json_pull_f64(p, &number));
        assert_true(number == want->valuedouble);
    } else if (cJSON_IsBool(want)) {
        assert_true(json_pull_bool(p, &flag));
        assert_int_equal(flag, cJSON_IsTrue(want));
    } else if (cJSON_IsNull(want)) {
        assert_true(json_pull_null(p));
    } else {
        assert_same_children(p, want);
    }
}

static void test_random_documents_read_as_cjson_does(void **state)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    uint32_t seed = 1;

    (void)state;
    for (int i = 0; i < 2000; i++) {
        struct json_put j = json_put_on(&text);
        struct json_pull p;
        cJSON *want;

        buf_clear(&text);
        put_random(&j, &seed, 0);
        want = cJSON_ParseWithLength(buf_data(&text), text.len);
        assert_non_null(want);
        json_pull_init(&p, buf_str(&text));
        assert_same(&p, want);
        assert_int_equal(json_pull_end(&p, NULL), 0);
        cJSON_Delete(want);
    }
}

/* Whatever we accept cJSON accepts; it forgives more than we do. */
static void test_damaged_documents_are_never_more_lenient_than_cjson(void **state)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    uint32_t seed = 2;
    int refused = 0;

    (void)state;
    for (int i = 0; i < 5000; i++) {
        struct json_put j = json_put_on(&text);
        cJSON *theirs;
        bool ours;

        buf_clear(&text);
        put_random(&j, &seed, 0);
        buf_data(&text)[next_random(&seed) % text.len] = "{}[]\",:\\0 e"[next_random(&seed) % 11];
        ours = is_valid(buf_str(&text));
        refused += !ours;
        theirs = cJSON_ParseWithLength(buf_data(&text), text.len);
        if (ours && !theirs)
            fail_msg("only we accept %.*s", STR_ARG(buf_str(&text)));
        cJSON_Delete(theirs);
    }
    assert_true(refused > 1000);
}

static void test_member(void **state)
{
    static const struct {
        const char *object, *key, *text; /* NULL = none */
    } cases[] = {
        {"{\"a\":{\"b\":1}, \"c\" : [2, 3] }", "a", "{\"b\":1}"},
        {"{\"a\":{\"b\":1}, \"c\" : [2, 3] }", "c", "[2, 3]"},
        {"{\"a\":{\"b\":1}}", "b", NULL},
        {"{\"a\":null}", "a", "null"},
        {"{\"z\":[1, \"a\":2}", "a", NULL},
        {"[\"a\"]", "a", NULL},
        {"", "a", NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str found = json_pull_member(str_from(cases[i].object), cases[i].key);

        if (!str_eq(found, str_from(cases[i].text)))
            fail_msg("%s: %.*s", cases[i].object, STR_ARG(found));
    }
}

int main(void)
{
    return TEST_RUN(T(test_typical_reader), T(test_documents_accepted_and_refused), T(test_u64),
                    T(test_i64), T(test_f64), T(test_unescape),
                    T(test_escaped_strings_share_the_scratch), T(test_peek_names_the_next_value),
                    T(test_null_instead_of_a_bracket_is_consumed), T(test_first_error_sticks),
                    T(test_member), T(test_misuse_is_an_error_and_never_a_loop),
                    T(test_depth_is_limited), T(test_random_documents_read_as_cjson_does),
                    T(test_damaged_documents_are_never_more_lenient_than_cjson));
}
