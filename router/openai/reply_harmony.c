/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/reply_harmony.h"

#include "router/openai/reply_calls.h"

/* A header is a few words; what is longer is none. */
enum { HEADER_BYTES_MAX = 1024 };

#define MESSAGE "<|message|>"
#define CHANNEL "<|channel|>"
#define START "<|start|>"
#define CALL_END "<|call|>"

#define EOM "<|eom|>"

enum place { FIRST, HEADER, BODY, BETWEEN };
enum what { CONTENT, THOUGHT, DROPPED, CALL };

struct harmony_dialect {
    const char *ends[4], *begins[2]; /* marks around messages */
    const char *openings[5]; /* how an answer may begin: the prompt holds the start of its header */
    bool is_muse;
};

const struct harmony_dialect HARMONY_GPT_OSS = {
    .ends = {"<|end|>", CALL_END, "<|return|>", START},
    .begins = {START, CHANNEL},
    .openings = {CHANNEL, START, MESSAGE, "<|constrain|>", "to="},
};
const struct harmony_dialect HARMONY_MUSE = {
    .ends = {EOM, "<|eot|>", START},
    .begins = {START},
    .openings = {START, MESSAGE, "to="},
    .is_muse = true,
};

struct harmony {
    const struct harmony_dialect *dialect;
    bool thoughts, calls;
    reply_fn tell;
    void *arg;
    enum place place;
    enum what what;  /* the text of this message */
    struct buf held; /* not told apart yet: the end of the stream */
    struct buf head; /* of a call: what stands before its arguments */
    struct buf name; /* of a call */
};

struct harmony *harmony_new(const struct harmony_dialect *dialect, bool thoughts, bool calls,
                            reply_fn tell, void *arg)
{
    struct harmony *h = xcalloc(1, sizeof(*h));

    /* Muse's thoughts are told under either name, as in 1.6.1. */
    *h = (struct harmony){.dialect = dialect,
                          .thoughts = thoughts || dialect->is_muse,
                          .calls = calls,
                          .tell = tell,
                          .arg = arg};
    return h;
}

struct harmony *harmony_free(struct harmony *h)
{
    if (!h)
        return NULL;
    buf_done(&h->held);
    buf_done(&h->head);
    buf_done(&h->name);
    free(h);
    return NULL;
}

static void tell_text(struct harmony *h, enum what what, struct str text)
{
    enum reply_kind kind = what == THOUGHT ? REPLY_THOUGHT : REPLY_CONTENT;

    if (text.len && what != DROPPED)
        h->tell(h->arg, &(struct reply_part){.kind = kind, .text = text});
}

/* Bytes of @text before the first of @marks, or what may become one; *ret_mark NULL or that mark. */
static size_t find_any(struct str text, const char *const marks[], size_t n_marks,
                       const char **ret_mark)
{
    size_t best = text.len;

    *ret_mark = NULL;
    for (size_t i = 0; i < n_marks && marks[i]; i++) {
        bool found;
        size_t n = reply_find_mark(text, marks[i], &found);

        if (n < best || (found && n == best && !*ret_mark)) {
            best = n;
            *ret_mark = found ? marks[i] : NULL;
        }
    }
    return best;
}

/* --- headers ---------------------------------------------------------------------------------- */

/* What stands behind @mark in a header, up to a blank or another mark; empty = nothing. */
static struct str header_word(struct str header, const char *mark)
{
    const char *hit = header.len ? memmem(header.ptr, header.len, mark, strlen(mark)) : NULL;
    size_t n = 0;
    struct str word;

    if (!hit)
        return STR_NULL;
    word = str_trim(str_skip(header, (size_t)(hit - header.ptr) + strlen(mark)));
    while (n < word.len && word.ptr[n] != '<' && (unsigned char)word.ptr[n] > ' ')
        n++;
    return str_head(word, n);
}

static void keep_head(struct harmony *h, struct str header)
{
    const char *hit = header.len ? memmem(header.ptr, header.len, CHANNEL, strlen(CHANNEL)) : NULL;

    buf_clear(&h->head);
    buf_put_str(&h->head, hit ? str_skip(header, (size_t)(hit - header.ptr)) : header);
    buf_put_cstr(&h->head, MESSAGE);
}

static void read_muse_header(struct harmony *h, struct str header)
{
    struct str to = header_word(header, "to=");

    h->what = str_is(to, "self") ? THOUGHT : !to.len || str_is(to, "user") ? CONTENT : CALL;
    if (h->what == CALL)
        keep_head(h, header);
}

static void read_header(struct harmony *h, struct str header)
{
    struct str to = header_word(header, "to=");

    h->place = BODY;
    h->what = CONTENT;
    if (h->dialect->is_muse) {
        read_muse_header(h, header);
        return;
    }
    if (str_starts(to, STR("functions.")) && to.len > strlen("functions.")) {
        keep_head(h, header);
        buf_clear(&h->name);
        buf_put_str(&h->name, str_skip(to, strlen("functions.")));
        h->what = CALL;
    } else if (str_is(header_word(header, CHANNEL), "analysis")) {
        h->what = h->thoughts ? THOUGHT : DROPPED;
    }
}

/* --- steps: each false when more is needed to go on ------------------------------------------- */

static bool step_first(struct harmony *h, bool last)
{
    struct str text = str_trim(buf_str(&h->held));

    if (!last && text.len == 0)
        return false;
    h->place = BODY;
    for (size_t i = 0; i < ARRAY_LEN(h->dialect->openings) && h->dialect->openings[i]; i++) {
        struct str opening = str_from(h->dialect->openings[i]);

        if (str_starts(text, opening))
            h->place = HEADER;
        else if (!last && str_starts(opening, text))
            h->place = FIRST;
    }
    return h->place != FIRST;
}

static bool step_header(struct harmony *h, bool last)
{
    bool found;
    struct str text = buf_str(&h->held);
    size_t n = reply_find_mark(text, MESSAGE, &found);

    if (n > HEADER_BYTES_MAX) {
        h->place = BODY;
        h->what = CONTENT;
        return true;
    }
    if (found)
        read_header(h, str_head(text, n));
    else if (!last)
        return false;
    buf_consume(&h->held, found ? n + strlen(MESSAGE) : text.len);
    return found;
}

static bool step_between(struct harmony *h)
{
    const char *mark;
    size_t n =
        find_any(buf_str(&h->held), h->dialect->begins, ARRAY_LEN(h->dialect->begins), &mark);

    buf_consume(&h->held, n);
    h->place = mark ? HEADER : BETWEEN;
    return mark != NULL;
}

static bool tell_elements(struct harmony *h, struct str text)
{
    struct reply_found found = {.n = 0};
    bool ok = reply_read_atem(text, &found) && found.n > 0;

    if (ok)
        reply_tell_found(&found, h->tell, h->arg);
    buf_done(&found.text);
    return ok;
}

/* A call that has ended with @mark, or "" with the stream. */
static void settle_call(struct harmony *h, struct str text, const char *mark)
{
    AUTO(buf_done) struct buf arguments = BUF_NULL;
    const char *own_end = h->dialect->is_muse ? EOM : CALL_END;
    bool is_json = reply_compact_json(text, &arguments);
    struct reply_part part = {.kind = REPLY_CALL, .name = buf_str(&h->name)};

    if (h->calls && h->dialect->is_muse && tell_elements(h, text))
        return;
    if (h->calls && !h->dialect->is_muse && (is_json || mark[0])) {
        part.text = is_json ? buf_str(&arguments) : str_trim(text);
        h->tell(h->arg, &part);
        return;
    }
    tell_text(h, CONTENT, buf_str(&h->head));
    tell_text(h, CONTENT, text);
    tell_text(h, CONTENT, str_from(strcmp(mark, own_end) == 0 ? mark : ""));
}

static bool step_body(struct harmony *h, bool last)
{
    const char *mark;
    struct str text = buf_str(&h->held);
    size_t n = find_any(text, h->dialect->ends, ARRAY_LEN(h->dialect->ends), &mark);

    n = last && !mark ? text.len : n;
    if (h->what != CALL) {
        tell_text(h, h->what, str_head(text, n));
    } else if (n > REPLY_CALL_BYTES_MAX) {
        tell_text(h, CONTENT, buf_str(&h->head));
        h->what = CONTENT;
        return true;
    } else if (mark || last) {
        settle_call(h, str_head(text, n), mark ? mark : "");
    } else {
        return false;
    }
    buf_consume(&h->held, n + (mark ? strlen(mark) : 0));
    if (mark)
        h->place = strcmp(mark, START) == 0 ? HEADER : BETWEEN;
    return mark != NULL;
}

static bool step(struct harmony *h, bool last)
{
    switch (h->place) {
    case FIRST:
        return step_first(h, last);
    case HEADER:
        return step_header(h, last);
    case BODY:
        return step_body(h, last);
    case BETWEEN:
        break;
    }
    return step_between(h);
}

void harmony_push(struct harmony *h, struct str text)
{
    buf_put_str(&h->held, text);
    while (h->held.len && step(h, false))
        ;
}

void harmony_end(struct harmony *h)
{
    /* A call without arguments has ended too. */
    while ((h->held.len || (h->place == BODY && h->what == CALL)) && step(h, true))
        ;
    buf_clear(&h->held);
}
