/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/detok.h"

void detok_init(struct detok *d, const struct tokenizer *t, const uint32_t *prompt, size_t n,
                bool skip_special)
{
    size_t from = n > DETOK_CONTEXT ? n - DETOK_CONTEXT : 0;
    bool broken;

    *d = (struct detok){.skip_special = skip_special};
    tokenizer_join_init(&d->join, t);
    for (size_t i = from; i < n; i++)
        tokenizer_join_push(&d->join, prompt[i], skip_special);
    d->given = tokenizer_join_len(&d->join, &broken);
}

void detok_done(struct detok *d)
{
    tokenizer_join_done(&d->join);
    token_ids_done(&d->pending);
    buf_done(&d->out);
}

/* The tokens that made the text just given become the shorter window of the next step. */
static void restart(struct detok *d)
{
    bool broken;

    tokenizer_join_reset(&d->join);
    for (size_t i = 0; i < d->pending.len; i++)
        tokenizer_join_push(&d->join, d->pending.ptr[i], d->skip_special);
    d->pending.len = 0;
    d->given = tokenizer_join_len(&d->join, &broken);
}

struct str detok_push(struct detok *d, uint32_t id)
{
    bool broken;

    token_ids_push(&d->pending, id);
    tokenizer_join_push(&d->join, id, d->skip_special);
    if (tokenizer_join_len(&d->join, &broken) <= d->given || broken)
        return STR_NULL;
    buf_clear(&d->out);
    tokenizer_join_text(&d->join, d->given, &d->out);
    restart(d);
    return buf_str(&d->out);
}
