/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/shared_pages.h"

#include <inttypes.h>

#include "lib/base/buf.h"
#include "lib/base/digest.h"
#include "lib/base/map64.h"

enum { HASH_BYTES = 32, HASH_HEX = 64 };

struct shared_pages {
    struct map64 names; /* by their hash */
    bool usable;
    struct shared_layout layout; /* its prefix is owned */
    struct buf ends;             /* what follows the hash in the names of a page, each with a NUL */
    struct buf page;             /* the hash before it and its tokens */
    struct buf name;             /* prefix, hash and end */
    uint32_t *from;
    size_t cap_from;
};

struct shared_pages *shared_pages_new(void)
{
    return xcalloc(1, sizeof(struct shared_pages));
}

struct shared_pages *shared_pages_free(struct shared_pages *s)
{
    if (!s)
        return NULL;
    map64_done(&s->names);
    free((char *)(uintptr_t)s->layout.prefix);
    buf_done(&s->ends);
    buf_done(&s->page);
    buf_done(&s->name);
    free(s->from);
    free(s);
    return NULL;
}

/* --- layout ------------------------------------------------------------------------------------ */

bool shared_layout_eq(const struct shared_layout *a, const struct shared_layout *b)
{
    return a->page_size == b->page_size && a->ranks == b->ranks && a->stages == b->stages &&
           a->mla == b->mla && a->eagle == b->eagle && !a->prefix == !b->prefix &&
           str_eq(str_from(a->prefix), str_from(b->prefix));
}

static void put_end(struct shared_pages *s, uint32_t rank, uint32_t stage)
{
    struct buf *out = &s->ends;

    if (s->layout.mla && s->layout.stages > 1)
        buf_printf(out, "_%" PRIu32 "_k%c", stage, '\0');
    else if (s->layout.mla)
        buf_printf(out, "__k%c", '\0');
    else if (s->layout.stages > 1)
        buf_printf(out, "_%" PRIu32 "_%" PRIu32 "_k%c_%" PRIu32 "_%" PRIu32 "_v%c", rank, stage,
                   '\0', rank, stage, '\0');
    else
        buf_printf(out, "_%" PRIu32 "_k%c_%" PRIu32 "_v%c", rank, '\0', rank, '\0');
}

bool shared_pages_lay_out(struct shared_pages *s, const struct shared_layout *layout)
{
    uint64_t stages = MAX(layout->stages, 1u), ranks = layout->mla ? 1 : MAX(layout->ranks, 1u);

    if (s->usable && shared_layout_eq(&s->layout, layout))
        return true;
    shared_pages_clear(s);
    free((char *)(uintptr_t)s->layout.prefix);
    s->layout = *layout;
    s->layout.prefix = layout->prefix ? xstrdup(layout->prefix) : NULL;
    buf_clear(&s->ends);
    s->usable = layout->page_size > 0 && layout->page_size <= SHARED_PAGE_TOKENS_MAX &&
                ranks <= SHARED_PAGE_OBJECTS_MAX && stages <= SHARED_PAGE_OBJECTS_MAX &&
                ranks * stages * 2 <= SHARED_PAGE_OBJECTS_MAX;
    for (uint32_t stage = 0; s->usable && stage < stages; stage++)
        for (uint32_t rank = 0; rank < ranks; rank++)
            put_end(s, rank, stage);
    return s->usable;
}

/* --- names ------------------------------------------------------------------------------------- */

bool shared_pages_put(struct shared_pages *s, struct str name)
{
    uint64_t key = digest_siphash13(name);

    if (s->names.len >= SHARED_OBJECTS_MAX && !map64_find(&s->names, key))
        return false;
    (void)map64_put(&s->names, key, NULL);
    return true;
}

void shared_pages_remove(struct shared_pages *s, struct str name)
{
    (void)map64_remove(&s->names, digest_siphash13(name), NULL);
}

void shared_pages_clear(struct shared_pages *s)
{
    map64_done(&s->names);
}

size_t shared_pages_objects(const struct shared_pages *s)
{
    return s->names.len;
}

/* --- look-up ----------------------------------------------------------------------------------- */

static void hash_page(struct shared_pages *s, const uint32_t *tokens, bool is_first,
                      uint8_t hash[HASH_BYTES])
{
    buf_clear(&s->page);
    if (!is_first)
        buf_put(&s->page, hash, HASH_BYTES);
    /* Tokens lie in memory as they are hashed: block_hash.c insists on it. */
    if (!s->layout.eagle)
        buf_put(&s->page, tokens, s->layout.page_size * sizeof(*tokens));
    for (uint32_t i = 0; s->layout.eagle && i < s->layout.page_size; i++)
        buf_put(&s->page, &tokens[i], 2 * sizeof(*tokens));
    digest_sha256(buf_str(&s->page), hash);
}

static bool has_page(struct shared_pages *s, const uint8_t hash[HASH_BYTES])
{
    char hex[DIGEST_HEX_SIZE];
    size_t head;

    digest_hex(hash, hex);
    buf_clear(&s->name);
    if (s->layout.prefix)
        buf_printf(&s->name, "%s_", s->layout.prefix);
    buf_put(&s->name, hex, HASH_HEX);
    head = s->name.len;
    for (size_t at = 0; at < s->ends.len;) {
        struct str end = str_from(buf_data(&s->ends) + at);

        buf_truncate(&s->name, head);
        buf_put_str(&s->name, end);
        if (!map64_find(&s->names, digest_siphash13(buf_str(&s->name))))
            return false;
        at += end.len + 1;
    }
    return true;
}

void shared_pages_find(struct shared_pages *s, const uint32_t *tokens, size_t n_tokens,
                       struct shared_hits *ret)
{
    size_t followed = s->layout.eagle ? n_tokens - (n_tokens > 0) : n_tokens;
    size_t n = s->usable ? followed / s->layout.page_size : 0;
    uint8_t hash[HASH_BYTES];

    if (n + 1 > s->cap_from) {
        s->cap_from = n + 1;
        s->from = xreallocarray(s->from, s->cap_from, sizeof(*s->from));
    }
    for (size_t i = 0; i < n; i++) {
        s->from[i] = 0;
        if (!s->names.len) /* nothing to look for */
            continue;
        hash_page(s, tokens + i * s->layout.page_size, i == 0, hash);
        s->from[i] = has_page(s, hash);
    }
    s->from[n] = 0;
    for (size_t i = n; i-- > 0;)
        s->from[i] += s->from[i + 1];
    *ret = (struct shared_hits){.n_pages = (uint32_t)n, .from = s->from};
}
