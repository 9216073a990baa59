/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/salt_chains.h"

#include "lib/base/mem.h"

void salt_chains_done(struct salt_chains *c)
{
    for (size_t i = 0; i < ARRAY_LEN(c->tiers); i++)
        map64_done(&c->tiers[i]);
}

void salt_chains_clear(struct salt_chains *c)
{
    for (size_t i = 0; i < ARRAY_LEN(c->tiers); i++)
        map64_clear(&c->tiers[i]);
}

uint64_t salt_chains_find(const struct salt_chains *c, uint64_t block)
{
    for (size_t i = 0; i < ARRAY_LEN(c->tiers); i++) {
        const uint64_t *salt = map64_find(&c->tiers[i], block);

        if (salt)
            return *salt;
    }
    return 0;
}

static size_t kept(const struct salt_chains *c)
{
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(c->tiers); i++)
        n += c->tiers[i].len;
    return n;
}

bool salt_chains_put(struct salt_chains *c, enum kv_tier tier, const uint64_t *blocks, size_t n,
                     uint64_t salt)
{
    size_t room = SALTED_BLOCKS_MAX - kept(c);

    for (size_t i = 0; i < n; i++) {
        bool is_new = !map64_find(&c->tiers[tier], blocks[i]);

        if (is_new && room == 0)
            return false;
        room -= is_new;
        *map64_put(&c->tiers[tier], blocks[i], NULL) = salt;
    }
    return true;
}

void salt_chains_remove(struct salt_chains *c, enum kv_tier tier, const uint64_t *blocks, size_t n)
{
    for (size_t i = 0; i < n && c->tiers[tier].len; i++)
        (void)map64_remove(&c->tiers[tier], blocks[i], NULL);
}
