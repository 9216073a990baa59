/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/sequences.h"
#include "lib/base/test.h"

enum { SLOTS = 3, DEPTH = 6, LETTERS = 3, CONTEXTS = 4 << 2 * DEPTH, BOOKINGS = 32, BS = 4 };

/* What a booking is, written down plainly. A block is the number that its path of letters spells to
 * base 4, so that equal hashes have equal prefixes, as sequence hashes do. */
struct plain {
    struct booking *b;
    uint32_t slot;
    uint64_t hashes[DEPTH];
    size_t n;
    uint32_t prefill;
    bool gone; /* its slot was dropped */
};

static uint64_t rng_state = 42;

static uint64_t rng(uint64_t below)
{
    rng_state ^= rng_state << 13, rng_state ^= rng_state >> 7, rng_state ^= rng_state << 17;
    return rng_state % below;
}

static size_t random_path(uint64_t *hashes)
{
    size_t n = rng(DEPTH + 1);

    for (size_t i = 0; i < n; i++)
        hashes[i] = (i ? hashes[i - 1] * 4 : 0) + 1 + rng(LETTERS);
    return n;
}

static void check(const struct sequences *s, const struct plain *all)
{
    uint64_t prompt[DEPTH];
    uint32_t shared[SLOTS];
    size_t n = random_path(prompt);

    sequences_check(s);
    sequences_shared(s, prompt, n, shared, SLOTS);
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        bool active[CONTEXTS] = {false};
        uint64_t prefill = 0, blocks = 0, requests = 0, known = 0;

        for (size_t i = 0; i < BOOKINGS; i++) {
            if (!all[i].b || all[i].slot != slot || all[i].gone)
                continue;
            prefill += all[i].prefill;
            requests++;
            for (size_t k = 0; k < all[i].n; k++)
                active[all[i].hashes[k]] = true;
        }
        for (size_t h = 0; h < CONTEXTS; h++)
            blocks += active[h];
        for (size_t k = 0; k < n; k++)
            known += active[prompt[k]];
        assert_int_equal(sequences_load(s, slot)->prefill_tokens, prefill);
        assert_int_equal(sequences_load(s, slot)->requests, requests);
        assert_int_equal(sequences_load(s, slot)->active_blocks, blocks);
        assert_int_equal(shared[slot], known);
    }
}

static void book(struct sequences *s, struct plain *p)
{
    uint32_t isl = (uint32_t)(1 + rng(40)), overlap = (uint32_t)rng(4);

    *p = (struct plain){.slot = (uint32_t)rng(SLOTS)};
    p->n = random_path(p->hashes);
    p->prefill = isl > overlap * BS ? isl - overlap * BS : 0;
    p->b = sequences_book(s, &(struct booking_spec){.slot = p->slot,
                                                    .sequence = p->hashes,
                                                    .n_blocks = p->n,
                                                    .isl = isl,
                                                    .cached_tokens = overlap * BS});
}

static void random_bookings_match_plain_counting(void **state)
{
    struct sequences *s = sequences_new();
    struct plain all[BOOKINGS] = {{0}};

    (void)state;
    for (int step = 0; step < 20000; step++) {
        struct plain *p = &all[rng(BOOKINGS)];

        if (rng(200) == 0) {
            uint32_t slot = (uint32_t)rng(SLOTS);

            sequences_drop_slot(s, slot);
            for (size_t i = 0; i < BOOKINGS; i++)
                all[i].gone |= all[i].slot == slot;
        } else if (!p->b) {
            book(s, p);
        } else if (rng(2)) {
            booking_first_token(p->b, 1);
            p->prefill = 0;
        } else {
            p->b = booking_end(p->b, 1, true);
        }
        check(s, all);
    }
    for (size_t i = 0; i < BOOKINGS; i++)
        all[i].b = booking_end(all[i].b, 1, true);
    assert_int_equal(sequences_bookings(s), 0);
    sequences_check(s);
    sequences_free(s);
}

static struct booking *book_at(struct sequences *s, uint32_t slot, const uint64_t *hashes, size_t n,
                               uint64_t now_ns)
{
    return sequences_book(s, &(struct booking_spec){.slot = slot,
                                                    .sequence = hashes,
                                                    .n_blocks = n,
                                                    .isl = (uint32_t)n * BS,
                                                    .now_ns = now_ns});
}

/* active_blocks = round(|unique| + sum of (fraction - 1)) (router.md §4.3) */
static void ageing_output_counts_less_and_shared_blocks_do_not_age(void **state)
{
    struct sequences *s = sequences_new();
    struct booking *a = book_at(s, 0, (uint64_t[]){1, 2}, 2, 0);
    struct booking *b = book_at(s, 0, (uint64_t[]){1}, 1, 0);

    (void)state;
    booking_output_block(a, 0.25);
    /* Block 2 and the output count a quarter each, block 1 is shared: 0.25 + 0.25 + 1 = 1.5 */
    assert_int_equal(sequences_load(s, 0)->active_blocks, 2);
    (void)booking_end(b, 0, true);
    booking_output_block(a, 0.25);
    assert_int_equal(sequences_load(s, 0)->active_blocks, 1);
    booking_output_block(a, 0); /* it has answered what was expected of it */
    assert_int_equal(sequences_load(s, 0)->active_blocks, 0);
    (void)booking_end(a, 0, true);
    assert_int_equal(sequences_load(s, 0)->active_blocks, 0);
    sequences_free(s);
}

static void a_silent_booking_expires_and_a_lively_one_does_not(void **state)
{
    struct sequences *s = sequences_new();
    struct booking *silent, *lively;

    (void)state;
    sequences_set_expiry(s, 100);
    silent = book_at(s, 0, (uint64_t[]){1, 2}, 2, 0);
    lively = book_at(s, 0, (uint64_t[]){3}, 1, 0);
    booking_first_token(lively, 50);
    assert_int_equal(sequences_expire(s, 99), 0);
    booking_touch(lively, 99);
    assert_int_equal(sequences_expire(s, 100), 1);
    assert_int_equal(sequences_load(s, 0)->requests, 1);
    assert_int_equal(sequences_load(s, 0)->active_blocks, 1);
    assert_int_equal(sequences_load(s, 0)->prefill_tokens, 0);
    assert_int_equal(sequences_expire(s, 198), 1);
    assert_int_equal(sequences_expire(s, 199), 2);
    assert_int_equal(sequences_load(s, 0)->requests, 0);
    /* Their owners come back after all. */
    booking_touch(silent, 300);
    booking_first_token(silent, 300);
    booking_output_block(lively, 1);
    (void)booking_end(silent, 300, true);
    (void)booking_end(lively, 300, true);
    assert_int_equal(sequences_load(s, 0)->queued_tokens, 0);
    assert_int_equal(sequences_bookings(s), 0);
    sequences_check(s);
    sequences_free(s);
}

static void queued_tokens_are_at_least_one_each(void **state)
{
    struct sequences *s = sequences_new();
    struct booking_spec cached = {.isl = 8, .cached_tokens = 8}, elsewhere = {.isl = 8};
    struct booking *a = sequences_book(s, &cached), *b;

    (void)state;
    assert_int_equal(sequences_load(s, 0)->prefill_tokens, 0);
    assert_int_equal(sequences_load(s, 0)->queued_tokens, 1);
    elsewhere.no_prefill = true;
    b = sequences_book(s, &elsewhere);
    assert_int_equal(sequences_load(s, 0)->queued_tokens, 1);
    booking_first_token(a, 1);
    assert_int_equal(sequences_load(s, 0)->queued_tokens, 0);
    (void)booking_end(a, 1, true);
    (void)booking_end(b, 1, true);
    sequences_free(s);
}

int main(void)
{
    return TEST_RUN(T(random_bookings_match_plain_counting),
                    T(ageing_output_counts_less_and_shared_blocks_do_not_age),
                    T(a_silent_booking_expires_and_a_lively_one_does_not),
                    T(queued_tokens_are_at_least_one_each));
}
