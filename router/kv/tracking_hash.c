/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/tracking_hash.h"

#include "lib/base/buf.h"
#include "lib/base/digest.h"
#include "router/kv/block_hash.h"

/* With its NUL. */
static const char DOMAIN[] = "dynamo.router.tracking-hash/keyed-xxh3-v1";

enum tag {
    TAG_KEY_ID = 1,
    TAG_MODEL,
    TAG_ROUTING_GROUP,
    TAG_BLOCK_SIZE,
    TAG_CACHE_NAMESPACE,
    TAG_LORA,
    TAG_EAGLE
};

static void put_le(struct buf *out, uint64_t v, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        buf_put_char(out, (char)(v >> (8 * i) & 0xFF));
}

static void put_text(struct buf *out, struct str text)
{
    put_le(out, text.len, 8);
    buf_put_str(out, text);
}

static void put_required(struct buf *out, enum tag tag, struct str text)
{
    buf_put_char(out, (char)tag);
    put_text(out, text);
}

static void put_optional(struct buf *out, enum tag tag, struct str text)
{
    buf_put_char(out, (char)tag);
    buf_put_char(out, text.len > 0);
    if (text.len)
        put_text(out, text);
}

static void put_number(struct buf *out, enum tag tag, uint64_t v, size_t n_bytes)
{
    buf_put_char(out, (char)tag);
    put_le(out, n_bytes, 8);
    put_le(out, v, n_bytes);
}

static uint64_t load_le64(const uint8_t *at)
{
    uint64_t v = 0;

    for (int i = 7; i >= 0; i--)
        v = v << 8 | at[i];
    return v;
}

struct tracking_seeds tracking_hash_seeds(const struct tracking_key *key,
                                          const struct tracking_scope *scope)
{
    AUTO(buf_done) struct buf context = BUF_NULL;
    uint8_t sum[32];

    buf_put(&context, DOMAIN, sizeof(DOMAIN));
    put_required(&context, TAG_KEY_ID, key->id);
    put_required(&context, TAG_MODEL, scope->model);
    put_required(&context, TAG_ROUTING_GROUP, scope->routing_group);
    put_number(&context, TAG_BLOCK_SIZE, scope->block_size, sizeof(scope->block_size));
    put_optional(&context, TAG_CACHE_NAMESPACE, scope->cache_namespace);
    put_optional(&context, TAG_LORA, scope->lora_name);
    put_number(&context, TAG_EAGLE, scope->eagle, 1);
    digest_blake3_keyed(key->bytes, buf_str(&context), sum);
    return (struct tracking_seeds){load_le64(sum), load_le64(sum + 8)};
}

size_t tracking_hash_sequence(const struct tracking_key *key, const struct tracking_scope *scope,
                              const uint32_t *tokens, size_t n_tokens, uint64_t *ret_sequence)
{
    struct tracking_seeds seeds = tracking_hash_seeds(key, scope);
    const struct block_naming nm = {
        .seed = seeds.block, .block_size = scope->block_size, .eagle = scope->eagle};
    size_t n = block_hash_local_named(&nm, tokens, n_tokens, ret_sequence);

    block_hash_sequence_seeded(seeds.chain, ret_sequence, n, ret_sequence);
    return n;
}
