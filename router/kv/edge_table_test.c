/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/edge_table.h"
#include "lib/base/test.h"

enum { PARENTS = 7, LABELS = 50, STEPS = 50000 };

/* Random operations against a plain matrix; the table grows, shrinks and empties on the way. */
static void random_operations_match_a_matrix(void **state)
{
    struct edge_table t = {0};
    struct kv_mem mem = {.limit = SIZE_MAX};
    uint32_t children[PARENTS][LABELS] = {{0}};
    uint64_t rng = 88172645463325252;
    size_t len = 0;

    (void)state;
    for (uint32_t step = 1; step <= STEPS; step++) {
        uint32_t parent, label, fill = step / 10000 % 2 ? 1 : 3;

        rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
        parent = (uint32_t)(rng % PARENTS);
        label = (uint32_t)(rng >> 20) % LABELS;
        if ((rng >> 40) % 4 < fill) {
            assert_true(edge_table_reserve(&t, &mem));
            edge_table_put(&t, parent, label, step);
            len += children[parent][label] == 0;
            children[parent][label] = step;
        } else if (children[parent][label]) {
            edge_table_remove(&t, &mem, parent, label);
            len--;
            children[parent][label] = 0;
        }
        assert_int_equal(t.len, len);
        assert_int_equal(edge_table_find(&t, parent, label), children[parent][label]);
        for (uint32_t i = 0; step % 100 == 0 && i < PARENTS * LABELS; i++)
            assert_int_equal(edge_table_find(&t, i / LABELS, i % LABELS),
                             children[i / LABELS][i % LABELS]);
    }
    edge_table_done(&t, &mem);
    assert_int_equal(mem.used, 0);
}

static void an_empty_table_holds_no_memory(void **state)
{
    struct edge_table t = {0};
    struct kv_mem mem = {.limit = SIZE_MAX};

    (void)state;
    for (uint32_t i = 1; i <= 1000; i++) {
        assert_true(edge_table_reserve(&t, &mem));
        edge_table_put(&t, 0, i, i);
    }
    for (uint32_t i = 1; i <= 1000; i++)
        edge_table_remove(&t, &mem, 0, i);
    assert_int_equal(edge_table_bytes(&t), 0);
}

int main(void)
{
    return TEST_RUN(T(random_operations_match_a_matrix), T(an_empty_table_holds_no_memory));
}
