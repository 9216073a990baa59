/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/prompt_media.h"

#include <string.h>

#include "lib/base/arena.h"
#include "router/frontend/model.h"
#include "router/kv/block_hash.h"
#include "router/openai/chat_extras.h"
#include "router/wire/engine_request.h"

/* A prompt that is longer than any context is nobody's; so much is put together for the others. */
enum { TOKENS_MAX = 1 << 20 };

struct chat_media {
    const struct chat_image *images;
    size_t n;
    bool has_others;
    const uint64_t *hashes;
};

static void find(const struct openai_request *in, struct arena *a, struct chat_media *ret)
{
    struct chat_image *images;
    uint64_t *hashes;

    ret->n = chat_images(in, a, &images, &ret->has_others);
    hashes = arena_alloc(a, (ret->n + 1) * sizeof(*hashes));
    for (size_t i = 0; i < ret->n; i++)
        hashes[i] = block_media_hash(images[i].url.len ? images[i].url : images[i].uuid);
    ret->images = images;
    ret->hashes = hashes;
}

/* What stands in the prompt for one: there as often as the chat has any. */
static bool find_mark(const struct image_marks *m, const struct token_ids *prompt, size_t n_images,
                      uint32_t *ret)
{
    for (size_t i = 0; i < m->n_marks; i++) {
        size_t n = 0;

        for (size_t at = 0; at < prompt->len; at++)
            n += prompt->ptr[at] == m->marks[i];
        if (n == n_images) {
            *ret = m->marks[i];
            return true;
        }
    }
    return false;
}

/* How many tokens each becomes; false when that is not known of all. */
static bool count_tokens(const struct image_tokens *t, const struct chat_media *c, size_t max,
                         uint32_t *ret)
{
    uint64_t sum = 0;

    if (t->family == IMAGES_UNKNOWN || c->has_others)
        return false;
    for (size_t i = 0; i < c->n; i++) {
        struct image_size size;
        uint64_t n;

        if (c->images[i].uuid.len || !image_size_of_url(c->images[i].url, &size))
            return false;
        n = image_tokens_count(t, size);
        if (n > max || (sum += n) > max)
            return false;
        ret[i] = (uint32_t)n;
    }
    return true;
}

static void put(struct token_ids *out, uint32_t token, size_t n)
{
    uint32_t *at = token_ids_reserve(out, n);

    for (size_t i = 0; i < n; i++)
        at[i] = token;
    out->len += n;
}

/* @counts NULL = one each. */
static void expand(const struct token_ids *prompt, uint32_t mark, const struct chat_media *c,
                   const uint32_t *counts, struct token_ids *ret)
{
    size_t image = 0;

    for (size_t i = 0; i < prompt->len; i++) {
        if (prompt->ptr[i] != mark) {
            token_ids_push(ret, prompt->ptr[i]);
            continue;
        }
        put(ret, block_media_token(c->hashes[image]), counts ? counts[image] : 1);
        image++;
    }
}

void prompt_media_make(const struct model *m, const struct openai_request *in,
                       const struct token_ids *prompt, struct arena *a, struct prompt_media *ret)
{
    const struct image_marks *marks = &m->images;
    uint64_t context = m->card->context_length;
    size_t max = context ? MIN(context, (uint64_t)TOKENS_MAX) : TOKENS_MAX;
    struct chat_media c;
    uint32_t *counts, mark;

    if (!in->messages || !prompt->len)
        return;
    find(in, a, &c);
    if (!c.n || !find_mark(marks, prompt, c.n, &mark))
        return;
    counts = arena_alloc(a, c.n * sizeof(*counts));
    ret->is_exact = model_is_of_1(m) && marks->tokens.has_placeholder &&
                    mark == marks->tokens.placeholder &&
                    count_tokens(&marks->tokens, &c, max, counts);
    ret->hashes = c.hashes;
    ret->n = c.n;
    if (ret->is_exact && marks->begins)
        token_ids_push(&ret->tokens, marks->first);
    expand(prompt, mark, &c, ret->is_exact ? counts : NULL, &ret->tokens);
}

void prompt_media_extend(struct prompt_media *p, const uint32_t *said, size_t n)
{
    if (!p->tokens.len)
        return;
    memcpy(token_ids_reserve(&p->tokens, n), said, n * sizeof(*said));
    p->tokens.len += n;
}

void prompt_media_fill(struct prompt_media *p, uint32_t block_size, struct engine_request *ret)
{
    size_t len = p->tokens.len, whole = (len + block_size - 1) / block_size * block_size;

    if (!len)
        return;
    memset(token_ids_reserve(&p->tokens, whole - len), 0, (whole - len) * sizeof(*p->tokens.ptr));
    ret->routing_token_ids = p->tokens.ptr;
    ret->n_routing_prompt = len;
    ret->n_routing_token_ids = p->is_exact ? whole : 0;
}

void prompt_media_done(struct prompt_media *p)
{
    token_ids_done(&p->tokens);
}
