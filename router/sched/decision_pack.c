/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/decision_pack.h"

#include <string.h>

enum { MAPPED = 64, HEAD_BYTES = offsetof(struct decision_record, shadows) };

/* Parts are looked at by whole words. */
_Static_assert(HEAD_BYTES % 8 == 0, "head");
_Static_assert(sizeof(struct decision_shadow) % 8 == 0, "shadow");
_Static_assert(sizeof(struct route_rejection) % 8 == 0, "rejection");
_Static_assert(sizeof(struct decision_candidate) % 8 == 0, "candidate");

/* Returns the end of what was written; a word behind it may be overwritten too. */
static uint64_t *put_words(uint64_t *out, const void *part, size_t bytes)
{
    const char *from = part;
    size_t n = bytes / 8;

    for (size_t at = 0; at < n; at += MAPPED) {
        uint64_t *map = out++, bits = 0;

        for (size_t i = 0; i < MIN(n - at, (size_t)MAPPED); i++) {
            uint64_t word;

            memcpy(&word, from + (at + i) * 8, 8);
            *out = word; /* stays if it is not zero; which no branch has to guess */
            out += word != 0;
            bits |= (uint64_t)(word != 0) << i;
        }
        *map = bits;
    }
    return out;
}

static const uint64_t *take_words(const uint64_t *in, void *part, size_t bytes)
{
    char *to = part;
    size_t n = bytes / 8;

    for (size_t at = 0; at < n; at += MAPPED) {
        uint64_t bits = *in++;

        for (size_t i = 0; i < MIN(n - at, (size_t)MAPPED); i++) {
            uint64_t word = bits >> i & 1 ? *in++ : 0;

            memcpy(to + (at + i) * 8, &word, 8);
        }
    }
    return in;
}

size_t decision_pack(const struct decision_record *r, uint64_t *out)
{
    uint64_t *end = put_words(out, r, HEAD_BYTES);

    end = put_words(end, r->shadows, r->n_shadows * sizeof(r->shadows[0]));
    end = put_words(end, r->rejected, r->n_rejected * sizeof(r->rejected[0]));
    end = put_words(end, r->candidates, r->n_candidates * sizeof(r->candidates[0]));
    return (size_t)(end - out);
}

void decision_unpack(const uint64_t *in, struct decision_record *ret)
{
    in = take_words(in, ret, HEAD_BYTES); /* the counts are there now */
    in = take_words(in, ret->shadows, ret->n_shadows * sizeof(ret->shadows[0]));
    in = take_words(in, ret->rejected, ret->n_rejected * sizeof(ret->rejected[0]));
    (void)take_words(in, ret->candidates, ret->n_candidates * sizeof(ret->candidates[0]));
}
