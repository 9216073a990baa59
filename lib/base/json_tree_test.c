/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/json_tree.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>

#include "lib/base/test.h"

static struct json *parse(const char *text)
{
    struct json *v = NULL;
    struct err e;

    if (json_parse(&v, str_from(text), &e) < 0)
        fail_msg("%s: %s", text, e.text);
    return v;
}

static void assert_prints(const struct json *v, const char *want)
{
    AUTO(mem_free) char *got = json_to_cstr(v);

    assert_string_equal(got, want);
}

static void test_parse_and_print(void **state)
{
    static const struct {
        const char *text;
        const char *want;
    } cases[] = {
        {" { \"b\" : [ 1 , -2.5 , true , false , null ] , \"a\" : { } } ",
         "{\"b\":[1,-2.5,true,false,null],\"a\":{}}"},
        {"9007199254740992", "9007199254740992"},
        {"-9007199254740992", "-9007199254740992"},
        {"1234567890123456", "1234567890123456"}, /* 16 digits: no exponent */
        {"1.0", "1"},
        {"1e2", "100"},
        {"1e30", "1e+30"},
        {"222222222222222240e-1", "22222222222222224.0"}, /* stays no integer */
        {"0.1", "0.1"},
        {"-0", "0"},
        {"\"\\u00e9\\n\\ud83d\\ude00\"", "\"\xc3\xa9\\n\xf0\x9f\x98\x80\""},
        {"{\"k\\u0065y\":1}", "{\"key\":1}"},
        {"{\"a\":1,\"b\":2,\"a\":3}", "{\"b\":2,\"a\":3}"},
        {"{\"A\":1,\"a\":2}", "{\"A\":1,\"a\":2}"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(json_free) struct json *v = parse(cases[i].text);

        assert_prints(v, cases[i].want);
    }
}

static void test_duplicates_among_many_members(void **state)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    AUTO(json_free) struct json *v = NULL;
    int64_t value = 0;

    (void)state;
    buf_put_char(&text, '{');
    for (int i = 0; i < 1000; i++)
        buf_printf(&text, "\"k%d\":%d,", i % 100, i);
    buf_put_cstr(&text, "\"last\":0}");
    assert_int_equal(json_parse(&v, buf_str(&text), NULL), 0);
    assert_int_equal(json_len(v), 101);
    assert_true(json_get_i64(v, "k7", &value) && value == 907);
    assert_string_equal(json_key(json_first(v)), "k0");
}

static void test_refused(void **state)
{
    static const struct {
        const char *text;
        int want;
        const char *why;
    } cases[] = {
        {"", -EINVAL, "json: byte 0: the value was not read to its end"},
        {"{} x", -EINVAL, "json: byte 3: something follows the value"},
        {"[1,]", -EINVAL, "json: byte 3: expected a value"},
        {"{\"a\":[1,{\"b\":x}]}", -EINVAL, "json: byte 13: expected a value"},
        {"\"\\ud800\"", -EINVAL, "json: byte 8: half of a surrogate pair"},
        {"{\"\\ud800\":1}", -EINVAL, "json: byte 10: half of a surrogate pair"},
        {"\"a\\u0000b\"", -EINVAL, "json: byte 10: NUL in a string"},
        {"\"\xff\"", -EINVAL, "json: byte 2: a string is not UTF-8"},
        {"[1e999]", -EINVAL, "json: byte 6: number out of range"},
        {"9007199254740993", -ERANGE, "json: byte 16: an integer beyond 2^53"},
        {"{\"id\":18446744073709551615}", -ERANGE, "json: byte 26: an integer beyond 2^53"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct json *v = NULL;
        struct err e;

        assert_int_equal(json_parse(&v, str_from(cases[i].text), &e), cases[i].want);
        assert_string_equal(e.text, cases[i].why);
        assert_null(v);
    }
}

static void test_depth_is_limited(void **state)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct json *v = NULL;

    (void)state;
    for (int i = 0; i <= JSON_TREE_DEPTH; i++)
        buf_put_char(&text, '[');
    for (int i = 0; i <= JSON_TREE_DEPTH; i++)
        buf_put_char(&text, ']');
    assert_int_equal(json_parse(&v, buf_str(&text), NULL), -EINVAL);
    EXPECT_OK(json_parse(&v, str_slice(buf_data(&text) + 1, text.len - 2), &(struct err){""}),
              &(struct err){""});
    (void)json_free(v);
}

static void test_getters_find_what_is_there(void **state)
{
    AUTO(json_free)
    struct json *v = parse("{\"s\":\"x\",\"n\":3,\"f\":1.5,\"b\":true,\"z\":null,\"o\":{\"p\":{"
                           "\"q\":7}},\"a\":[4,5]}");
    int64_t i = -1;
    double f = -1;
    bool b = false;

    (void)state;
    assert_string_equal(json_get_cstr(v, "s"), "x");
    assert_true(json_get_i64(v, "n", &i) && i == 3);
    assert_true(json_get_f64(v, "f", &f) && f == 1.5);
    assert_true(json_get_f64(v, "n", &f) && f == 3);
    assert_true(json_get_bool(v, "b", &b) && b);
    assert_true(json_is_null(json_get(v, "z")));
    assert_true(json_i64(json_path(v, "o", "p", "q", NULL), &i) && i == 7);
    assert_true(json_i64(json_at(json_get(v, "a"), 1), &i) && i == 5);
    assert_int_equal(json_len(v), 7);
    assert_int_equal(json_len(json_get(v, "a")), 2);
    assert_string_equal(json_key(json_first(v)), "s");
    assert_string_equal(json_key(json_next(json_first(v))), "n");
    assert_null(json_key(json_at(json_get(v, "a"), 0)));
}

static void test_getters_find_nothing_quietly(void **state)
{
    AUTO(json_free) struct json *v = parse("{\"s\":\"x\",\"f\":1.5,\"a\":[1]}");
    int64_t i = 9;
    double f = 9;
    bool b = true;

    (void)state;
    assert_null(json_get(v, "S"));
    assert_null(json_get(NULL, "s"));
    assert_null(json_get(json_get(v, "a"), "s"));
    assert_null(json_path(v, "a", "b", "c", NULL));
    assert_null(json_get_cstr(v, "f"));
    assert_null(json_at(v, 0));
    assert_null(json_at(json_get(v, "a"), 1));
    assert_null(json_first(json_get(v, "s")));
    assert_int_equal(json_len(json_get(v, "s")), 0);
    assert_int_equal(json_kind_of(NULL), JSON_KIND_NONE);
    assert_false(json_get_i64(v, "f", &i));
    assert_false(json_get_i64(v, "s", &i));
    assert_false(json_get_f64(v, "s", &f));
    assert_false(json_get_bool(v, "f", &b));
    assert_true(i == 9 && f == 9 && b);
}

static void test_build_and_edit(void **state)
{
    AUTO(json_free) struct json *v = json_new_object();
    struct json *list, *moved;

    (void)state;
    (void)json_set_cstr(v, "a", "1");
    (void)json_set_i64(v, "b", -2);
    (void)json_set_bool(v, "c", false);
    (void)json_set(v, "d", json_new_f64(0.25));
    (void)json_set_cstr(v, "a", "one"); /* replaced in place */
    (void)json_set_cstr(json_need_object(v, "o"), "x", "y");
    (void)json_set_cstr(json_need_object(v, "o"), "z", NULL);
    list = json_need_array(v, "l");
    (void)json_add(list, json_new_i64(2));
    (void)json_insert(list, 0, json_new_str(STR("first")));
    (void)json_insert(list, 9, json_new_null());
    assert_prints(v, "{\"a\":\"one\",\"b\":-2,\"c\":false,\"d\":0.25,\"o\":{\"x\":\"y\"},"
                     "\"l\":[\"first\",2,null]}");

    /* A member moves under its own name, which dies with its old place. */
    moved = json_get(v, "o");
    moved = json_take(v, json_key(moved));
    assert_null(json_key(moved));
    assert_string_equal(json_key(json_add(list, moved)) ? "named" : "nameless", "nameless");
    (void)json_free(json_take_at(list, 0));
    json_del(v, "absent");
    json_del(v, "d");
    assert_null(json_set(v, "b", NULL));
    assert_null(json_take(v, "b"));
    assert_null(json_take_at(list, 17));
    assert_prints(v, "{\"a\":\"one\",\"c\":false,\"l\":[2,null,{\"x\":\"y\"}]}");
    assert_true(json_is_object(json_need_object(v, "a"))); /* of another kind: replaced */
}

static void test_dup_is_independent(void **state)
{
    AUTO(json_free) struct json *v = parse("{\"a\":{\"b\":[1,\"x\"]}}");
    AUTO(json_free) struct json *copy = json_dup(json_get(v, "a"));

    (void)state;
    assert_null(json_dup(NULL));
    assert_null(json_key(copy));
    (void)json_set_i64(v, "a", 1);
    assert_prints(copy, "{\"b\":[1,\"x\"]}");
}

static void test_sorted_print(void **state)
{
    AUTO(json_free)
    struct json *v = parse("{\"b\":{\"z\":1,\"A\":2,\"a\":3},\"a\":[{\"y\":1,\"x\":2}],\"\":0}");
    AUTO(buf_done) struct buf out = BUF_NULL;

    (void)state;
    json_print_sorted(v, &out);
    assert_string_equal(buf_cstr(&out),
                        "{\"\":0,\"a\":[{\"x\":2,\"y\":1}],\"b\":{\"A\":2,\"a\":3,\"z\":1}}");
}

static void test_equal_and_contains(void **state)
{
    static const struct {
        const char *whole, *part;
        bool equal, contains;
    } cases[] = {
        {"{\"a\":1,\"b\":[{\"c\":2}]}", "{\"b\":[{\"c\":2}],\"a\":1}", true, true},
        {"{\"a\":1,\"b\":2}", "{\"b\":2}", false, true},
        {"{\"b\":2}", "{\"a\":1,\"b\":2}", false, false},
        {"{\"a\":{\"x\":1,\"y\":2}}", "{\"a\":{\"y\":2}}", false, true},
        {"{\"a\":{\"x\":1,\"y\":2}}", "{\"a\":{\"y\":3}}", false, false},
        {"[{\"a\":1,\"d\":4}]", "[{\"a\":1}]", false, true},
        {"[1,2]", "[1]", false, false},
        {"[1,2]", "[2,1]", false, false},
        {"\"a\"", "\"b\"", false, false},
        {"1", "1.0", true, true},
        {"1", "2", false, false},
        {"1", "\"1\"", false, false},
        {"true", "false", false, false},
        {"null", "null", true, true},
        {"{}", "{\"a\":null}", false, false},
        {"[]", "{}", false, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(json_free) struct json *whole = parse(cases[i].whole);
        AUTO(json_free) struct json *part = parse(cases[i].part);

        if (json_equal(whole, part) != cases[i].equal ||
            json_equal(part, whole) != cases[i].equal ||
            json_contains(whole, part) != cases[i].contains)
            fail_msg("%s and %s", cases[i].whole, cases[i].part);
    }
    assert_true(json_equal(NULL, NULL));
    assert_true(json_contains(NULL, NULL));
}

static void test_unrepresentable_numbers_become_null(void **state)
{
    AUTO(json_free) struct json *list = json_new_array();

    (void)state;
    (void)json_add(list, json_new_f64(NAN));
    (void)json_add(list, json_new_f64(INFINITY));
    (void)json_add(list, json_new_i64(INT64_C(1) << 53));
    assert_prints(list, "[null,null,9007199254740992]");
}

/* --- against cJSON --------------------------------------------------------------------------- */

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static cJSON *random_tree(uint32_t *seed, int depth)
{
    static const char *const words[] = {"", "a", "tab\t", "\xe2\x82\xac", "\"q\"\\", "/", "\x01"};
    uint32_t kind = next_random(seed) % (depth > 4 ? 4 : 6);
    cJSON *v;

    if (kind == 0)
        return cJSON_CreateString(words[next_random(seed) % ARRAY_LEN(words)]);
    if (kind == 1)
        return cJSON_CreateNumber((int)next_random(seed) - (1 << 23));
    if (kind == 2)
        return cJSON_CreateNumber(next_random(seed) / 1024.0);
    if (kind == 3)
        return next_random(seed) & 1 ? cJSON_CreateNull() : cJSON_CreateTrue();
    v = kind == 4 ? cJSON_CreateArray() : cJSON_CreateObject();
    for (uint32_t i = next_random(seed) % 6; i > 0; i--) {
        char key[16];

        (void)snprintf(key, sizeof(key), "%s%u", words[i % ARRAY_LEN(words)], i);
        if (kind == 4)
            cJSON_AddItemToArray(v, random_tree(seed, depth + 1));
        else
            cJSON_AddItemToObject(v, key, random_tree(seed, depth + 1));
    }
    return v;
}

static void test_random_trees_parse_and_print_as_cjson_does(void **state)
{
    uint32_t seed = 3;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        cJSON *want = random_tree(&seed, 0), *reread;
        char *text = cJSON_Print(want); /* with white space */
        AUTO(json_free) struct json *got = parse(text);
        AUTO(mem_free) char *compact = json_to_cstr(got);

        reread = cJSON_Parse(compact);
        if (!cJSON_Compare(want, reread, true))
            fail_msg("%s became %s", text, compact);
        cJSON_Delete(reread);
        cJSON_Delete(want);
        free(text);
    }
}

static void test_wide_integers(void **state)
{
    static const char text[] = "[9007199254740993,-9223372036854775808,18446744073709551615,3]";
    AUTO(json_free) struct json *v = NULL;
    AUTO(json_free) struct json *copy = NULL;
    AUTO(json_free) struct json *big = NULL;
    AUTO(mem_free) char *printed = NULL;
    struct err e;
    uint64_t u;
    int64_t i;

    (void)state;
    EXPECT_OK(json_parse_wide(&v, STR(text), &e), &e);
    copy = json_dup(v);
    printed = json_to_cstr(copy);
    assert_string_equal(printed, text);
    assert_true(json_equal(v, copy));
    assert_true(json_i64(json_at(v, 0), &i) && i == INT64_C(9007199254740993));
    assert_true(json_i64(json_at(v, 1), &i) && i == INT64_MIN);
    assert_false(json_i64(json_at(v, 2), &i));
    assert_true(json_u64(json_at(v, 2), &u) && u == UINT64_MAX);
    assert_false(json_u64(json_at(v, 1), &u));
    assert_false(json_u64(json_at(v, 3), &u));
    EXPECT_OK(json_parse_wide(&big, STR("18446744073709551616"), &e), &e);
    assert_true(json_is_float(big));
    assert_int_equal(json_parse(&big, STR(text), &e), -ERANGE);
}

static void test_names_that_come_again(void **state)
{
    AUTO(json_free) struct json *v = NULL, *copy = NULL;
    struct err e;

    (void)state;
    EXPECT_OK(json_parse(&v, STR("{\"a\":1,\"b\":2,\"\\u0061\":{\"a\":3},\"c\":[]}"), &e), &e);
    assert_true(json_is_repeated(json_get(v, "a")));
    assert_false(json_is_repeated(json_get(v, "b")));
    assert_false(json_is_repeated(json_path(v, "a", "a", NULL)));
    assert_false(json_is_repeated(NULL));
    copy = json_dup(v);
    assert_true(json_is_repeated(json_get(copy, "a")));
}

static void test_names_that_come_again_are_equal(void **state)
{
    AUTO(json_free) struct json *once = NULL, *twice = NULL;
    struct err e;

    (void)state;
    EXPECT_OK(json_parse(&once, STR("{\"a\":null,\"b\":true,\"c\":1}"), &e), &e);
    EXPECT_OK(
        json_parse(&twice, STR("{\"a\":1,\"b\":2,\"c\":3,\"a\":null,\"b\":true,\"c\":1}"), &e), &e);
    assert_true(json_equal(once, twice));
    assert_true(json_contains(twice, once));
}

/* A tree out of the middle of a text, of which the scanner goes on behind it. */
static void test_trees_of_a_scanner(void **state)
{
    static const struct {
        const char *text;
        bool ok;
    } cases[] = {{"{\"a\":{\"x\":[1,\"y\"],\"x\":2},\"b\":3}", true},
                 {"{\"a\":{\"x\":[1,}", false},
                 {"{\"a\":[\"\\u0000\"],\"b\":3}", false},
                 {"{\"a\":", false}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(json_free) struct json *v = NULL;
        struct json_pull p;
        struct str key;
        uint64_t b = 0;

        json_pull_init(&p, str_from(cases[i].text));
        assert_true(json_pull_object(&p) && json_pull_key(&p, &key));
        v = json_pull_tree(&p);
        assert_int_equal(v != NULL, cases[i].ok);
        assert_int_equal(json_pull_ok(&p), cases[i].ok);
        if (!v)
            continue;
        assert_int_equal(json_len(v), 1);
        assert_true(json_pull_key(&p, &key) && json_pull_u64(&p, &b) && b == 3);
        assert_false(json_pull_key(&p, &key));
        assert_int_equal(json_pull_end(&p, NULL), 0);
    }
}

int main(void)
{
    return TEST_RUN(T(test_parse_and_print), T(test_duplicates_among_many_members), T(test_refused),
                    T(test_depth_is_limited), T(test_getters_find_what_is_there),
                    T(test_getters_find_nothing_quietly), T(test_build_and_edit),
                    T(test_dup_is_independent), T(test_sorted_print), T(test_equal_and_contains),
                    T(test_wide_integers), T(test_names_that_come_again),
                    T(test_names_that_come_again_are_equal), T(test_trees_of_a_scanner),
                    T(test_unrepresentable_numbers_become_null),
                    T(test_random_trees_parse_and_print_as_cjson_does));
}
