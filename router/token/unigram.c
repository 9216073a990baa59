/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/unigram.h"

#include <stdio.h>

#include "lib/base/mem.h"
#include "router/token/utf8.h"

/* What an unknown character costs more than the worst piece (SentencePiece). */
static const double UNKNOWN_PENALTY = 10.0;
static const double NATIVE_MAX = 100000.0;

void unigram_done(struct unigram *u)
{
    free(u->scores);
    free(u->edges);
    free(u->pieces);
    *u = (struct unigram){0};
}

void unigram_work_done(struct unigram_work *w)
{
    free(w->best);
    token_ids_done(&w->reversed);
    *w = (struct unigram_work){0};
}

/* --- trie ------------------------------------------------------------------------------------- */

static struct unigram_edge *edge_of(const struct unigram *u, uint32_t from)
{
    size_t i = ((uint64_t)from * UINT64_C(0x9e3779b97f4a7c15)) >> 32 & u->mask;

    while (u->edges[i].to && u->edges[i].from != from)
        i = (i + 1) & u->mask;
    return &u->edges[i];
}

static void grow_edges(struct unigram *u)
{
    struct unigram_edge *old = u->edges;
    size_t n_old = old ? u->mask + 1 : 0, n = n_old ? n_old * 2 : 1024;

    u->edges = xcalloc(n, sizeof(*u->edges));
    u->mask = n - 1;
    for (size_t i = 0; i < n_old; i++)
        if (old[i].to)
            *edge_of(u, old[i].from) = old[i];
    free(old);
}

static uint32_t add_node(struct unigram *u)
{
    if (u->n_nodes == u->cap_nodes) {
        u->cap_nodes = u->cap_nodes ? u->cap_nodes * 2 : 1024;
        u->pieces = xreallocarray(u->pieces, u->cap_nodes, sizeof(*u->pieces));
    }
    if ((size_t)u->n_nodes * 2 >= u->mask)
        grow_edges(u);
    u->pieces[u->n_nodes] = VOCAB_NONE;
    return u->n_nodes++;
}

static uint32_t step(const struct unigram *u, uint32_t node, char byte)
{
    return edge_of(u, node << 8 | (uint8_t)byte)->to;
}

bool unigram_add(struct unigram *u, struct str text, double score)
{
    uint32_t node = 0, id = u->limit++;

    if (u->n_nodes == 0)
        (void)add_node(u);
    if (text.len > UNIGRAM_MAX_NODES - u->n_nodes)
        return false;
    if ((id & (id - 1)) == 0) /* doubles at every power of two */
        u->scores = xreallocarray(u->scores, MAX((size_t)id * 2, (size_t)1), sizeof(*u->scores));
    u->scores[id] = score;
    u->lowest = id ? MIN(u->lowest, score) : score;
    for (size_t i = 0; i < text.len; i++) {
        uint32_t from = node << 8 | (uint8_t)text.ptr[i];

        node = edge_of(u, from)->to;
        if (!node) {
            node = add_node(u);
            *edge_of(u, from) = (struct unigram_edge){from, node};
        }
    }
    if (node)
        u->pieces[node] = id;
    return true;
}

void unigram_prepare(struct unigram *u)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];

        (void)snprintf(text, sizeof(text), "<0x%02X>", byte);
        u->byte_ids[byte] = vocab_find(u->words, str_from(text));
        if (u->byte_ids[byte] == VOCAB_NONE)
            u->byte_fallback = false; /* the library wants all bytes of a character or none */
    }
}

/* --- encoding --------------------------------------------------------------------------------- */

static void offer(const struct unigram *u, struct unigram_node *node, double score, size_t start,
                  uint32_t id)
{
    if (u->native)
        score = (float)score;
    if (node->start == VOCAB_NONE || score > node->score)
        *node = (struct unigram_node){score, (uint32_t)start, id};
}

/* Keeps the sums of a long text small, as SentencePiece does: their last bits decide between ways. */
static void rebase(struct unigram_node *best, size_t len, size_t at)
{
    double offset = best[at].score;

    if (offset >= -NATIVE_MAX && offset <= NATIVE_MAX)
        return;
    for (size_t i = at; i <= MIN(len, at + UNIGRAM_MAX_PIECE); i++)
        if (i == at || best[i].start != VOCAB_NONE)
            best[i].score = (float)(best[i].score - offset);
}

/* Extends the best way to @at by every piece that begins there. */
static void extend(const struct unigram *u, struct unigram_node *best, struct str word, size_t at)
{
    size_t character = utf8_len(word.ptr[at]);
    double here = best[at].score, unknown = u->lowest - UNKNOWN_PENALTY;
    bool covered = false;
    uint32_t node = 0;

    for (size_t end = at; end < word.len; end++) {
        uint32_t id;

        node = step(u, node, word.ptr[end]);
        if (!node)
            break;
        id = u->pieces[node];
        if (id == VOCAB_NONE)
            continue;
        offer(u, &best[end + 1], u->scores[id] + here, at, id);
        covered |= end + 1 - at == character;
    }
    if (u->native)
        unknown = (float)unknown;
    if (!covered)
        offer(u, &best[at + character], unknown + here, at, u->unk);
}

/* Ids of a stretch that no piece covers, last first. */
static void put_unknown(const struct unigram *u, struct str text, struct token_ids *out)
{
    uint32_t id = u->native ? VOCAB_NONE : vocab_find(u->words, text);

    if (id != VOCAB_NONE || !u->byte_fallback) {
        token_ids_push(out, id != VOCAB_NONE ? id : u->unk);
        return;
    }
    for (size_t i = text.len; i-- > 0;)
        token_ids_push(out, u->byte_ids[(uint8_t)text.ptr[i]]);
}

static void trace_back(const struct unigram *u, const struct unigram_node *best, struct str word,
                       struct token_ids *out)
{
    size_t end = word.len;

    while (end > 0) {
        size_t start = best[end].start;

        if (best[end].id != u->unk) {
            token_ids_push(out, best[end].id);
        } else {
            while (start > 0 && best[start].id == u->unk)
                start = best[start].start;
            put_unknown(u, str_slice(word.ptr + start, end - start), out);
        }
        end = start;
    }
}

void unigram_encode(const struct unigram *u, struct unigram_work *w, struct str word,
                    struct token_ids *out)
{
    uint32_t *to;

    if (w->cap <= word.len) {
        w->cap = MAX(word.len + 1, (size_t)256);
        w->best = xreallocarray(w->best, w->cap, sizeof(*w->best));
    }
    for (size_t i = 0; i <= word.len; i++)
        w->best[i] = (struct unigram_node){0, VOCAB_NONE, VOCAB_NONE};
    for (size_t at = 0; at < word.len; at += utf8_len(word.ptr[at])) {
        if (u->native)
            rebase(w->best, word.len, at);
        extend(u, w->best, word, at);
    }
    w->reversed.len = 0;
    trace_back(u, w->best, word, &w->reversed);
    to = token_ids_reserve(out, w->reversed.len);
    for (size_t i = w->reversed.len; i-- > 0;)
        *to++ = w->reversed.ptr[i];
    out->len += w->reversed.len;
}
