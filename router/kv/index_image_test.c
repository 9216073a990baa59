/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/index_image.h"
#include "lib/base/test.h"

#include <errno.h>
#include <pthread.h>

#include "router/kv/prefix_index.h"

enum { WORKERS = 12, LETTERS = 3, DEPTH = 40, PATHS = 60, ALL_SLOTS = 65536 };

static uint64_t rng_state = 0x243F6A8885A308D3;

static uint64_t rng(uint64_t below)
{
    rng_state ^= rng_state << 13, rng_state ^= rng_state >> 7, rng_state ^= rng_state << 17;
    return rng_state % below;
}

/* Block at @depth of a path: paths share their first blocks, the lower the number the fewer. */
static uint64_t block_at(uint64_t path, uint64_t depth)
{
    return depth < path % 30 ? depth : path * DEPTH + depth;
}

/* Some workers' engines have hashes of their own. */
static uint64_t hash_of(uint32_t worker, uint64_t block)
{
    return (block + 1) * UINT64_C(0x9E3779B97F4A7C15) + (worker % 4 == 3 ? worker : 0);
}

static void store_path(struct prefix_index *ix, uint32_t worker, uint64_t path, size_t n)
{
    struct prefix_block blocks[DEPTH];

    for (size_t i = 0; i < n; i++)
        blocks[i] = (struct prefix_block){hash_of(worker, block_at(path, i)), block_at(path, i)};
    assert_int_equal(prefix_index_store(ix, worker, NULL, blocks, n), 0);
}

static struct prefix_index *some_index(void)
{
    struct prefix_index *ix = prefix_index_new(SIZE_MAX);

    for (int i = 0; i < 400; i++)
        store_path(ix, (uint32_t)rng(WORKERS), rng(PATHS), 1 + rng(DEPTH));
    for (int i = 0; i < 600; i++) { /* holes, and paths whose start nobody holds */
        uint32_t w = (uint32_t)rng(WORKERS);
        uint64_t hash = hash_of(w, block_at(rng(PATHS), rng(DEPTH)));

        (void)prefix_index_remove(ix, w, &hash, 1);
    }
    return ix;
}

static void image_of(struct prefix_index *ix, struct buf *out)
{
    struct index_image_head head = {.generation = 7, .block_size = 16, .owner = STR("a/b/c")};
    struct index_image_worker workers[WORKERS];
    struct index_image_writer w;

    for (uint32_t i = 0; i < WORKERS; i++)
        workers[i] = (struct index_image_worker){
            .worker_id = 1000 + i, .dp_rank = i % 2, .slot = i, .next_event = 50 + i};
    index_image_begin(&w, &head, out);
    while (index_image_nodes(&w, ix, out))
        continue;
    index_image_end(&w, workers, WORKERS, out);
}

static uint32_t *slots_to(uint32_t first, uint32_t n)
{
    uint32_t *slots = xcalloc(ALL_SLOTS, sizeof(*slots));

    for (uint32_t i = 0; i < ALL_SLOTS; i++)
        slots[i] = i < n ? first + i : WORKER_SLOT_NONE;
    return slots;
}

static void expect_same(struct prefix_index *a, struct prefix_index *b, uint32_t shift, uint32_t n)
{
    for (uint64_t path = 0; path < PATHS; path++) {
        uint64_t local[DEPTH];
        uint32_t one[WORKERS], two[WORKERS + 8];

        for (size_t i = 0; i < DEPTH; i++)
            local[i] = block_at(path, i);
        (void)prefix_index_match(a, local, DEPTH, one, WORKERS);
        (void)prefix_index_match(b, local, DEPTH, two, WORKERS + 8);
        for (uint32_t w = 0; w < WORKERS; w++)
            assert_int_equal(w < n ? one[w] : 0, two[w + shift]);
    }
    for (uint32_t w = 0; w < n; w++)
        assert_int_equal(prefix_index_held(a, w), prefix_index_held(b, w + shift));
}

static void what_was_written_is_restored(void **state)
{
    AUTO(prefix_index_free) struct prefix_index *ix = some_index();
    AUTO(prefix_index_free) struct prefix_index *all = prefix_index_new(SIZE_MAX);
    AUTO(prefix_index_free) struct prefix_index *some = prefix_index_new(SIZE_MAX);
    AUTO(buf_done) struct buf image = BUF_NULL;
    AUTO(mem_free) uint32_t *to_all = slots_to(5, WORKERS), *to_some = slots_to(0, 3);
    struct index_image im;
    struct err e;

    (void)state;
    image_of(ix, &image);
    EXPECT_OK(index_image_open(&im, buf_str(&image), &e), &e);
    assert_int_equal(im.head.generation, 7);
    assert_int_equal(im.head.block_size, 16);
    assert_true(str_eq(im.head.owner, STR("a/b/c")));
    assert_int_equal(im.n_workers, WORKERS);
    assert_int_equal(im.workers[3].worker_id, 1003);
    assert_int_equal(im.workers[3].next_event, 53);

    assert_int_equal(index_image_restore(&im, all, to_all), 0);
    prefix_index_check(all);
    expect_same(ix, all, 5, WORKERS);
    assert_int_equal(prefix_index_stats(all).nodes, prefix_index_stats(ix).nodes);

    /* Workers that are not there any more leave nothing behind, not even empty blocks. */
    assert_int_equal(index_image_restore(&im, some, to_some), 0);
    prefix_index_check(some);
    expect_same(ix, some, 0, 3);
    for (uint32_t w = 0; w < 3; w++)
        prefix_index_clear(some, w);
    assert_int_equal(prefix_index_stats(some).nodes, 0);
    /* Every hash still means its block. */
    for (uint64_t path = 0; path < PATHS; path++)
        for (uint64_t i = 0; i < DEPTH; i++)
            for (uint32_t w = 0; w < WORKERS; w++) {
                uint64_t hash = hash_of(w, block_at(path, i));

                assert_int_equal(prefix_index_remove(ix, w, &hash, 1),
                                 prefix_index_remove(all, w + 5, &hash, 1));
            }
    prefix_index_check(all);
    assert_int_equal(prefix_index_stats(all).nodes, 0);
}

/* Whatever byte is another, the image is refused, and so is each shorter one. */
static void a_damaged_image_is_refused(void **state)
{
    AUTO(prefix_index_free) struct prefix_index *ix = prefix_index_new(SIZE_MAX);
    AUTO(buf_done) struct buf image = BUF_NULL;
    struct index_image im = {.n_records = 77};
    struct err e;

    (void)state;
    store_path(ix, 0, 1, 5);
    store_path(ix, 3, 1, 5);
    image_of(ix, &image);
    for (size_t i = 0; i < image.len; i++) {
        buf_data(&image)[i] ^= 0x10;
        assert_int_equal(index_image_open(&im, buf_str(&image), &e), -EBADMSG);
        buf_data(&image)[i] ^= 0x10;
    }
    for (size_t n = 0; n < image.len; n++)
        assert_int_equal(index_image_open(&im, str_slice(buf_data(&image), n), &e), -EBADMSG);
    assert_int_equal(im.n_records, 77);
    EXPECT_OK(index_image_open(&im, buf_str(&image), &e), &e);
}

static void memory_may_end_while_restoring(void **state)
{
    AUTO(prefix_index_free) struct prefix_index *ix = some_index();
    AUTO(buf_done) struct buf image = BUF_NULL;
    AUTO(mem_free) uint32_t *slots = slots_to(0, WORKERS);
    struct index_image im;
    struct err e;
    bool failed = true;

    (void)state;
    image_of(ix, &image);
    EXPECT_OK(index_image_open(&im, buf_str(&image), &e), &e);
    for (size_t nth = 1; failed; nth++) {
        AUTO(prefix_index_free) struct prefix_index *other = prefix_index_new(SIZE_MAX);
        int r;

        mem_fail_at(nth);
        r = index_image_restore(&im, other, slots);
        failed = mem_has_failed();
        mem_fail_at(0);
        assert_true(r == 0 || (failed && r == -ENOMEM));
        prefix_index_check(other);
        for (uint32_t w = 0; w < WORKERS; w++)
            prefix_index_clear(other, w);
        assert_int_equal(prefix_index_stats(other).nodes, 0);
    }
}

/* --- an index that changes meanwhile ------------------------------------------------------------
 */

enum { ROUNDS = 20000, LOG = ROUNDS };

struct world {
    struct prefix_index *ix;
    struct change {
        uint64_t path;
        size_t n;
        bool stored;
    } log[LOG];
};

static void change_apply(struct prefix_index *ix, const struct change *c)
{
    uint64_t hashes[DEPTH];

    if (c->stored) {
        store_path(ix, 1, c->path, c->n);
        return;
    }
    for (size_t i = 0; i < c->n; i++)
        hashes[i] = hash_of(1, block_at(c->path, DEPTH - 1 - i));
    (void)prefix_index_remove(ix, 1, hashes, c->n);
}

static void *change_all(void *arg)
{
    struct world *w = arg;

    for (int i = 0; i < ROUNDS; i++)
        change_apply(w->ix, &w->log[i]);
    return NULL;
}

/* The image of a moving index, and then the worker's events since before it: the worker's state. */
static void events_complete_an_image_of_a_moving_index(void **state)
{
    AUTO(mem_free) struct world *w = xcalloc(1, sizeof(*w));
    AUTO(prefix_index_free) struct prefix_index *restored = prefix_index_new(SIZE_MAX);
    AUTO(buf_done) struct buf image = BUF_NULL;
    AUTO(mem_free) uint32_t *slots = slots_to(0, WORKERS);
    struct index_image im;
    pthread_t thread;
    struct err e;

    (void)state;
    w->ix = some_index();
    for (int i = 0; i < ROUNDS; i++)
        w->log[i] = (struct change){rng(PATHS), 1 + rng(DEPTH), rng(2)};
    assert_int_equal(pthread_create(&thread, NULL, change_all, w), 0);
    image_of(w->ix, &image);
    (void)pthread_join(thread, NULL);
    EXPECT_OK(index_image_open(&im, buf_str(&image), &e), &e);
    assert_int_equal(index_image_restore(&im, restored, slots), 0);
    prefix_index_check(restored);
    for (int i = 0; i < ROUNDS; i++)
        change_apply(restored, &w->log[i]);
    prefix_index_check(restored);
    expect_same(w->ix, restored, 0, WORKERS);
    prefix_index_free(w->ix);
}

int main(void)
{
    return TEST_RUN(T(what_was_written_is_restored), T(a_damaged_image_is_refused),
                    T(memory_may_end_while_restoring),
                    T(events_complete_an_image_of_a_moving_index));
}
