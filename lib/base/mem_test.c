/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/mem.h"

#include <fcntl.h>
#include <sys/wait.h>

#include "lib/base/test.h"

struct thing {
    int *freed;
};

static struct thing *thing_free(struct thing *t)
{
    if (t)
        ++*t->freed;
    free(t);
    return NULL;
}
DEFINE_CLEANUP(struct thing *, thing_free)

static struct thing *thing_new(int *freed)
{
    struct thing *t = xmalloc(sizeof(*t));

    t->freed = freed;
    return t;
}

static struct thing *make_or_not(int *freed, bool make)
{
    AUTO(thing_free) struct thing *t = thing_new(freed);

    return make ? TAKE(t) : NULL;
}

static void test_auto_frees_what_was_not_taken(void **state)
{
    struct thing *kept;
    int freed = 0;

    (void)state;
    assert_null(make_or_not(&freed, false));
    assert_int_equal(freed, 1);
    kept = make_or_not(&freed, true);
    assert_non_null(kept);
    assert_int_equal(freed, 1);
    assert_null(thing_free(kept));
    assert_int_equal(freed, 2);
}

static void test_allocations(void **state)
{
    AUTO(mem_free) char *zeros = xcalloc(3, 5);
    AUTO(mem_free) void *nothing = xmalloc(0);
    AUTO(mem_free) char *cut = xstrndup("abcdef", 3);
    AUTO(mem_free) char *whole = xstrndup("abc", 30);
    AUTO(mem_free) char *printed = xasprintf("%s-%d", "a", 1);
    AUTO(mem_free) int *grown = xreallocarray(NULL, 2, sizeof(*grown));

    (void)state;
    for (int i = 0; i < 15; i++)
        assert_int_equal(zeros[i], 0);
    assert_non_null(nothing);
    assert_string_equal(cut, "abc");
    assert_string_equal(whole, "abc");
    assert_string_equal(printed, "a-1");
    grown[1] = 7;
    grown = xreallocarray(grown, 2000, sizeof(*grown));
    assert_int_equal(grown[1], 7);
    grown = xreallocarray(grown, 0, sizeof(*grown)); /* no NULL, no double free */
    assert_non_null(grown);
}

static void test_armed_allocation_fails_once(void **state)
{
    void *p[4];

    (void)state;
    mem_fail_at(2);
    for (size_t i = 0; i < ARRAY_LEN(p); i++) {
        assert_int_equal(mem_has_failed(), i > 1);
        p[i] = i % 2 ? try_realloc(NULL, 8) : try_alloc(8);
    }
    assert_non_null(p[0]);
    assert_null(p[1]);
    assert_non_null(p[2]);
    assert_non_null(p[3]);
    mem_fail_at(1);
    mem_fail_at(0);
    free(p[1] = try_alloc(0));
    assert_non_null(p[1]);
    assert_false(mem_has_failed());
    for (size_t i = 0; i < ARRAY_LEN(p); i++)
        if (i != 1)
            free(p[i]);
}

/* Runs @what in a child of its own; true when the child dies of it. */
static bool dies(void (*what)(void))
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        int quiet = open("/dev/null", O_WRONLY);

        (void)dup2(quiet, STDERR_FILENO);
        what();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

static volatile size_t too_much = SIZE_MAX / 2;

static void overflow_a_product(void)
{
    free(xreallocarray(NULL, too_much, 3));
}

static void overflow_a_cleared_product(void)
{
    free(xcalloc(too_much, 3));
}

static void test_impossible_sizes_abort(void **state)
{
    (void)state;
    assert_true(dies(overflow_a_product));
    assert_true(dies(overflow_a_cleared_product));
}

int main(void)
{
    return TEST_RUN(T(test_auto_frees_what_was_not_taken), T(test_allocations),
                    T(test_armed_allocation_fails_once), T(test_impossible_sizes_abort));
}
