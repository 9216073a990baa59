/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every unit test shares: cmocka with its four obligatory headers, and access to the oracles
 * in ../shared, which a user's clone does not have (skip) and CI must have (fail).
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

/* Runs the named tests as one group: int main(void) { return TEST_RUN(test_a, test_b); } */
#define TEST_RUN(...)                                                                              \
    ({                                                                                             \
        const struct CMUnitTest tests_[] = {TEST_MAP_(__VA_ARGS__)};                               \
        cmocka_run_group_tests_name(__FILE__, tests_, NULL, NULL);                                 \
    })
#define TEST_MAP_(...) __VA_ARGS__
#define T(fn) cmocka_unit_test(fn)

/* Prints the error when a call did not give what was expected. */
#define EXPECT_OK(call, e)                                                                         \
    do {                                                                                           \
        int expect_r_ = (call);                                                                    \
        if (expect_r_ != 0)                                                                        \
            fail_msg("%s: %d: %s", #call, expect_r_, (e)->text);                                   \
    } while (0)

/* Steps of a test in one thread, in more of which the thread sanitizer finds nothing. */
#ifdef __SANITIZE_THREAD__
#define TEST_STEPS(n) ((n) / 4)
#else
#define TEST_STEPS(n) (n)
#endif

/* Directory of the oracles, or NULL after a skip() message; fails when CI=true and it is absent. */
static inline __attribute__((unused)) const char *test_shared(void)
{
    const char *dir = getenv("COMMUTATOR_SHARED");
    const char *ci = getenv("CI");

    if (!dir)
        dir = "../shared";
    if (access(dir, R_OK) == 0)
        return dir;
    if (ci && strcmp(ci, "true") == 0)
        fail_msg("%s is absent, and CI=true allows no skip", dir);
    printf("skipped: %s is absent\n", dir);
    skip();
    return NULL;
}

/* Reads a whole file into @out; false when it cannot. */
static inline __attribute__((unused)) bool test_read_file(const char *path, struct buf *out)
{
    FILE *f = fopen(path, "rb");
    size_t n;

    if (!f)
        return false;
    do {
        n = fread(buf_reserve(out, 65536), 1, 65536, f);
        buf_commit(out, n);
    } while (n > 0);
    (void)fclose(f);
    return true;
}
