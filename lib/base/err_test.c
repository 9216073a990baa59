/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "lib/base/test.h"

static void test_message_and_code(void **state)
{
    struct err e;

    (void)state;
    assert_int_equal(err_set(&e, -EINVAL, "port %d", 7), -EINVAL);
    assert_string_equal(e.text, "port 7");
    assert_int_equal(err_errno(&e, -ENOENT, "open '%s'", "/x"), -ENOENT);
    assert_string_equal(e.text, "open '/x': No such file or directory");
    assert_int_equal(err_wrap(&e, -ENOENT, "kube: %s", "token"), -ENOENT);
    assert_string_equal(e.text, "kube: token: open '/x': No such file or directory");
}

static void test_nobody_listens(void **state)
{
    (void)state;
    assert_int_equal(err_set(NULL, -EIO, "a"), -EIO);
    assert_int_equal(err_errno(NULL, -EIO, "a"), -EIO);
    assert_int_equal(err_wrap(NULL, -EIO, "a"), -EIO);
}

static void test_long_messages_are_cut_at_the_end(void **state)
{
    char text[2 * ERR_TEXT_MAX];
    struct err e;

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';

    (void)err_set(&e, -EIO, "%s", text);
    assert_int_equal(strlen(e.text), ERR_TEXT_MAX - 1);
    (void)err_wrap(&e, -EIO, "outer");
    assert_int_equal(strlen(e.text), ERR_TEXT_MAX - 1);
    assert_memory_equal(e.text, "outer: xxx", 10);
    (void)err_wrap(&e, -EIO, "%s", text); /* no room for what was there */
    assert_int_equal(strlen(e.text), ERR_TEXT_MAX - 1);
    assert_int_equal(e.text[0], 'x');
    /* What went wrong is told even when the words before it are many. */
    (void)err_errno(&e, -EIO, "%s", text);
    assert_non_null(strstr(e.text, ": Input/output error"));
}

int main(void)
{
    return TEST_RUN(T(test_message_and_code), T(test_nobody_listens),
                    T(test_long_messages_are_cut_at_the_end));
}
