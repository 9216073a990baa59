/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/prefix_index.h"
#include "lib/base/test.h"

#include <pthread.h>

#define B(ext, loc) ((struct prefix_block){(ext), (loc)})

static void scores_count_leading_blocks_without_a_gap(void **state)
{
    AUTO(prefix_index_free) struct prefix_index *ix = prefix_index_new(1000);
    const struct prefix_block abc[] = {B(1, 10), B(2, 20), B(3, 30)};
    const uint64_t prompt[] = {10, 20, 30, 40};
    uint32_t scores[3];

    (void)state;
    assert_int_equal(prefix_index_store(ix, 0, NULL, abc, 3), 0);
    assert_int_equal(prefix_index_store(ix, 1, NULL, abc, 3), 0);
    assert_int_equal(prefix_index_match(ix, prompt, 4, scores, 3), 3);
    assert_int_equal(scores[0], 3);
    assert_int_equal(scores[2], 0);

    /* Worker 1 loses the middle block: what lies behind it cannot be used. */
    assert_int_equal(prefix_index_remove(ix, 1, (uint64_t[]){2}, 1), 0);
    assert_int_equal(prefix_index_match(ix, prompt, 4, scores, 3), 3);
    assert_int_equal(scores[0], 3);
    assert_int_equal(scores[1], 1);
    prefix_index_check(ix);
}

static void an_orphan_never_enters(void **state)
{
    AUTO(prefix_index_free) struct prefix_index *ix = prefix_index_new(1000);
    uint64_t parent = 99;

    (void)state;
    assert_int_equal(prefix_index_store(ix, 0, &parent, &B(1, 10), 1), PREFIX_NO_PARENT);
    assert_int_equal(prefix_index_stats(ix).entries, 0);
    assert_int_equal(prefix_index_stats(ix).orphans, 1);
    /* A parent that another worker knows by that hash is not this worker's. */
    assert_int_equal(prefix_index_store(ix, 1, NULL, &B(99, 5), 1), 0);
    assert_int_equal(prefix_index_store(ix, 0, &parent, &B(1, 10), 1), PREFIX_NO_PARENT);
}

static void stores_and_removes_are_idempotent(void **state)
{
    AUTO(prefix_index_free) struct prefix_index *ix = prefix_index_new(1000);
    const struct prefix_block ab[] = {B(1, 10), B(2, 20)};

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(prefix_index_store(ix, 0, NULL, ab, 2), 0);
    assert_int_equal(prefix_index_held(ix, 0), 2);
    assert_int_equal(prefix_index_remove(ix, 0, (uint64_t[]){1, 2}, 2), 0);
    assert_int_equal(prefix_index_remove(ix, 0, (uint64_t[]){1, 2}, 2), PREFIX_UNKNOWN);
    assert_int_equal(prefix_index_stats(ix).nodes, 0);
    prefix_index_check(ix);
}

static void one_block_under_two_hashes_stays_until_both_are_removed(void **state)
{
    AUTO(prefix_index_free) struct prefix_index *ix = prefix_index_new(1000);
    uint32_t score;

    (void)state;
    assert_int_equal(prefix_index_store(ix, 0, NULL, &B(1, 10), 1), 0);
    assert_int_equal(prefix_index_store(ix, 0, NULL, &B(2, 10), 1), 0);
    assert_int_equal(prefix_index_remove(ix, 0, (uint64_t[]){1}, 1), 0);
    assert_int_equal(prefix_index_match(ix, (uint64_t[]){10}, 1, &score, 1), 1);
    assert_int_equal(prefix_index_remove(ix, 0, (uint64_t[]){2}, 1), 0);
    assert_int_equal(prefix_index_match(ix, (uint64_t[]){10}, 1, &score, 1), 0);
    prefix_index_check(ix);
}

static void a_block_that_follows_itself_is_refused(void **state)
{
    AUTO(prefix_index_free) struct prefix_index *ix = prefix_index_new(1000);
    uint64_t one = 1;

    (void)state;
    assert_int_equal(
        prefix_index_store(ix, 0, NULL, (struct prefix_block[]){B(1, 10), B(1, 20)}, 2),
        PREFIX_INVALID);
    assert_int_equal(prefix_index_held(ix, 0), 1);
    assert_int_equal(prefix_index_store(ix, 0, &one, &B(1, 30), 1), PREFIX_INVALID);
    prefix_index_check(ix);
}

/*
 * Prompts that share nothing, one event and one node each. They are short, as a budget counts whole
 * segments of nodes: it takes many prompts to fill one, but it need not take many blocks.
 */
enum { PROMPT_BLOCKS = 4 };

static void store_prompts(struct prefix_index *ix, uint64_t first, uint64_t n, uint32_t slot)
{
    for (uint64_t p = first; p < first + n; p++) {
        struct prefix_block blocks[PROMPT_BLOCKS];

        for (uint64_t i = 0; i < PROMPT_BLOCKS; i++)
            blocks[i] = B(p * PROMPT_BLOCKS + i + 1,
                          (p * PROMPT_BLOCKS + i) * UINT64_C(0x9E3779B97F4A7C15));
        assert_int_equal(prefix_index_store(ix, slot, NULL, blocks, PROMPT_BLOCKS), 0);
    }
}

static size_t match_prompt(struct prefix_index *ix, uint64_t p)
{
    uint64_t local[PROMPT_BLOCKS];
    uint32_t scores[2];

    for (uint64_t i = 0; i < PROMPT_BLOCKS; i++)
        local[i] = (p * PROMPT_BLOCKS + i) * UINT64_C(0x9E3779B97F4A7C15);
    return prefix_index_match(ix, local, PROMPT_BLOCKS, scores, 2);
}

/* The budget holds whatever is stored; what was used lately stays, and the old goes. */
static void the_budget_evicts_the_coldest(void **state)
{
    enum { MANY = 60000, LATE = 1000 };
    AUTO(prefix_index_free) struct prefix_index *ix = prefix_index_new(8 << 20);
    size_t cold = 0, late = 0;
    uint64_t parent = 5;

    (void)state;
    for (uint64_t p = 0; p < MANY; p += 100) {
        store_prompts(ix, p, 100, (uint32_t)(p / 100 % 2));
        assert_int_equal(match_prompt(ix, 0), PROMPT_BLOCKS); /* in use all the time */
        assert_true(prefix_index_stats(ix).bytes <= 8 << 20);
    }
    prefix_index_check(ix);
    assert_true(prefix_index_stats(ix).evicted > MANY * PROMPT_BLOCKS / 2);
    assert_int_equal(prefix_index_stats(ix).refused, 0);
    for (uint64_t p = 1; p <= LATE; p++) {
        cold += match_prompt(ix, p) > 0;
        late += match_prompt(ix, MANY - p) > 0;
    }
    assert_in_range(cold, 0, LATE / 100);
    assert_in_range(late, LATE * 9 / 10, LATE);
    /* Not an orphan: a resync would evict others, and so on. */
    parent = 101 * PROMPT_BLOCKS;
    assert_int_equal(prefix_index_store(ix, 1, &parent, &B(1, 10), 1), PREFIX_FULL);
    assert_int_equal(prefix_index_stats(ix).orphans, 0);
    prefix_index_clear(ix, 0);
    prefix_index_clear(ix, 1);
    assert_int_equal(prefix_index_stats(ix).entries, 0);
    assert_int_equal(prefix_index_store(ix, 1, &parent, &B(1, 10), 1), PREFIX_NO_PARENT);
}

/* The first node lies behind a segment of which there is only the root. */
static void the_first_one_may_go_too(void **state)
{
    AUTO(prefix_index_free) struct prefix_index *ix = prefix_index_new(8 << 20);

    (void)state;
    for (uint64_t p = 0; prefix_index_stats(ix).evicted < 100 * PROMPT_BLOCKS; p += 100)
        store_prompts(ix, p, 100, 0);
    assert_int_equal(match_prompt(ix, 0), 0);
}

/* A lookup notes what it used at its end: where that goes, what is above it was used then. */
static void what_was_used_through_a_leaf_is_not_cold(void **state)
{
    enum { LONG = 20, NODE = 16, EARLY = 5000, SOME = 100 };
    AUTO(prefix_index_free) struct prefix_index *ix = prefix_index_new(8 << 20);
    uint64_t local[LONG], gone[LONG - NODE];
    struct prefix_block blocks[LONG];
    uint32_t scores[2];

    (void)state;
    for (uint64_t i = 0; i < LONG; i++) {
        local[i] = i + 1;
        blocks[i] = B((i + 1) << 40, local[i]);
    }
    for (uint64_t i = 0; i < LONG - NODE; i++)
        gone[i] = blocks[LONG - 1 - i].external;
    assert_int_equal(prefix_index_store(ix, 1, NULL, blocks, LONG), 0);
    store_prompts(ix, 0, EARLY, 0);
    assert_int_equal(prefix_index_match(ix, local, LONG, scores, 2), LONG);
    assert_int_equal(prefix_index_remove(ix, 1, gone, LONG - NODE), 0);
    for (uint64_t p = EARLY; prefix_index_stats(ix).evicted < EARLY; p += SOME)
        store_prompts(ix, p, SOME, 0);
    assert_int_equal(prefix_index_held(ix, 1), NODE);
    prefix_index_check(ix);
}

/* One chain alone: it may not evict itself. */
static void a_chain_above_the_budget_is_refused(void **state)
{
    enum { DEPTH = 500000 };
    AUTO(prefix_index_free) struct prefix_index *ix = prefix_index_new(8 << 20);
    AUTO(mem_free) struct prefix_block *chain = xcalloc(DEPTH, sizeof(*chain));

    (void)state;
    for (size_t i = 0; i < DEPTH; i++)
        chain[i] = B(i + 1, i * 7);
    assert_int_equal(prefix_index_store(ix, 0, NULL, chain, DEPTH), PREFIX_FULL);
    assert_in_range(prefix_index_held(ix, 0), 10000, DEPTH - 1);
    assert_int_equal(prefix_index_stats(ix).refused, 1);
    prefix_index_check(ix);
}

static void bytes_are_accounted_by_worker(void **state)
{
    AUTO(prefix_index_free) struct prefix_index *ix = prefix_index_new(SIZE_MAX);
    size_t one, two;

    (void)state;
    store_prompts(ix, 0, 3000, 0);
    store_prompts(ix, 3000, 1000, 1);
    one = prefix_index_bytes_of(ix, 0);
    two = prefix_index_bytes_of(ix, 1);
    assert_in_range(one, two * 5 / 2, two * 7 / 2);
    assert_in_range(one + two, prefix_index_stats(ix).bytes * 99 / 100,
                    prefix_index_stats(ix).bytes);
    assert_int_equal(prefix_index_bytes_of(ix, 7), 0);
}

/* Whichever allocation fails, the index stays whole, and what it refused can be stored later. */
static void allocations_that_fail_leave_it_whole(void **state)
{
    enum { CHAIN = 40, CHAINS = 12 };

    (void)state;
    for (size_t nth = 1;; nth++) {
        AUTO(prefix_index_free) struct prefix_index *ix = prefix_index_new(SIZE_MAX);
        struct prefix_block chain[CHAIN];
        bool failed;

        mem_fail_at(nth);
        for (uint64_t c = 0; c < CHAINS; c++) {
            /* Shared starts, branches, hashes that differ, many holders. */
            for (uint64_t i = 0; i < CHAIN; i++)
                chain[i] =
                    B((i < c ? i : c * CHAIN + i) * (1 + c / 8) + 1, i < c ? i : c * CHAIN + i);
            for (uint32_t half = 0; half < 2; half++)
                assert_in_range(prefix_index_store(ix, (uint32_t)c + half * 300, NULL, chain,
                                                   CHAIN / (1 + half)),
                                0, PREFIX_FULL);
        }
        failed = mem_has_failed();
        mem_fail_at(0);
        prefix_index_check(ix);
        for (uint32_t slot = 0; slot < 300 + CHAINS; slot++)
            prefix_index_clear(ix, slot);
        prefix_index_check(ix);
        assert_int_equal(prefix_index_stats(ix).nodes, 0);
        if (!failed) {
            assert_true(nth > 20);
            return;
        }
    }
}

static void a_chain_of_a_million_blocks_needs_no_stack(void **state)
{
    enum { DEPTH = 1000000 };
    AUTO(prefix_index_free) struct prefix_index *ix = prefix_index_new(SIZE_MAX);
    AUTO(mem_free) struct prefix_block *chain = xcalloc(DEPTH, sizeof(*chain));

    (void)state;
    for (size_t i = 0; i < DEPTH; i++)
        chain[i] = B(i + 1, i * 7);
    assert_int_equal(prefix_index_store(ix, 0, NULL, chain, DEPTH), 0);
    prefix_index_clear(ix, 0);
    assert_int_equal(prefix_index_stats(ix).nodes, 0);
}

/*
 * Oracle: a plain set of (worker, context) pairs, where a context is the path of local hashes
 * written as a number. Trees of depth 5 over 3 letters and 4 workers: everything collides all the
 * time.
 */
enum { WORKERS = 4, LETTERS = 3, DEPTH = 5, CONTEXTS = 1024 };

struct oracle {
    bool has[WORKERS][CONTEXTS];
};

/* Context of a path: letters 1..3 as base-4 digits, so that every prefix has another number. */
static uint64_t context_of(const uint64_t *path, size_t n)
{
    uint64_t c = 0;

    for (size_t i = 0; i < n; i++)
        c = c * 4 + path[i];
    return c;
}

static uint64_t rng_state = 0x243F6A8885A308D3;

static uint64_t rng(uint64_t below)
{
    rng_state ^= rng_state << 13, rng_state ^= rng_state >> 7, rng_state ^= rng_state << 17;
    return rng_state % below;
}

static void random_path(uint64_t *path)
{
    for (size_t i = 0; i < DEPTH; i++)
        path[i] = 1 + rng(LETTERS);
}

static void oracle_step(struct prefix_index *ix, struct oracle *o)
{
    uint64_t path[DEPTH];
    uint32_t w = (uint32_t)rng(WORKERS);
    size_t depth = 1 + rng(DEPTH);
    uint64_t context, parent;

    random_path(path);
    context = context_of(path, depth);
    parent = context / 4;
    switch (rng(10)) {
    case 0: /* the engine dropped everything */
        if (rng(50) == 0) {
            prefix_index_clear(ix, w);
            memset(o->has[w], 0, sizeof(o->has[w]));
        }
        break;
    case 1 ... 3: { /* eviction of one block, children or not */
        int want = o->has[w][context] ? 0 : PREFIX_UNKNOWN;

        assert_int_equal(prefix_index_remove(ix, w, &context, 1), want);
        o->has[w][context] = false;
        break;
    }
    default: { /* one block below a parent that may be missing */
        bool known = depth == 1 || o->has[w][parent];
        struct prefix_block block = B(context, path[depth - 1]);

        assert_int_equal(prefix_index_store(ix, w, depth == 1 ? NULL : &parent, &block, 1),
                         known ? 0 : PREFIX_NO_PARENT);
        o->has[w][context] |= known;
    }
    }
}

static void random_operations_match_sets(void **state)
{
    AUTO(prefix_index_free) struct prefix_index *ix = prefix_index_new(SIZE_MAX);
    struct oracle *o = xcalloc(1, sizeof(*o));

    (void)state;
    for (int step = 0; step < TEST_STEPS(100000); step++) {
        uint32_t scores[WORKERS];
        uint64_t path[DEPTH];

        oracle_step(ix, o);
        random_path(path);
        (void)prefix_index_match(ix, path, DEPTH, scores, WORKERS);
        for (uint32_t w = 0; w < WORKERS; w++) {
            uint32_t want = 0;

            while (want < DEPTH && o->has[w][context_of(path, want + 1)])
                want++;
            assert_int_equal(scores[w], want);
        }
        if (step % 1000 == 0)
            prefix_index_check(ix);
    }
    for (uint32_t w = 0; w < WORKERS; w++)
        prefix_index_clear(ix, w);
    assert_int_equal(prefix_index_stats(ix).nodes, 0);
    free(o);
}

/*
 * The same with long chains, which span several nodes, part in their middles and at their ends, and
 * are lost in pieces; with enough workers that holders leave their nodes; with engines that know a
 * block by two hashes, or use a hash anew for another block. A path follows the trunk of its family
 * down to where it turns off.
 */
enum {
    FAMILIES = 2,
    TURNS = 6,
    VARIANTS = 2,
    LONG = 50,
    FLEET = 40,
    PATHS = FAMILIES * TURNS * VARIANTS,
    BLOCKS_ALL = LONG * (FAMILIES + PATHS),
    HASHES = 2 * BLOCKS_ALL,
};

struct fleet {
    uint16_t meaning[FLEET][HASHES];   /* block + 1 by hash, 0 = not held */
    uint16_t count[FLEET][BLOCKS_ALL]; /* hashes that mean the block */
};

/* Number of the block at @depth of the path; paths that agree so far have the same. */
static uint64_t block_of(size_t path, size_t depth)
{
    static const size_t turns[TURNS] = {1, 15, 16, 17, 31, 40};
    size_t family = path % FAMILIES, turn = turns[path / FAMILIES % TURNS];

    return depth < turn ? family * LONG + depth : (FAMILIES + path) * LONG + depth;
}

static void fleet_forget(struct fleet *o, uint32_t w, uint64_t hash)
{
    if (o->meaning[w][hash])
        o->count[w][o->meaning[w][hash] - 1]--;
    o->meaning[w][hash] = 0;
}

static uint64_t some_hash_of(uint64_t block)
{
    return rng(200) ? block * 2 + (rng(8) == 0) : rng(HASHES);
}

static void fleet_store(struct prefix_index *ix, struct fleet *o, uint32_t w)
{
    struct prefix_block blocks[LONG];
    size_t path = rng(PATHS), from = rng(3) ? 0 : rng(LONG), n = 1 + rng(LONG - from);
    uint64_t parent = from ? some_hash_of(block_of(path, from - 1)) : 0;
    bool known = from == 0 || o->meaning[w][parent] == block_of(path, from - 1) + 1;

    if (from && !known && o->meaning[w][parent])
        return; /* the chain would go on below another block: a path that the oracle has not */
    for (size_t i = 0; i < n; i++) {
        uint64_t block = block_of(path, from + i), before = i ? blocks[i - 1].external : parent;

        blocks[i] = B(some_hash_of(block), block * UINT64_C(0x9E3779B97F4A7C15));
        if (blocks[i].external == before && (i || from))
            blocks[i].external ^= 1;
    }
    assert_int_equal(prefix_index_store(ix, w, from ? &parent : NULL, blocks, n),
                     known ? 0 : PREFIX_NO_PARENT);
    for (size_t i = 0; known && i < n; i++) {
        uint64_t block = block_of(path, from + i);

        fleet_forget(o, w, blocks[i].external);
        o->meaning[w][blocks[i].external] = (uint16_t)(block + 1);
        o->count[w][block]++;
    }
}

/* A stretch of a path, from its end or from its start, under either hash. */
static void fleet_remove(struct prefix_index *ix, struct fleet *o, uint32_t w)
{
    uint64_t hashes[LONG];
    size_t path = rng(PATHS), from = rng(LONG), n = 1 + rng(LONG - from);
    bool upwards = rng(2), all_known = true;

    for (size_t i = 0; i < n; i++) {
        hashes[i] = some_hash_of(block_of(path, upwards ? from + n - 1 - i : from + i));
        for (size_t k = 0; k < i; k++)
            all_known &= hashes[k] != hashes[i];
        all_known &= o->meaning[w][hashes[i]] != 0;
    }
    assert_int_equal(prefix_index_remove(ix, w, hashes, n), all_known ? 0 : PREFIX_UNKNOWN);
    for (size_t i = 0; i < n; i++)
        fleet_forget(o, w, hashes[i]);
}

static void fleet_lookup(struct prefix_index *ix, const struct fleet *o)
{
    uint64_t local[LONG];
    uint32_t scores[FLEET], longest = 0;
    size_t path = rng(PATHS), n = rng(LONG + 1), n_slots = rng(2) ? FLEET : 1 + rng(FLEET);
    size_t got;

    for (size_t i = 0; i < n; i++)
        local[i] = block_of(path, i) * UINT64_C(0x9E3779B97F4A7C15);
    got = prefix_index_match(ix, local, n, scores, n_slots);
    for (uint32_t w = 0; w < n_slots; w++) {
        uint32_t want = 0;

        while (want < n && o->count[w][block_of(path, want)])
            want++;
        assert_int_equal(scores[w], want);
        longest = MAX(longest, want);
    }
    assert_int_equal(got, longest);
}

/* Blocks that a worker holds or that something held hangs below. */
static size_t fleet_nodes(const struct fleet *o)
{
    bool needed[BLOCKS_ALL] = {false};
    size_t n = 0;

    for (size_t path = 0; path < PATHS; path++) {
        bool below = false;

        for (size_t depth = LONG; depth-- > 0;) {
            uint64_t block = block_of(path, depth);

            for (uint32_t w = 0; w < FLEET; w++)
                below |= o->count[w][block] > 0;
            needed[block] |= below;
        }
    }
    for (size_t i = 0; i < BLOCKS_ALL; i++)
        n += needed[i];
    return n;
}

static void long_chains_match_sets(void **state)
{
    AUTO(prefix_index_free) struct prefix_index *ix = prefix_index_new(SIZE_MAX);
    AUTO(mem_free) struct fleet *o = xcalloc(1, sizeof(*o));

    (void)state;
    for (int step = 0; step < 60000; step++) {
        uint32_t w = (uint32_t)rng(FLEET);
        uint64_t fill = step / 10000 % 2 ? 3 : 6; /* it grows, then shrinks, and so on */

        if (rng(1000) == 0) {
            prefix_index_clear(ix, w);
            for (uint64_t hash = 0; hash < HASHES; hash++)
                fleet_forget(o, w, hash);
        } else if (rng(10) < fill) {
            fleet_store(ix, o, w);
        } else {
            fleet_remove(ix, o, w);
        }
        fleet_lookup(ix, o);
        if (step % 1000 == 0) {
            prefix_index_check(ix);
            assert_int_equal(prefix_index_stats(ix).nodes, fleet_nodes(o));
        }
    }
    for (uint32_t w = 0; w < FLEET; w++)
        prefix_index_clear(ix, w);
    prefix_index_check(ix);
    assert_int_equal(prefix_index_stats(ix).nodes, 0);
    assert_int_equal(prefix_index_stats(ix).entries, 0);
}

/* What workers held comes back when they leave. */
static void memory_returns(void **state)
{
    enum { CHAINS = 2000, WORKERS_MANY = 100 };
    AUTO(prefix_index_free) struct prefix_index *ix = prefix_index_new(SIZE_MAX);
    struct prefix_block chain[LONG];
    size_t before, full;

    (void)state;
    for (uint32_t w = 0; w < WORKERS_MANY; w++)
        prefix_index_clear(ix, w);
    before = prefix_index_stats(ix).bytes;
    for (uint64_t c = 0; c < CHAINS; c++) {
        for (uint64_t i = 0; i < LONG; i++)
            chain[i] = B(i < 20 ? i + 1 : c * LONG + i + 1, i < 20 ? i : c * LONG + i);
        assert_int_equal(prefix_index_store(ix, (uint32_t)(c % WORKERS_MANY), NULL, chain, LONG),
                         0);
    }
    full = prefix_index_stats(ix).bytes;
    assert_true(full > 20 * before || full > before + 1000000);
    prefix_index_check(ix);
    for (uint32_t w = 0; w < WORKERS_MANY; w++)
        prefix_index_clear(ix, w);
    assert_in_range(prefix_index_stats(ix).bytes, 1, before + 1024);
}

/* --- threads -----------------------------------------------------------------------------------
 */

enum { WRITERS = 2, OF_EACH = 3, ROUNDS = 3000, PROMPTS = 40 };

struct world {
    struct prefix_index *ix;
    uint32_t writer;
    _Atomic bool *done;
};

static void prompt_of(uint64_t p, struct prefix_block *blocks)
{
    for (uint64_t i = 0; i < LONG; i++)
        blocks[i] = B((i < p ? i : p * LONG + i) + 1, i < p ? i : p * LONG + i);
}

/* Stores, removes and clears of the workers that are this thread's. */
static void *write_events(void *arg)
{
    const struct world *w = arg;
    uint64_t state = w->writer + 1;

    for (int round = 0; round < ROUNDS; round++) {
        struct prefix_block blocks[LONG];
        uint64_t hashes[LONG];
        uint32_t slot;
        size_t n;

        state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
        slot = w->writer + WRITERS * ((uint32_t)(state >> 40) % OF_EACH);
        n = 1 + (state >> 50) % LONG;
        prompt_of((state >> 33) % PROMPTS, blocks);
        for (size_t i = 0; i < n; i++)
            hashes[i] = blocks[LONG - 1 - i].external;
        if (round % 200 == 0)
            prefix_index_clear(w->ix, slot);
        else if (state >> 63)
            assert_int_equal(prefix_index_store(w->ix, slot, NULL, blocks, n), 0);
        else
            (void)prefix_index_remove(w->ix, slot, hashes, n);
    }
    return NULL;
}

/* What a score says holds at one moment: no worker has more than the longest match. */
static void *look_up(void *arg)
{
    const struct world *w = arg;

    for (uint64_t round = 0; !*w->done; round++) {
        struct prefix_block blocks[LONG];
        uint64_t local[LONG];
        uint32_t scores[WRITERS * OF_EACH], most = 0;
        size_t longest;

        prompt_of(round % PROMPTS, blocks);
        for (size_t i = 0; i < LONG; i++)
            local[i] = blocks[i].local;
        longest = prefix_index_match(w->ix, local, LONG, scores, ARRAY_LEN(scores));
        for (size_t i = 0; i < ARRAY_LEN(scores); i++)
            most = MAX(most, scores[i]);
        assert_int_equal(most, longest);
        (void)prefix_index_held(w->ix, (uint32_t)(round % WRITERS));
        (void)prefix_index_stats(w->ix);
    }
    return NULL;
}

static void many_threads_leave_it_whole(void **state)
{
    AUTO(prefix_index_free) struct prefix_index *ix = prefix_index_new(SIZE_MAX);
    struct world worlds[WRITERS + 2];
    pthread_t threads[WRITERS + 2];
    _Atomic bool done = false;

    (void)state;
    for (uint32_t i = 0; i < WRITERS + 2; i++) {
        worlds[i] = (struct world){ix, i, &done};
        assert_int_equal(
            pthread_create(&threads[i], NULL, i < WRITERS ? write_events : look_up, &worlds[i]), 0);
    }
    for (uint32_t i = 0; i < WRITERS + 2; i++) {
        (void)pthread_join(threads[i], NULL);
        done = i + 1 >= WRITERS;
    }
    prefix_index_check(ix);
    for (uint32_t slot = 0; slot < WRITERS * OF_EACH; slot++)
        prefix_index_clear(ix, slot);
    assert_int_equal(prefix_index_stats(ix).nodes, 0);
}

int main(void)
{
    return TEST_RUN(T(scores_count_leading_blocks_without_a_gap), T(an_orphan_never_enters),
                    T(stores_and_removes_are_idempotent),
                    T(one_block_under_two_hashes_stays_until_both_are_removed),
                    T(a_block_that_follows_itself_is_refused), T(the_budget_evicts_the_coldest),
                    T(the_first_one_may_go_too), T(what_was_used_through_a_leaf_is_not_cold),
                    T(a_chain_above_the_budget_is_refused), T(bytes_are_accounted_by_worker),
                    T(allocations_that_fail_leave_it_whole),
                    T(a_chain_of_a_million_blocks_needs_no_stack), T(random_operations_match_sets),
                    T(long_chains_match_sets), T(memory_returns), T(many_threads_leave_it_whole));
}
