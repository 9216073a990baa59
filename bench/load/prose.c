/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/load/prose.h"

static const char *const WORDS[] = {
    "the",     "a",      "of",      "and",     "in",     "to",        "with",   "for",
    "from",    "system", "time",    "work",    "model",  "value",     "number", "place",
    "part",    "water",  "light",   "energy",  "field",  "theory",    "result", "process",
    "change",  "form",   "point",   "state",   "data",   "line",      "order",  "group",
    "power",   "level",  "area",    "case",    "study",  "method",    "name",   "side",
    "end",     "line",   "surface", "force",   "small",  "large",     "first",  "second",
    "long",    "high",   "common",  "general", "early",  "different", "is",     "was",
    "has",     "can",    "may",     "will",    "shows",  "gives",     "takes",  "makes",
    "moves",   "holds",  "becomes", "follows", "uses",   "by",        "at",     "on",
    "as",      "this",   "that",    "its",     "each",   "some",      "many",   "other",
    "between", "under",  "over",    "after",   "before", "through",   "within", "against",
    "because", "while",
};

uint64_t prose_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t prose_between(uint64_t *state, uint64_t lo, uint64_t hi)
{
    return lo + prose_random(state) % (hi - lo + 1);
}

void prose_put(struct buf *out, uint64_t *state, size_t n_tokens, double tokens_per_word)
{
    double left = (double)n_tokens;

    while (left > 0) {
        size_t n = prose_between(state, 8, 16);

        for (size_t i = 0; i < n && left > 0; i++, left -= tokens_per_word) {
            const char *word = WORDS[prose_random(state) % ARRAY_LEN(WORDS)];
            char first = i == 0 ? (char)(word[0] - 'a' + 'A') : word[0];

            if (out->len > 0)
                buf_put_char(out, ' ');
            buf_put_char(out, first);
            buf_put_cstr(out, word + 1);
        }
        buf_put_char(out, '.');
        left -= 1;
    }
}
