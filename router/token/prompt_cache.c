/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/prompt_cache.h"

#include <pthread.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "lib/base/err.h"

enum { BYTES_PER_SLOT = 2048, SLOTS_MIN = 64, NEW_SHARE = 4 };

/* A part of a prompt: behind the head come its ids and then its text. */
struct part {
    struct part *parent;        /* NULL: a prompt begins with it */
    struct part *next;          /* of the same slot */
    struct part *newer, *older; /* in order of use; one is used after all that follow it */
    uint64_t hash;              /* of the text from the start of the prompt */
    uint32_t n_text, n_ids, children;
    bool proven; /* it was found again, and so were those before it */
    uint32_t ids[];
};

struct order {
    struct part *newest, *oldest;
    size_t bytes;
};

struct prompt_cache {
    const struct tokenizer *t;
    uint64_t seed;
    size_t max_bytes;
    pthread_mutex_t lock; /* of all below */
    struct part **slots;
    size_t mask;
    struct order order[2]; /* of new parts; of proven ones */
    struct prompt_cache_stats stats;
};

/* Where a part of the prompt at hand ends, in its text and ids. */
struct cut {
    size_t text, ids;
    uint64_t hash;
};

struct cuts_found {
    struct cut *ptr;
    size_t len, cap;
};

static const char *text_of(const struct part *p)
{
    return (const char *)(p->ids + p->n_ids);
}

static size_t size_of(size_t n_text, size_t n_ids)
{
    return sizeof(struct part) + n_ids * sizeof(uint32_t) + n_text;
}

/* --- order of use ----------------------------------------------------------------------------- */

static void unlink_part(struct prompt_cache *c, struct part *p)
{
    struct order *o = &c->order[p->proven];

    *(p->newer ? &p->newer->older : &o->newest) = p->older;
    *(p->older ? &p->older->newer : &o->oldest) = p->newer;
    o->bytes -= size_of(p->n_text, p->n_ids);
}

static void link_newest(struct prompt_cache *c, struct part *p)
{
    struct order *o = &c->order[p->proven];

    p->newer = NULL;
    p->older = o->newest;
    *(o->newest ? &o->newest->newer : &o->oldest) = p;
    o->newest = p;
    o->bytes += size_of(p->n_text, p->n_ids);
}

/* From the last part of a prompt to its first. @found: they were there when it came. */
static void touch(struct prompt_cache *c, struct part *last, bool found)
{
    for (struct part *p = last; p; p = p->parent) {
        unlink_part(c, p);
        p->proven |= found;
        link_newest(c, p);
    }
}

static void drop(struct prompt_cache *c, struct part *p)
{
    struct part **at = &c->slots[p->hash & c->mask];

    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    unlink_part(c, p);
    if (p->parent)
        p->parent->children--;
    c->stats.parts--;
    free(p);
}

static size_t bytes_of(const struct prompt_cache *c)
{
    return c->order[false].bytes + c->order[true].bytes;
}

/*
 * The part that goes next, NULL when none has to. The oldest of its order is never one that another
 * of the same follows: it was used after that one. Only new parts may follow a proven one; they go
 * before it.
 */
static struct part *superfluous(const struct prompt_cache *c)
{
    struct part *fresh = c->order[false].oldest, *proven = c->order[true].oldest;

    if (c->order[false].bytes > c->max_bytes / NEW_SHARE)
        return fresh;
    if (bytes_of(c) <= c->max_bytes)
        return NULL;
    return proven && !proven->children ? proven : fresh;
}

static void make_room(struct prompt_cache *c)
{
    struct part *p;

    for (; (p = superfluous(c)); c->stats.evicted++)
        drop(c, p);
}

/* --- parts ------------------------------------------------------------------------------------ */

static struct part *find(const struct prompt_cache *c, const struct part *parent, struct str text,
                         uint64_t hash)
{
    struct part *p = c->slots[hash & c->mask];

    while (p && !(p->hash == hash && p->parent == parent && p->n_text == text.len &&
                  memcmp(text_of(p), text.ptr, text.len) == 0))
        p = p->next;
    return p;
}

static struct part *add(struct prompt_cache *c, struct part *parent, struct str text, uint64_t hash,
                        const uint32_t *ids, size_t n_ids)
{
    struct part *p = xmalloc(size_of(text.len, n_ids));

    *p = (struct part){.parent = parent,
                       .next = c->slots[hash & c->mask],
                       .hash = hash,
                       .n_text = (uint32_t)text.len,
                       .n_ids = (uint32_t)n_ids};
    memcpy(p->ids, ids, n_ids * sizeof(*ids));
    memcpy(p->ids + n_ids, text.ptr, text.len);
    c->slots[hash & c->mask] = p;
    link_newest(c, p);
    if (parent)
        parent->children++;
    c->stats.parts++;
    return p;
}

struct prompt_cache *prompt_cache_new(const struct tokenizer *t, size_t max_bytes, uint64_t seed)
{
    struct prompt_cache *c = xcalloc(1, sizeof(*c));

    c->t = t;
    c->seed = seed;
    c->max_bytes = max_bytes;
    for (c->mask = SLOTS_MIN; c->mask * BYTES_PER_SLOT < max_bytes; c->mask *= 2)
        ;
    c->slots = xcalloc(c->mask, sizeof(struct part *));
    c->mask--;
    (void)pthread_mutex_init(&c->lock, NULL);
    return c;
}

struct prompt_cache *prompt_cache_free(struct prompt_cache *c)
{
    if (!c)
        return NULL;
    for (int proven = 0; proven < 2; proven++)
        while (c->order[proven].oldest)
            drop(c, c->order[proven].oldest);
    (void)pthread_mutex_destroy(&c->lock);
    free(c->slots);
    free(c);
    return NULL;
}

struct prompt_cache_stats prompt_cache_stats(struct prompt_cache *c)
{
    struct prompt_cache_stats stats;

    (void)pthread_mutex_lock(&c->lock);
    stats = c->stats;
    stats.bytes = bytes_of(c);
    (void)pthread_mutex_unlock(&c->lock);
    return stats;
}

/* --- prompts ---------------------------------------------------------------------------------- */

static void find_cuts(const struct prompt_cache *c, struct tokenizer_scratch *s, struct str text,
                      struct cuts_found *ret)
{
    size_t at = 0, done = 0;
    uint64_t hash = c->seed;

    while (tokenizer_next_cut(c->t, s, text, &at)) {
        if (at - done < PROMPT_CACHE_PART)
            continue;
        hash = XXH3_64bits_withSeed(text.ptr + done, at - done, hash);
        if (ret->len == ret->cap) {
            ret->cap = MAX(ret->cap * 2, (size_t)16);
            ret->ptr = xreallocarray(ret->ptr, ret->cap, sizeof(*ret->ptr));
        }
        ret->ptr[ret->len++] = (struct cut){.text = at, .hash = hash};
        done = at;
    }
}

static struct str part_text(struct str text, const struct cuts_found *cuts, size_t i)
{
    size_t start = i ? cuts->ptr[i - 1].text : 0;

    return str_slice(text.ptr + start, cuts->ptr[i].text - start);
}

/* Number of parts whose ids are known; they are appended to @out. */
static size_t take_known(struct prompt_cache *c, struct str text, struct cuts_found *cuts,
                         struct token_ids *out)
{
    struct part *last = NULL, *p;
    size_t n = 0;

    (void)pthread_mutex_lock(&c->lock);
    for (; n < cuts->len; n++) {
        p = find(c, last, part_text(text, cuts, n), cuts->ptr[n].hash);
        if (!p)
            break;
        memcpy(token_ids_reserve(out, p->n_ids), p->ids, p->n_ids * sizeof(*p->ids));
        out->len += p->n_ids;
        cuts->ptr[n].ids = out->len;
        last = p;
    }
    touch(c, last, true);
    (void)pthread_mutex_unlock(&c->lock);
    return n;
}

/* What was known may be gone by now, or more may be there. */
static void remember(struct prompt_cache *c, struct str text, const struct cuts_found *cuts,
                     const struct token_ids *ids)
{
    struct part *last = NULL, *p;

    (void)pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < cuts->len; i++) {
        struct str part = part_text(text, cuts, i);
        size_t start = i ? cuts->ptr[i - 1].ids : 0, n_ids = cuts->ptr[i].ids - start;

        if (size_of(part.len, n_ids) > c->max_bytes / NEW_SHARE / 4)
            break; /* all others would have to go */
        p = find(c, last, part, cuts->ptr[i].hash);
        last = p ? p : add(c, last, part, cuts->ptr[i].hash, ids->ptr + start, n_ids);
    }
    touch(c, last, false);
    make_room(c);
    (void)pthread_mutex_unlock(&c->lock);
}

int prompt_cache_encode(struct prompt_cache *c, struct tokenizer_scratch *s, struct str text,
                        struct token_ids *out, struct prompt_reuse *ret_reuse, struct err *e)
{
    struct cuts_found cuts = {0};
    size_t known, from;
    int r = tokenizer_check(text, e);

    if (r < 0)
        return r;
    find_cuts(c, s, text, &cuts);
    known = take_known(c, text, &cuts, out);
    from = known ? cuts.ptr[known - 1].text : 0;
    *ret_reuse = (struct prompt_reuse){from, out->len};
    for (size_t i = known; r == 0 && i < cuts.len; i++) {
        r = tokenizer_encode_part(c->t, s, text, from, cuts.ptr[i].text, out, e);
        from = cuts.ptr[i].text;
        cuts.ptr[i].ids = out->len;
    }
    if (r == 0 && known < cuts.len)
        remember(c, text, &cuts, out);
    if (r == 0)
        r = tokenizer_encode_part(c->t, s, text, from, text.len, out, e);
    if (r < 0)
        out->len = 0;
    else
        tokenizer_shape_ids(c->t, out, 0);
    ret_reuse->ids = MIN(ret_reuse->ids, out->len);
    free(cuts.ptr);
    return r;
}
