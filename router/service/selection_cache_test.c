/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/selection_cache.h"

#include "lib/base/test.h"

static struct selection_cache *cache_of(uint64_t ttl_ms, size_t entries, size_t bytes)
{
    return selection_cache_new(&(struct selection_cache_conf){ttl_ms, entries, bytes});
}

static void put(struct selection_cache *c, const char *key, uint64_t worker, size_t n_blocks,
                uint64_t now_ms)
{
    uint64_t hashes[64];

    for (size_t i = 0; i < n_blocks; i++)
        hashes[i] = worker + i;
    selection_cache_put(
        c, str_from(key),
        &(struct selection){
            {worker, 3}, hashes, hashes, n_blocks, (uint32_t)n_blocks * 4, str_from(key)},
        now_ms);
    memset(hashes, 0, sizeof(hashes)); /* a copy must have been made */
}

static const struct selection *find(struct selection_cache *c, const char *key, uint64_t now_ms)
{
    return selection_cache_find(c, str_from(key), now_ms);
}

static void test_keeps_what_was_put_until_its_time_is_over(void **state)
{
    AUTO(selection_cache_free) struct selection_cache *c = cache_of(100, 10, 1 << 20);
    const struct selection *s;

    (void)state;
    put(c, "a", 7, 5, 1000);
    s = find(c, "a", 1099);
    assert_true(str_is(s->session, "a"));
    assert_non_null(s);
    assert_int_equal(s->worker.worker_id, 7);
    assert_int_equal(s->worker.dp_rank, 3);
    assert_int_equal(s->isl, 20);
    assert_int_equal(s->local[4], 11);
    assert_int_equal(s->sequence[0], 7);
    assert_null(find(c, "b", 1099));
    assert_null(find(c, "a", 1100));
    assert_int_equal(selection_cache_stats(c).expired, 1);
    assert_int_equal(selection_cache_stats(c).bytes, 0);
}

static void test_a_new_one_replaces_and_a_removed_one_is_gone(void **state)
{
    AUTO(selection_cache_free) struct selection_cache *c = cache_of(100, 10, 1 << 20);

    (void)state;
    put(c, "a", 1, 1, 0);
    put(c, "a", 2, 0, 50);
    assert_int_equal(selection_cache_stats(c).entries, 1);
    assert_int_equal(find(c, "a", 120)->worker.worker_id, 2);
    selection_cache_remove(c, STR("a"));
    selection_cache_remove(c, STR("a"));
    assert_null(find(c, "a", 120));
}

static void test_the_oldest_go_when_a_bound_is_hit(void **state)
{
    AUTO(selection_cache_free) struct selection_cache *few = cache_of(1000, 2, 1 << 20);
    AUTO(selection_cache_free) struct selection_cache *small = cache_of(1000, 100, 2000);

    (void)state;
    put(few, "a", 1, 1, 0);
    put(few, "b", 2, 1, 0);
    put(few, "c", 3, 1, 0);
    assert_null(find(few, "a", 1));
    assert_non_null(find(few, "b", 1));
    assert_int_equal(selection_cache_stats(few).evicted, 1);

    put(small, "a", 1, 40, 0);
    put(small, "b", 2, 40, 0);
    put(small, "c", 3, 40, 0);
    assert_null(find(small, "a", 1));
    assert_non_null(find(small, "c", 1));
    assert_true(selection_cache_stats(small).bytes <= 2000);
    for (int i = 0; i < 1000; i++) {
        AUTO(mem_free) char *key = xasprintf("k%d", i);

        put(small, key, 1, (size_t)i % 64, 1);
        assert_true(selection_cache_stats(small).bytes <= 2000);
    }
}

static void test_one_that_is_too_large_is_not_kept(void **state)
{
    AUTO(selection_cache_free) struct selection_cache *c = cache_of(1000, 10, 300);

    (void)state;
    put(c, "a", 1, 60, 0);
    assert_null(find(c, "a", 0));
    assert_int_equal(selection_cache_stats(c).evicted, 1);
}

int main(void)
{
    return TEST_RUN(T(test_keeps_what_was_put_until_its_time_is_over),
                    T(test_a_new_one_replaces_and_a_removed_one_is_gone),
                    T(test_the_oldest_go_when_a_bound_is_hit),
                    T(test_one_that_is_too_large_is_not_kept));
}
