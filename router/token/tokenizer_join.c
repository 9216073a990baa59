/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joining decoded tokens one by one. Everything decided lies in `text`; what more tokens may still
 * change is either the start of a character (`tail`) or a run of byte tokens, which are text only
 * if the whole run is UTF-8 and one U+FFFD each otherwise.
 */
#include <string.h>

#include "router/token/tokenizer_model.h"
#include "router/token/utf8.h"

void tokenizer_join_init(struct tokenizer_join *j, const struct tokenizer *t)
{
    *j = (struct tokenizer_join){.t = t};
}

void tokenizer_join_done(struct tokenizer_join *j)
{
    buf_done(&j->text);
}

void tokenizer_join_reset(struct tokenizer_join *j)
{
    buf_clear(&j->text);
    j->n_tail = 0;
    j->run = j->n_last = 0;
    j->run_broken = j->started = false;
}

void tokenizer_join_resume(struct tokenizer_join *j)
{
    j->started = j->t->decode.join == DECODE_PIECES;
}

/* --- UTF-8, byte by byte ---------------------------------------------------------------------- */

/* Length of the character that @lead begins; 0 when it begins none. */
static uint8_t lead_len(uint8_t lead)
{
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/* Whether @b may follow the @n bytes of @head (Unicode, table 3-7). */
static bool may_follow(const uint8_t *head, uint8_t n, uint8_t b)
{
    if (n == 1) {
        switch (head[0]) {
        case 0xe0:
            return b >= 0xa0 && b <= 0xbf;
        case 0xed:
            return b >= 0x80 && b <= 0x9f;
        case 0xf0:
            return b >= 0x90 && b <= 0xbf;
        case 0xf4:
            return b >= 0x80 && b <= 0x8f;
        default:
            break;
        }
    }
    return b >= 0x80 && b <= 0xbf;
}

static void put_broken(struct buf *out, size_t n)
{
    while (n-- > 0)
        buf_put(out, UTF8_REPLACEMENT, UTF8_REPLACEMENT_LEN);
}

/* Takes one byte; false when the bytes waiting in the tail, or this one alone, are no character. */
static bool tail_push(struct tokenizer_join *j, uint8_t b)
{
    if (j->n_tail > 0 && !may_follow(j->tail, j->n_tail, b)) {
        j->n_tail = 0;
        return false;
    }
    j->tail[j->n_tail++] = b;
    if (lead_len(j->tail[0]) == 0) {
        j->n_tail = 0;
        return false;
    }
    return true;
}

static bool tail_is_whole(const struct tokenizer_join *j)
{
    return j->n_tail > 0 && j->n_tail == lead_len(j->tail[0]);
}

/* --- byte-level ------------------------------------------------------------------------------- */

static void push_byte(struct tokenizer_join *j, uint8_t b)
{
    uint8_t waiting = j->n_tail;

    if (!tail_push(j, b)) {
        put_broken(&j->text, j->t->decode.join == DECODE_PIECES ? MAX(waiting, (uint8_t)1) : 1);
        if (!waiting)
            return;
        if (!tail_push(j, b)) { /* what waited is gone; the byte may begin anew */
            put_broken(&j->text, 1);
            return;
        }
    }
    if (tail_is_whole(j)) {
        buf_put(&j->text, j->tail, j->n_tail);
        j->n_tail = 0;
    }
}

static void push_bytes(struct tokenizer_join *j, const struct decode_entry *entry, struct str text)
{
    if (entry->whole && j->n_tail == 0) {
        buf_put_str(&j->text, text);
        return;
    }
    for (size_t i = 0; i < text.len; i++)
        push_byte(j, (uint8_t)text.ptr[i]);
}

/* --- byte fallback ---------------------------------------------------------------------------- */

/* Whether the run, if it ended now, would not be text. */
static bool run_is_broken(const struct tokenizer_join *j)
{
    return j->run > 0 && (j->run_broken || j->n_tail > 0);
}

static void end_run(struct tokenizer_join *j)
{
    if (run_is_broken(j)) {
        buf_truncate(&j->text, j->text.len - j->run);
        put_broken(&j->text, j->run);
    }
    j->run = 0;
    j->n_tail = 0;
    j->run_broken = false;
}

static void push_run(struct tokenizer_join *j, uint8_t b)
{
    buf_put_char(&j->text, (char)b);
    j->run++;
    if (!j->run_broken)
        j->run_broken = !tail_push(j, b);
    if (tail_is_whole(j))
        j->n_tail = 0;
}

/* --- SentencePiece ---------------------------------------------------------------------------- */

static void push_piece(struct tokenizer_join *j, uint32_t id, bool skip_special)
{
    const struct decode *d = &j->t->decode;
    const struct decode_entry *entry = &d->entries[id];
    struct str text = decode_text(d, id);

    if (entry->byte >= 0) {
        push_byte(j, (uint8_t)entry->byte);
        return;
    }
    put_broken(&j->text, j->n_tail);
    j->n_tail = 0;
    if (skip_special && j->t->special[id])
        return;
    if (d->drop != DECODE_DROP_NONE && entry->mark && !j->started && j->text.len == 0) {
        text = str_skip(text, 1);
        j->started = d->drop == DECODE_DROP_ONE;
    }
    buf_put_str(&j->text, text);
}

/* --- tokens ----------------------------------------------------------------------------------- */

static bool is_known(const struct tokenizer *t, uint32_t id)
{
    return tokenizer_token_text(t, id).ptr != NULL;
}

/* Whether the two are spelt alike, as a token that was added may be like one of the model. */
static bool is_same(const struct tokenizer *t, uint32_t a, uint32_t b)
{
    return a == b || str_eq(tokenizer_token_text(t, a), tokenizer_token_text(t, b));
}

/* BPEDecoder: what was the last token until now gets its blanks. */
static void push_ending(struct tokenizer_join *j, uint32_t id)
{
    const struct decode *d = &j->t->decode;
    struct str middle = decode_text(d, id), end;

    buf_truncate(&j->text, j->text.len - j->n_last);
    if (j->started)
        buf_put_str(&j->text, decode_text(d, j->last));
    j->n_last = j->text.len;
    decode_put_last(d, tokenizer_token_text(j->t, id), &j->text);
    end = str_skip(buf_str(&j->text), j->n_last);
    j->n_last = end.len;
    /* Up to their first blank both forms agree. */
    for (j->run = end.len; j->run > 0 && middle.ptr[end.len - j->run] == end.ptr[end.len - j->run];)
        j->run--;
    j->last = id;
    j->started = true;
}

void tokenizer_join_push(struct tokenizer_join *j, uint32_t id, bool skip_special)
{
    const struct decode *d = &j->t->decode;
    const struct decode_entry *entry;
    bool first = !j->started;

    if (is_known(j->t, id) && d->join == DECODE_PIECES) {
        push_piece(j, id, skip_special);
        return;
    }
    if (!is_known(j->t, id) || (skip_special && j->t->special[id]))
        return;
    if (d->drops_repeated && !first && is_same(j->t, j->last, id))
        return;
    if (d->suffix) {
        push_ending(j, id);
        return;
    }
    j->last = id;
    j->started = true;
    entry = &d->entries[id];
    if (entry->byte >= 0) {
        push_run(j, (uint8_t)entry->byte);
        return;
    }
    if (d->join == DECODE_FALLBACK)
        end_run(j);
    if (d->join == DECODE_SPACED && !first)
        buf_put_char(&j->text, ' ');
    if (first && d->first_differs)
        decode_put_first(d, tokenizer_token_text(j->t, id), &j->text);
    else if (d->join == DECODE_BYTES)
        push_bytes(j, entry, decode_text(d, id));
    else
        buf_put_str(&j->text, decode_text(d, id));
}

/* --- the text so far -------------------------------------------------------------------------- */

/* What is decided, and how many U+FFFD stand for what is not. */
static struct str decided(const struct tokenizer_join *j, size_t *ret_broken)
{
    struct str text = buf_str(&j->text);

    *ret_broken = j->t->decode.join == DECODE_PIECES ? j->n_tail : j->n_tail > 0;
    if (j->t->decode.join == DECODE_FALLBACK && run_is_broken(j)) {
        text.len -= j->run;
        *ret_broken = j->run;
    } else if (j->t->decode.join == DECODE_FALLBACK) {
        *ret_broken = 0;
    }
    return text;
}

static struct str stripped(const struct tokenizer_join *j, struct str text)
{
    const struct decode *d = &j->t->decode;

    for (uint32_t i = 0; i < d->n_strip && str_starts(text, str_from(d->strip)); i++)
        text = str_skip(text, strlen(d->strip));
    return text;
}

size_t tokenizer_join_len(const struct tokenizer_join *j, bool *ret_ends_broken)
{
    size_t broken;
    struct str text = stripped(j, decided(j, &broken));

    *ret_ends_broken = broken > 0 || str_ends(text, STR(UTF8_REPLACEMENT));
    return text.len + broken * UTF8_REPLACEMENT_LEN;
}

size_t tokenizer_join_settled(const struct tokenizer_join *j)
{
    size_t broken;
    struct str text = stripped(j, decided(j, &broken));

    /* A run that is text so far may still turn out not to be. */
    if (broken == 0 && j->run > 0)
        return text.len - MIN(j->run, text.len);
    return text.len;
}

void tokenizer_join_text(const struct tokenizer_join *j, size_t from, struct buf *out)
{
    size_t broken;
    struct str text = stripped(j, decided(j, &broken));

    while (from < text.len && utf8_is_continuation(text.ptr[from]))
        from++;
    if (from >= text.len) {
        size_t skip = (from - text.len + UTF8_REPLACEMENT_LEN - 1) / UTF8_REPLACEMENT_LEN;

        put_broken(out, broken - MIN(skip, broken));
        return;
    }
    buf_put_str(out, str_skip(text, from));
    put_broken(out, broken);
}

void tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, bool skip_special,
                      struct buf *out)
{
    struct tokenizer_join j;

    tokenizer_join_init(&j, t);
    for (size_t i = 0; i < n; i++)
        tokenizer_join_push(&j, ids[i], skip_special);
    tokenizer_join_text(&j, 0, out);
    tokenizer_join_done(&j);
}
