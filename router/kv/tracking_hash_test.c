/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/tracking_hash.h"

#include <string.h>

#include "lib/base/test.h"
#include "router/kv/block_hash.h"

static struct tracking_key some_key(void)
{
    struct tracking_key key = {.id = STR("2026-01")};

    memset(key.bytes, 0x5a, sizeof(key.bytes));
    return key;
}

static const struct tracking_scope SCOPE = {.model = STR("model-a"),
                                            .routing_group = STR("tenant-a"),
                                            .block_size = 4,
                                            .cache_namespace = STR("cache-a"),
                                            .lora_name = STR("adapter-a")};
static const uint32_t TOKENS[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

/* router.md §1.9 */
static void the_vector_of_the_reference(void **state)
{
    struct tracking_key key = some_key();
    uint64_t sequence[3];

    (void)state;
    assert_int_equal(tracking_hash_sequence(&key, &SCOPE, TOKENS, 12, sequence), 3);
    assert_int_equal(sequence[0], UINT64_C(4363769719052127296));
    assert_int_equal(sequence[1], UINT64_C(14998523962162619427));
    assert_int_equal(sequence[2], UINT64_C(13920914207884994756));
}

static bool differs(const struct tracking_key *key, struct tracking_scope scope)
{
    struct tracking_key same = some_key();
    struct tracking_seeds a = tracking_hash_seeds(&same, &SCOPE);
    struct tracking_seeds b = tracking_hash_seeds(key, &scope);

    return a.block != b.block && a.chain != b.chain;
}

static void every_field_counts(void **state)
{
    struct tracking_key key = some_key(), other_key = key, other_id = key;
    struct tracking_scope scopes[] = {SCOPE, SCOPE, SCOPE, SCOPE, SCOPE, SCOPE};

    (void)state;
    other_key.bytes[31] ^= 1;
    other_id.id = STR("2026-02");
    scopes[0].model = STR("model-b");
    scopes[1].routing_group = STR_NULL;
    scopes[2].block_size = 8;
    scopes[3].cache_namespace = STR_NULL;
    scopes[4].lora_name = STR_NULL;
    scopes[5].eagle = true;
    assert_false(differs(&key, SCOPE));
    assert_true(differs(&other_key, SCOPE));
    assert_true(differs(&other_id, SCOPE));
    for (size_t i = 0; i < ARRAY_LEN(scopes); i++)
        assert_true(differs(&key, scopes[i]));
}

static void it_cuts_as_the_index_does(void **state)
{
    struct tracking_key key = some_key();
    struct tracking_scope eagle = SCOPE;
    uint64_t sequence[3];

    (void)state;
    eagle.eagle = true;
    assert_int_equal(tracking_hash_sequence(&key, &SCOPE, TOKENS, 11, sequence), 2);
    assert_int_equal(tracking_hash_sequence(&key, &eagle, TOKENS, 12, sequence), 2);
    assert_int_equal(tracking_hash_sequence(&key, &SCOPE, TOKENS, 3, sequence), 0);
}

int main(void)
{
    return TEST_RUN(T(the_vector_of_the_reference), T(every_field_counts),
                    T(it_cuts_as_the_index_does));
}
