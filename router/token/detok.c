/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/detok.h"

#include "router/token/utf8.h"

/* What the join holds now becomes the shorter window. */
static void mark(struct detok *d)
{
    d->settled = tokenizer_join_settled(&d->join);
    buf_clear(&d->unsettled);
    tokenizer_join_text(&d->join, d->settled, &d->unsettled);
}

void detok_init(struct detok *d, const struct tokenizer *t, const uint32_t *prompt, size_t n,
                bool skip_special)
{
    size_t from = n > DETOK_CONTEXT ? n - DETOK_CONTEXT : 0;

    /* Bytes in a row are text only from the start of a character on. */
    while (from > 0 && n - from < DETOK_CONTEXT + 3 && tokenizer_is_continuation(t, prompt[from]))
        from--;
    *d = (struct detok){.skip_special = skip_special};
    tokenizer_join_init(&d->join, t);
    if (from > 0)
        tokenizer_join_resume(&d->join);
    for (; from < n; from++)
        tokenizer_join_push(&d->join, prompt[from], skip_special);
    mark(d);
}

void detok_done(struct detok *d)
{
    tokenizer_join_done(&d->join);
    token_ids_done(&d->pending);
    buf_done(&d->unsettled);
    buf_done(&d->out);
}

/* The tokens that made the text just given are the next shorter window. */
static void restart(struct detok *d)
{
    tokenizer_join_reset(&d->join);
    tokenizer_join_resume(&d->join);
    for (size_t i = 0; i < d->pending.len; i++)
        tokenizer_join_push(&d->join, d->pending.ptr[i], d->skip_special);
    d->pending.len = 0;
    mark(d);
}

/* What the longer window says behind the shorter one, whose end may read differently by now. */
static struct str new_text(struct detok *d)
{
    struct str text;
    size_t same = 0;

    buf_clear(&d->out);
    tokenizer_join_text(&d->join, d->settled, &d->out);
    text = buf_str(&d->out);
    while (same < MIN(text.len, d->unsettled.len) &&
           text.ptr[same] == buf_data(&d->unsettled)[same])
        same++;
    while (same > 0 && same < text.len && utf8_is_continuation(text.ptr[same]))
        same--;
    return str_skip(text, same);
}

struct str detok_push(struct detok *d, uint32_t id)
{
    struct str text;
    bool broken;

    token_ids_push(&d->pending, id);
    tokenizer_join_push(&d->join, id, d->skip_special);
    if (tokenizer_join_len(&d->join, &broken) <= d->settled || broken)
        return STR_NULL;
    text = new_text(d);
    if (text.len > 0)
        restart(d);
    return text;
}

struct str detok_flush(struct detok *d)
{
    bool broken;

    return tokenizer_join_len(&d->join, &broken) > d->settled ? new_text(d) : STR_NULL;
}
