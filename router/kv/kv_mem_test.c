/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/kv_mem.h"
#include "lib/base/test.h"

enum { PIECES = 3000, STEPS = 100000, LARGEST = 20000 };

struct piece {
    uint8_t *p;
    size_t size;
};

static void fill(const struct piece *x, uint8_t with)
{
    memset(x->p, with, x->size);
}

static void assert_filled(const struct piece *x, uint8_t with)
{
    for (size_t i = 0; i < x->size; i++)
        assert_int_equal(x->p[i], with);
}

/* Pieces of all sizes come and go, and each keeps what was written to it. */
static void pieces_stay_apart(void **state)
{
    AUTO(mem_free) struct piece *all = xcalloc(PIECES, sizeof(*all));
    struct kv_mem m = {.limit = SIZE_MAX};
    uint64_t rng = 88172645463325252;
    size_t used = 0;

    (void)state;
    for (int step = 0; step < STEPS; step++) {
        size_t i;

        rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
        i = rng % PIECES;
        if (all[i].p) {
            assert_filled(&all[i], (uint8_t)i);
            used -= all[i].size;
            kv_free(&m, all[i].p, all[i].size);
            all[i].p = NULL;
        } else {
            all[i].size = 1 + (rng >> 40) % ((rng >> 20) % 8 ? 200 : LARGEST);
            all[i].p = kv_alloc(&m, all[i].size);
            assert_non_null(all[i].p);
            assert_int_equal((uintptr_t)all[i].p % 16, 0);
            assert_filled(&all[i], 0);
            fill(&all[i], (uint8_t)i);
            used += all[i].size;
        }
        assert_int_equal(m.used, used);
    }
    for (size_t i = 0; i < PIECES; i++)
        if (all[i].p)
            kv_free(&m, all[i].p, all[i].size);
    assert_int_equal(m.used, 0);
    for (size_t i = 0; i < KV_CLASSES; i++)
        assert_null(m.slabs[i]);
}

/* From a slab over pages to huge ones, and back. */
static void pieces_keep_what_they_hold_as_they_are_resized(void **state)
{
    static const size_t sizes[] = {40,      100,   3000,  5000,  9000, 300000,
                                   2000000, 70000, 69000, 90000, 10};
    struct kv_mem m = {.limit = SIZE_MAX};
    struct piece x = {0}, other;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        x.p = kv_resize(&m, x.p, x.size, sizes[i]);
        assert_non_null(x.p);
        assert_int_equal(m.used, sizes[i]);
        other = (struct piece){x.p, MIN(x.size, sizes[i])};
        assert_filled(&other, 7);
        x.size = sizes[i];
        fill(&x, 7);
    }
    kv_free(&m, x.p, x.size);
    assert_int_equal(m.used, 0);
}

static void what_cannot_grow_stays(void **state)
{
    struct kv_mem m = {.limit = 10000};
    struct piece x = {kv_alloc(&m, 6000), 6000};

    (void)state;
    fill(&x, 7);
    assert_null(kv_resize(&m, x.p, x.size, 10001));
    mem_fail_at(1);
    assert_null(kv_resize(&m, x.p, x.size, 9000));
    mem_fail_at(0);
    assert_int_equal(m.used, 6000);
    assert_filled(&x, 7);
    kv_free(&m, x.p, x.size);
}

/* A large table's pages are for kv_alloc_page(), as many as a quarter of what is in use. */
static void pages_of_tables_are_used_again(void **state)
{
    enum { N = 16 };
    struct kv_mem m = {.limit = 2 * N * (size_t)KV_PAGE};
    void *table = kv_alloc(&m, (size_t)N * KV_PAGE), *pages[N + 1];

    (void)state;
    for (size_t i = 0; i < N; i++) {
        pages[i] = kv_alloc_page(&m);
        assert_non_null(pages[i]);
    }
    assert_null(kv_alloc_page(&m));
    kv_free(&m, table, (size_t)N * KV_PAGE);
    assert_int_equal(m.n_spare, N / 4);
    assert_int_equal(m.used, (size_t)N * KV_PAGE);
    pages[N] = kv_alloc_page(&m);
    assert_non_null(pages[N]);
    assert_int_equal(m.n_spare, N / 4 - 1);
    /* The budget is not passed for what is spare. */
    table = kv_alloc(&m, (size_t)(N - 1) * KV_PAGE);
    assert_non_null(table);
    assert_int_equal(m.n_spare, 0);
    kv_free(&m, table, (size_t)(N - 1) * KV_PAGE);
    assert_int_equal(m.n_spare, (N + 1) / 4);
    for (size_t i = 0; i <= N; i++)
        kv_free(&m, pages[i], KV_PAGE);
    assert_int_equal(m.used, 0);
    assert_int_equal(m.n_spare, 0);
}

static void the_budget_is_never_passed(void **state)
{
    struct kv_mem m = {.limit = 1000};
    void *a = kv_alloc(&m, 600), *b;

    (void)state;
    assert_non_null(a);
    assert_null(kv_alloc(&m, 401));
    b = kv_alloc(&m, 400);
    assert_non_null(b);
    assert_null(kv_alloc(&m, 1));
    kv_free(&m, a, 600);
    kv_free(&m, b, 400);
    assert_int_equal(m.used, 0);
}

static void memory_that_is_gone_is_said(void **state)
{
    struct kv_mem m = {.limit = SIZE_MAX};

    (void)state;
    mem_fail_at(1);
    assert_null(kv_alloc(&m, 100));
    mem_fail_at(0);
    assert_int_equal(m.used, 0);
}

int main(void)
{
    return TEST_RUN(T(pieces_stay_apart), T(pieces_keep_what_they_hold_as_they_are_resized),
                    T(what_cannot_grow_stays), T(pages_of_tables_are_used_again),
                    T(the_budget_is_never_passed), T(memory_that_is_gone_is_said));
}
