/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/alias_table.h"
#include "lib/base/test.h"

#include <errno.h>

enum { SLOTS = 5, HASHES = 400, STEPS = 60000 };

/* Random aliases of five workers against an array; each worker has one chain for its one node. */
static void random_operations_match_an_array(void **state)
{
    struct kv_mem mem = {.limit = SIZE_MAX};
    struct alias_table t = {0};
    uint32_t reference[SLOTS][HASHES] = {{0}}, head[SLOTS] = {0};
    uint64_t rng = 88172645463325252;

    (void)state;
    for (uint32_t step = 1; step <= STEPS; step++) {
        uint32_t slot, hash, cell, cells = 0;

        rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
        slot = (uint32_t)(rng % SLOTS), hash = (uint32_t)(rng >> 10) % HASHES;
        cell = (uint32_t)(rng >> 40) % ALIAS_CELLS;
        if (reference[slot][hash]) {
            alias_table_drop(&t, &mem, &head[slot], reference[slot][hash]);
            reference[slot][hash] = 0;
        } else {
            struct alias_run of = {.slot = slot, .node = slot + 7, .named = 0x5};
            int r = alias_table_put(&t, &mem, &head[slot], &of, cell, hash);

            assert_in_range(r, 0, ALIAS_TOO_MANY);
            reference[slot][hash] = alias_table_find(&t, slot, hash);
            assert_int_equal(reference[slot][hash] != 0, r == 0);
        }
        for (hash = 0; hash < HASHES; hash++) {
            assert_int_equal(alias_table_find(&t, slot, hash), reference[slot][hash]);
            if (reference[slot][hash])
                cells |= 1u << reference[slot][hash] % ALIAS_CELLS;
        }
        assert_int_equal(alias_table_cells(&t, head[slot]), cells);
        assert_true(!head[slot] || alias_run(&t, head[slot])->named == 0x5);
        if (step % 1000 == 0)
            alias_table_check(&t);
    }
    alias_table_done(&t, &mem);
    assert_int_equal(mem.used, 0);
}

static void memory_that_is_gone_changes_nothing(void **state)
{
    (void)state;
    for (size_t nth = 1;; nth++) {
        struct kv_mem mem = {.limit = SIZE_MAX};
        struct alias_table t = {0};
        struct alias_run of = {.slot = 1, .node = 2};
        uint32_t head = 0;
        bool failed;

        mem_fail_at(nth);
        for (uint32_t hash = 1; hash <= 100; hash++) {
            int r = alias_table_put(&t, &mem, &head, &of, hash % ALIAS_CELLS, hash);

            assert_true(r == 0 || (r == -ENOMEM && alias_table_find(&t, 1, hash) == 0));
        }
        failed = mem_has_failed();
        mem_fail_at(0);
        alias_table_check(&t);
        alias_table_done(&t, &mem);
        assert_int_equal(mem.used, 0);
        if (!failed)
            return;
    }
}

int main(void)
{
    return TEST_RUN(T(random_operations_match_an_array), T(memory_that_is_gone_changes_nothing));
}
