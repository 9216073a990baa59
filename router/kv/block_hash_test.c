/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/block_hash.h"

#include <string.h>

#include "lib/base/test.h"

/* router.md §1.9 */
static void vectors_of_the_reference(void **state)
{
    uint32_t tokens[256];
    uint64_t local[3], sequence[3];
    static const struct {
        uint32_t block_size;
        uint64_t b0, b1, s1;
    } cases[] = {
        {16, UINT64_C(15310707395893867146), UINT64_C(15292316782987903195),
         UINT64_C(13769157705258532664)},
        {32, UINT64_C(5756925433886871916), UINT64_C(13958166640625465031),
         UINT64_C(16658382216643214443)},
        {64, UINT64_C(3480597578098033343), UINT64_C(3318286205056455972),
         UINT64_C(2575318956255022795)},
        {128, UINT64_C(9509643624113304476), UINT64_C(14661480810010634334),
         UINT64_C(4646466054415241071)},
    };

    (void)state;
    for (uint32_t i = 0; i < 256; i++)
        tokens[i] = i;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint32_t n = cases[i].block_size;

        assert_int_equal(block_hash_local(tokens, 2 * (size_t)n, n, local), 2);
        block_hash_sequence(local, 2, sequence);
        assert_int_equal(local[0], cases[i].b0);
        assert_int_equal(local[1], cases[i].b1);
        assert_int_equal(sequence[0], cases[i].b0);
        assert_int_equal(sequence[1], cases[i].s1);
    }
    assert_int_equal(block_hash_local(tokens + 1, 12, 4, local), 3);
    block_hash_sequence(local, 3, local);
    assert_int_equal(local[0], UINT64_C(14643705804678351452));
    assert_int_equal(local[1], UINT64_C(4945711292740353085));
    assert_int_equal(local[2], UINT64_C(12583592247330656132));
}

static void both_at_once_are_the_same_as_one_after_the_other(void **state)
{
    static const uint32_t sizes[] = {1, 4, 16, 17, 64, 128};
    uint32_t tokens[640];

    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(tokens); i++)
        tokens[i] = i * 2654435761u;
    for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
        uint64_t seed = BLOCK_HASH_SEED + k, local[ARRAY_LEN(tokens)], sequence[ARRAY_LEN(tokens)];
        uint64_t one[ARRAY_LEN(tokens)], other[ARRAY_LEN(tokens)];
        size_t n = ARRAY_LEN(tokens) / sizes[k], bytes = n * sizeof(*local);

        assert_int_equal(block_hash_local_seeded(seed, tokens, 640, sizes[k], one), n);
        block_hash_sequence(one, n, other);
        assert_int_equal(block_hash_prompt(seed, tokens, 640, sizes[k], local, sequence), n);
        assert_memory_equal(local, one, bytes);
        assert_memory_equal(sequence, other, bytes);
        local[0] = 7;
        assert_int_equal(block_hash_prompt(seed, tokens, sizes[k] - 1, sizes[k], local, NULL), 0);
        assert_int_equal(local[0], 7);
    }
}

static void a_partial_block_has_no_hash(void **state)
{
    static const uint32_t tokens[] = {7, 8, 9, 1};
    uint64_t local[4];

    (void)state;
    assert_int_equal(block_hash_local(tokens, 4, 3, local), 1);
    assert_int_equal(local[0], UINT64_C(560734302779673188));
    assert_int_equal(block_hash_local(tokens, 2, 3, local), 0);
    assert_int_equal(block_hash_local((uint32_t[]){0}, 1, 1, local), 1);
    assert_int_equal(local[0], UINT64_C(16451421758532862321));
}

static void adapters_and_salts_have_hashes_of_their_own(void **state)
{
    static const struct {
        const char *lora, *salt;
        uint64_t local;
    } cases[] = {{"", "", UINT64_C(9143094415614847814)},
                 {"adapter-a", "", UINT64_C(6665157333201000639)},
                 {"", "tenant-a", UINT64_C(17009624042690211646)},
                 {"adapter-a", "tenant-a", UINT64_C(8269515957840517240)}};
    static const uint32_t tokens[] = {0, 1, 2, 3};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint64_t seed = block_hash_seed(str_from(cases[i].lora), str_from(cases[i].salt)), local;

        assert_int_equal(block_hash_local_seeded(seed, tokens, 4, 4, &local), 1);
        assert_int_equal(local, cases[i].local);
    }
}

static void a_block_of_an_engine_that_drafts_ahead_has_one_token_more(void **state)
{
    static const uint32_t tokens[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    uint64_t local[2];

    (void)state;
    assert_int_equal(block_hash_local_eagle(tokens, 9, 4, local), 2);
    assert_int_equal(local[0], UINT64_C(14562210786876287112));
    assert_int_equal(local[1], UINT64_C(15916330181359808192));
    assert_int_equal(block_hash_local_eagle(tokens, 8, 4, local), 1);
    assert_int_equal(block_hash_local_eagle(tokens, 4, 4, local), 0);
    assert_int_equal(block_hash_local_eagle(tokens, 0, 4, local), 0);
}

/* What compute_block_hash_for_seq() of 0.9.0 and 1.6.1 say. */
/* As 1.6.1 told a worker of the image of that URL. */
static void images_have_tokens_of_their_own(void **state)
{
    (void)state;
    assert_int_equal(block_media_hash(STR(
                         "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAoAAAAHgCAIAAAC6s0uzAAAACE"
                         "lEQVR4nAMAAAAAAUgGidIAAAAASUVORK5CYII=")),
                     0xbcc4e5389e37fd95);
    assert_int_equal(block_media_token(0xbcc4e5389e37fd95), 507985877);
    assert_int_equal(block_media_token(0), 1000000);
}

static size_t hash_with(const struct block_media *media, size_t n_media, const uint32_t *tokens,
                        size_t n_tokens, uint64_t *ret_local)
{
    const struct block_naming nm = {
        .seed = BLOCK_HASH_SEED, .block_size = 4, .media = media, .n_media = n_media};

    return block_hash_local_named(&nm, tokens, n_tokens, ret_local);
}

static void media_tell_blocks_of_the_same_tokens_apart(void **state)
{
    static const uint32_t tokens[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    struct block_media one[] = {{1, 7}}, twice[] = {{0, 7}, {0, 7}};
    struct block_media some[] = {{3, 3}, {0, UINT64_MAX}};
    uint64_t local[3];

    (void)state;
    assert_int_equal(hash_with(one, 1, tokens, 12, local), 3);
    assert_int_equal(local[0], UINT64_C(9143094415614847814));
    assert_int_equal(local[1], UINT64_C(13619451749487848906));
    assert_int_equal(local[2], UINT64_C(1088361764653601668));
    (void)hash_with(twice, 2, tokens, 12, local);
    assert_int_equal(local[0], UINT64_C(10381944540384825961));
    assert_int_equal(local[1], UINT64_C(12124091508212882195));
    block_media_sort(some, 2);
    (void)hash_with(some, 2, tokens, 12, local);
    assert_int_equal(local[0], UINT64_C(13429469677865469331));
    assert_int_equal(local[2], UINT64_C(1088361764653601668));
}

static void media_of_a_block_are_hashed_in_ascending_order(void **state)
{
    static const uint32_t tokens[] = {1, 2, 3, 4};
    struct block_media media[] = {{0, 0xdeadbeef}, {0, 5}};
    uint64_t local;

    (void)state;
    block_media_sort(media, 2);
    assert_int_equal(hash_with(media, 2, tokens, 4, &local), 1);
    assert_int_equal(local, UINT64_C(6622392644170505465));
}

/* A block of four tokens is as long as two numbers. */
static uint64_t hash_of_pair(uint64_t seed, uint64_t a, uint64_t b)
{
    uint32_t tokens[4];
    uint64_t hash;

    memcpy(tokens, &a, sizeof(a));
    memcpy(tokens + 2, &b, sizeof(b));
    assert_int_equal(block_hash_local_seeded(seed, tokens, 4, 4, &hash), 1);
    return hash;
}

static void a_step_of_the_chain_is_the_hash_of_two_numbers(void **state)
{
    static const uint64_t seeds[] = {0, BLOCK_HASH_SEED, UINT64_C(0xFEDCBA9876543210), UINT64_MAX};
    uint64_t local[64], sequence[64];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(local); i++)
        local[i] = hash_of_pair(0, i, ~i) >> (i % 2 ? 0 : i);
    for (size_t k = 0; k < ARRAY_LEN(seeds); k++) {
        block_hash_sequence_seeded(seeds[k], local, ARRAY_LEN(local), sequence);
        assert_int_equal(sequence[0], local[0]);
        for (size_t i = 1; i < ARRAY_LEN(local); i++) {
            assert_int_equal(sequence[i], hash_of_pair(seeds[k], sequence[i - 1], local[i]));
            if (seeds[k] == BLOCK_HASH_SEED)
                assert_int_equal(sequence[i], block_hash_next(sequence[i - 1], local[i]));
        }
        block_hash_sequence_seeded(seeds[k], local, 0, sequence);
    }
}

static void blocks_with_all_that_names_them(void **state)
{
    uint32_t tokens[13];
    uint64_t local[3], sequence[3], want[3];
    const struct block_media media[] = {{1, 7}};
    struct block_naming nm = {.seed = 9, .block_size = 4};

    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(tokens); i++)
        tokens[i] = i;
    for (int with = 0; with < 4; with++) {
        nm.eagle = with & 1;
        nm.media = media;
        nm.n_media = with >> 1;
        assert_int_equal(block_hash_prompt_named(&nm, tokens, 13, local, sequence), 3);
        if (nm.eagle)
            (void)block_hash_local_eagle_seeded(9, tokens, 13, 4, want);
        else
            (void)block_hash_local_named(&nm, tokens, 13, want);
        assert_true(local[0] == want[0] && local[2] == want[2]);
        assert_true((local[1] == want[1]) == (!nm.eagle || !nm.n_media));
        block_hash_sequence(local, 3, want);
        assert_memory_equal(sequence, want, sizeof(want));
    }
}

int main(void)
{
    return TEST_RUN(T(blocks_with_all_that_names_them), T(images_have_tokens_of_their_own),
                    T(vectors_of_the_reference),
                    T(both_at_once_are_the_same_as_one_after_the_other),
                    T(a_partial_block_has_no_hash), T(adapters_and_salts_have_hashes_of_their_own),
                    T(media_tell_blocks_of_the_same_tokens_apart),
                    T(media_of_a_block_are_hashed_in_ascending_order),
                    T(a_block_of_an_engine_that_drafts_ahead_has_one_token_more),
                    T(a_step_of_the_chain_is_the_hash_of_two_numbers));
}
