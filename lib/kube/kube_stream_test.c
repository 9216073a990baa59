/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/kube_stream.h"

#include <errno.h>

#include "lib/base/test.h"

static void test_lines_survive_any_cut(void **state)
{
    static const char text[] = "{\"a\":1}\r\n\n{\"b\":2}\n  \n{\"c\":3}\nrest";

    (void)state;
    for (size_t step = 1; step <= sizeof(text); step++) {
        struct kube_lines lines = {0};
        AUTO(buf_done) struct buf got = BUF_NULL;
        struct str left = str_from(text), line;

        while (left.len) {
            kube_lines_feed(&lines, str_head(left, step));
            left = str_skip(left, step);
            while (kube_lines_next(&lines, &line))
                buf_printf(&got, "%.*s;", STR_ARG(line));
        }
        assert_string_equal(buf_cstr(&got), "{\"a\":1};{\"b\":2};{\"c\":3};");
        assert_int_equal(kube_lines_pending(&lines), 4);
        kube_lines_done(&lines);
    }
}

static void test_clear_forgets_the_rest(void **state)
{
    struct kube_lines lines = {0};
    struct str line;

    (void)state;
    kube_lines_feed(&lines, STR("half a li"));
    assert_false(kube_lines_next(&lines, &line));
    kube_lines_clear(&lines);
    kube_lines_feed(&lines, STR("x\n"));
    assert_true(kube_lines_next(&lines, &line));
    assert_true(str_is(line, "x"));
    kube_lines_done(&lines);
}

static void test_event(void **state)
{
    static const struct {
        const char *line;
        int want;
        enum kube_event_type type;
        const char *object;
    } cases[] = {
        {"{\"type\":\"ADDED\",\"object\":{\"a\":[1]}}", 0, KUBE_EVENT_ADDED, "{\"a\":[1]}"},
        {"{\"object\":{},\"x\":null,\"type\":\"BOOKMARK\"}", 0, KUBE_EVENT_BOOKMARK, "{}"},
        {"{\"type\":\"ERROR\",\"object\":{\"code\":410}}", 0, KUBE_EVENT_ERROR, "{\"code\":410}"},
        {"{\"type\":\"MOVED\",\"object\":{}}", -EBADMSG, 0, NULL},
        {"{\"type\":\"ADDED\"}", -EBADMSG, 0, NULL},
        {"{\"type\":\"ADDED\",\"object\":[]}", -EBADMSG, 0, NULL},
        {"{\"type\":\"ADDED\",\"object\":{}", -EBADMSG, 0, NULL},
        {"[]", -EBADMSG, 0, NULL},
        {"", -EBADMSG, 0, NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct kube_event event = {.type = KUBE_EVENT_DELETED};
        struct err e;

        assert_int_equal(kube_event_parse(str_from(cases[i].line), &event, &e), cases[i].want);
        if (cases[i].want) {
            assert_int_equal(event.type, KUBE_EVENT_DELETED);
            continue;
        }
        assert_int_equal(event.type, cases[i].type);
        assert_true(str_is(event.object, cases[i].object));
    }
}

static void put_item(void *arg, struct str object)
{
    buf_printf(arg, "%.*s;", STR_ARG(object));
}

static void test_page(void **state)
{
    AUTO(buf_done) struct buf items = BUF_NULL;
    struct kube_page page;
    struct err e;

    (void)state;
    EXPECT_OK(
        kube_page_parse(
            STR("{\"kind\":\"L\",\"metadata\":{\"resourceVersion\":\"7\",\"continue\":\"ab\"},"
                "\"items\":[{\"a\":1},{}]}"),
            put_item, &items, &page, &e),
        &e);
    assert_string_equal(buf_cstr(&items), "{\"a\":1};{};");
    assert_true(str_is(page.resource_version, "7"));
    assert_true(str_is(page.next, "ab"));
    EXPECT_OK(kube_page_parse(STR("{\"metadata\":{\"resourceVersion\":\"8\"},\"items\":null}"),
                              put_item, &items, &page, &e),
              &e);
    assert_int_equal(page.next.len, 0);
    assert_int_equal(kube_page_parse(STR("{\"items\":[]}"), put_item, &items, &page, &e), -EBADMSG);
    assert_int_equal(kube_page_parse(STR("{\"metadata\":{}}{"), put_item, &items, &page, &e),
                     -EBADMSG);
}

int main(void)
{
    return TEST_RUN(T(test_lines_survive_any_cut), T(test_clear_forgets_the_rest), T(test_event),
                    T(test_page));
}
