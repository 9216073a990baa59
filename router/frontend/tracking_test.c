/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/tracking.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/base/test.h"

/* A file of @n bytes, each 0x5a; the test removes it. */
static void write_key(char path[], size_t n)
{
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    while (n-- > 0)
        assert_int_equal(write(fd, "\x5a", 1), 1);
    (void)close(fd);
}

static int load_bytes(struct tracking_key **ret, size_t n, struct err *e)
{
    char path[] = "/tmp/tracking_key.XXXXXX", id[] = "2026-01";
    struct tracking_options o = {TRACKING_KEYED, path, id};
    int r;

    write_key(path, n);
    r = tracking_load(ret, &o, e);
    (void)unlink(path);
    return r;
}

static void a_key_has_32_bytes(void **state)
{
    struct tracking_key *key = NULL;
    struct err e;

    (void)state;
    assert_int_equal(load_bytes(&key, 32, &e), 0);
    assert_true(str_is(key->id, "2026-01"));
    assert_int_equal(key->bytes[0], 0x5a);
    assert_int_equal(key->bytes[31], 0x5a);
    assert_null(tracking_free(key));
    assert_int_equal(load_bytes(&key, 31, &e), -EINVAL);
    assert_non_null(strstr(e.text, "has 31 bytes instead of 32"));
    assert_int_equal(load_bytes(&key, 33, &e), -EFBIG);
    assert_int_equal(load_bytes(&key, 0, &e), -EINVAL);
}

static void what_is_missing_is_named(void **state)
{
    char nowhere[] = "/nowhere/key", id[] = "a", none[] = "";
    struct tracking_key *key = NULL;
    struct err e;

    (void)state;
    assert_int_equal(
        tracking_load(&key, &(struct tracking_options){TRACKING_PUBLIC, nowhere, id}, &e), 0);
    assert_null(key);
    assert_int_equal(tracking_load(&key, &(struct tracking_options){TRACKING_KEYED, NULL, id}, &e),
                     -EINVAL);
    assert_non_null(strstr(e.text, "key-file"));
    assert_int_equal(
        tracking_load(&key, &(struct tracking_options){TRACKING_KEYED, nowhere, none}, &e),
        -EINVAL);
    assert_non_null(strstr(e.text, "key-id"));
    assert_int_equal(
        tracking_load(&key, &(struct tracking_options){TRACKING_KEYED, nowhere, id}, &e), -ENOENT);
}

int main(void)
{
    return TEST_RUN(T(a_key_has_32_bytes), T(what_is_missing_is_named));
}
