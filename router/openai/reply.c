/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One buffer holds what is not told apart yet. Where the answer stands says which marks count:
 *
 *     header --> unsure --> saying <--> calling
 *                   |          ^
 *                   +--> thinking
 *
 * Each step finds the first mark that counts there, tells what stands before it, and goes on behind
 * it. Inside of a call no mark of thoughts counts: arguments may hold any text.
 */
#include "router/openai/reply_calls.h"
#include "router/openai/reply_harmony.h"
#include "router/openai/reply_thoughts.h"

#include <strings.h>

const struct reply_calls *reply_find_calls(const char *name)
{
    for (size_t i = 0; name && i < REPLY_CALLS_N; i++)
        if (strcasecmp(name, REPLY_CALLS[i].name) == 0)
            return &REPLY_CALLS[i];
    return NULL;
}

bool reply_reads_special(const char *thoughts, const char *calls)
{
    const struct reply_thoughts *t = reply_find_thoughts(thoughts);
    const struct reply_calls *c = reply_find_calls(calls);

    return (t && t->special) || (c && c->special);
}

/* --- the stream ------------------------------------------------------------------------------- */

enum place { UNSURE, HEADER, LABEL, THINKING, SAYING, CALLING };

enum what { NOTHING, BEGIN, END, CALL, CALL_OF_THOUGHTS, HEAD, FRAME };

struct mark {
    const char *text;
    enum what what;
};

enum { MARKS_MAX = 20 };

struct reply {
    const struct reply_thoughts *thoughts;
    const struct reply_calls *calls;
    struct str named;
    const struct json *tools;
    struct harmony *harmony; /* reads all of it first; NULL = another format */
    reply_fn tell;
    void *arg;
    struct mark marks[MARKS_MAX];
    size_t n_marks;
    enum place place;
    bool told_thought, told_content; /* of the text that was pushed last */
    bool in_thoughts;                /* where the text pushed last was */
    bool thinks;                     /* thoughts are read */
    bool opened;                     /* those that the answer is in have had their mark */
    bool begun;                      /* behind the blanks that an answer may begin with */
    bool said;                       /* content that is more than blanks */
    const char *said_first;          /* not told yet */
    struct buf held;                 /* not told apart yet: the end of the stream */
};

static void from_harmony(void *arg, const struct reply_part *part);

static void seek(struct reply *r, const char *const texts[], size_t n, enum what what)
{
    for (size_t i = 0; i < n && texts[i]; i++)
        r->marks[r->n_marks++] = (struct mark){texts[i], what};
}

/* Which marks count in this answer. */
static void seek_all(struct reply *r)
{
    const struct reply_thoughts *t = r->thinks ? r->thoughts : NULL;
    const struct reply_frame *frame = t ? t->frame : NULL;

    r->n_marks = 0;
    if (t) {
        seek(r, t->begin, ARRAY_LEN(t->begin), BEGIN);
        seek(r, t->end, ARRAY_LEN(t->end), END);
        seek(r, t->calls, ARRAY_LEN(t->calls), CALL_OF_THOUGHTS);
    }
    if (r->calls) {
        seek(r, &r->calls->begin, 1, CALL);
        frame = frame ? frame : r->calls->frame;
    }
    if (frame) {
        seek(r, &frame->header, 1, HEAD);
        seek(r, frame->marks, ARRAY_LEN(frame->marks), FRAME);
    }
    r->place = frame && frame->header ? HEADER : SAYING;
}

struct reply *reply_new(const struct reply_thoughts *thoughts, const struct reply_calls *calls,
                        struct str named, reply_fn tell, void *arg)
{
    const struct harmony_dialect *of_thoughts = thoughts ? thoughts->dialect : NULL;
    const struct harmony_dialect *of_calls = calls ? calls->dialect : NULL;
    struct reply *r = xcalloc(1, sizeof(*r));

    *r = (struct reply){.thoughts = of_thoughts ? NULL : thoughts,
                        .calls = of_calls ? NULL : calls,
                        .named = named,
                        .tell = tell,
                        .arg = arg};
    if (of_thoughts || of_calls) {
        r->thoughts = NULL;
        r->harmony = harmony_new(of_thoughts ? of_thoughts : of_calls, of_thoughts != NULL,
                                 of_calls != NULL, from_harmony, r);
    }
    r->said_first = r->thoughts ? r->thoughts->said_first : NULL;
    (void)reply_expect_thoughts(r, REPLY_ASKED_NOTHING);
    return r;
}

bool reply_expect_thoughts(struct reply *r, enum reply_asked asked)
{
    unsigned how = r->thoughts ? r->thoughts->how : 0;

    if (asked == REPLY_MODE_CHAT)
        asked = how & REPLY_BY_MODE ? REPLY_ASKED_NONE : REPLY_ASKED_NOTHING;
    if (asked == REPLY_MODE_THINKING)
        asked = how & REPLY_BY_MODE ? REPLY_ASKED : REPLY_ASKED_NOTHING;
    r->thinks = r->thoughts && !((how & REPLY_IF_ASKED) && asked < REPLY_ASKED) &&
                !((how & REPLY_UNLESS_NONE) && asked == REPLY_ASKED_NONE);
    seek_all(r);
    if (!r->thinks)
        return false;
    if ((how & REPLY_INSIDE) || ((how & REPLY_INSIDE_WITH_EFFORT) && asked == REPLY_ASKED_EFFORT))
        r->place = THINKING;
    else if (how & REPLY_EITHER)
        r->place = UNSURE;
    return true;
}

void reply_open_thoughts(struct reply *r)
{
    if (!r->thinks)
        return;
    r->place = THINKING;
    r->opened = true;
    r->begun = true; /* blanks at the begin are theirs */
}

void reply_know_tools(struct reply *r, const struct json *tools)
{
    r->tools = tools;
}

struct reply *reply_free(struct reply *r)
{
    if (!r)
        return NULL;
    r->harmony = harmony_free(r->harmony);
    buf_done(&r->held);
    free(r);
    return NULL;
}

static void tell(struct reply *r, enum reply_kind kind, struct str text)
{
    if (text.len == 0)
        return;
    r->told_thought |= kind == REPLY_THOUGHT;
    r->told_content |= kind == REPLY_CONTENT;
    r->tell(r->arg, &(struct reply_part){.kind = kind, .text = text});
}

size_t reply_find_mark(struct str text, const char *mark, bool *ret_found)
{
    size_t n = strlen(mark);
    const char *hit = text.len ? memmem(text.ptr, text.len, mark, n) : NULL;

    *ret_found = hit != NULL;
    if (hit)
        return (size_t)(hit - text.ptr);
    for (size_t keep = MIN(n - 1, text.len); keep > 0; keep--)
        if (memcmp(text.ptr + text.len - keep, mark, keep) == 0)
            return text.len - keep;
    return text.len;
}

/* Bytes of what is held before the first mark of those kinds, a set of bits, or what may become
 * one; *ret NULL or that mark. */
static size_t find_first(const struct reply *r, unsigned kinds, const struct mark **ret)
{
    size_t best = r->held.len;

    *ret = NULL;
    for (size_t i = 0; i < r->n_marks; i++) {
        bool found;
        size_t n;

        if (!(kinds & 1u << r->marks[i].what))
            continue;
        n = reply_find_mark(buf_str(&r->held), r->marks[i].text, &found);
        if (n < best || (found && n == best && !*ret)) {
            best = n;
            *ret = found ? &r->marks[i] : NULL;
        }
    }
    return best;
}

/* --- calls ------------------------------------------------------------------------------------ */

/* Tells the calls that are in @text; false when it is not made of calls. */
static bool tell_calls(struct reply *r, struct str text)
{
    struct reply_found found = {.named = r->named, .tools = r->tools};
    bool ok = text.len <= REPLY_CALL_BYTES_MAX && r->calls->read(text, &found) && found.n > 0;

    if (ok)
        reply_tell_found(&found, r->tell, r->arg);
    buf_done(&found.text);
    return ok;
}

/* What was held back as a call, which has ended here, with the marks around it. */
static void settle_call(struct reply *r, size_t n, size_t n_end)
{
    struct str all = str_slice(buf_data(&r->held), n + n_end);
    bool marked = r->calls->begin && str_starts(all, str_from(r->calls->begin));
    size_t skip = marked ? strlen(r->calls->begin) : 0;

    if (!tell_calls(r, str_skip(str_head(all, n), skip)))
        tell(r, REPLY_CONTENT, all);
    r->told_content = true;
    buf_consume(&r->held, n + n_end);
    r->place = SAYING;
}

static bool call_on(struct reply *r, bool last)
{
    /* The mark that begins it may look like one that ends it. */
    struct str mark = str_from(r->calls->begin);
    bool marked = mark.len && str_starts(buf_str(&r->held), mark), found = false;
    size_t n = r->calls->end && marked ? mark.len : 0;
    struct str inside = str_skip(buf_str(&r->held), n);

    if (r->calls->bare && !marked)
        n = r->held.len; /* all of the answer, or none */
    else if (r->calls->end && r->calls->find_end)
        n += r->calls->find_end(inside, &found);
    else if (r->calls->end)
        n += reply_find_mark(inside, r->calls->end, &found);
    if (found)
        settle_call(r, n, strlen(r->calls->end));
    else if (last || r->held.len > REPLY_CALL_BYTES_MAX)
        settle_call(r, r->held.len, 0);
    return found;
}

/* Content of models whose calls need no mark, when it begins as one does. False while nobody can
 * tell: blanks go with what follows. */
static bool look_at_first(struct reply *r, struct str text)
{
    enum reply_bare bare = REPLY_BARE_NOT;

    text = str_trim(text);
    if (!r->calls || r->said || (r->calls->begin && !r->calls->first && !r->calls->bare))
        return true;
    if (r->calls->bare)
        bare = reply_begins_bare(text);
    if (text.len == 0 || bare == REPLY_BARE_PERHAPS)
        return false;
    r->said = true;
    if (r->calls->bare ? bare == REPLY_BARE : !r->calls->first || text.ptr[0] == r->calls->first)
        r->place = CALLING;
    return true;
}

/* --- steps: each false when more is needed to go on ------------------------------------------- */

/* An answer may begin with blanks, which are dropped where thoughts follow. */
static bool waits_for_more_than_blanks(struct reply *r, size_t *n, const struct mark *found)
{
    if (r->begun || !r->thinks)
        return false;
    if (str_trim(str_head(buf_str(&r->held), *n)).len) {
        r->begun = true;
    } else if (found && found->what == BEGIN) {
        buf_consume(&r->held, *n);
        *n = 0;
        r->begun = true;
    }
    return !r->begun && !found;
}

/* Where what is said has a mark of its own, that ends thoughts, too. */
static bool framed_ends(const struct reply_thoughts *t)
{
    return t->frame && !t->frame->header;
}

static bool think_on(struct reply *r, bool last)
{
    const struct mark *found;
    unsigned begin = r->opened ? 0 : 1u << BEGIN;
    unsigned frame = framed_ends(r->thoughts) ? 1u << FRAME : 0;
    size_t n = find_first(r, begin | frame | 1u << END | 1u << CALL_OF_THOUGHTS, &found);

    if (waits_for_more_than_blanks(r, &n, found) && !last)
        return false;
    n = last && !found ? r->held.len : n;
    tell(r, REPLY_THOUGHT, str_head(buf_str(&r->held), n));
    buf_consume(&r->held, n);
    if (!found)
        return false;
    if (found->what != CALL_OF_THOUGHTS)
        buf_consume(&r->held, strlen(found->text));
    r->opened = found->what == BEGIN && !(r->thoughts->how & REPLY_NO_MARKS);
    r->place = found->what != BEGIN ? SAYING : r->thoughts->label ? LABEL : THINKING;
    return true;
}

/* Content up to where thoughts or a call begin, or may begin. */
static bool say_on(struct reply *r, bool last)
{
    const struct mark *found;
    size_t n = find_first(r, ~(1u << CALL_OF_THOUGHTS), &found);

    if (waits_for_more_than_blanks(r, &n, found) && !last)
        return false;
    n = last && !found ? r->held.len : n;
    if (!look_at_first(r, str_head(buf_str(&r->held), n)) && !found && !last)
        return false;
    if (r->place == CALLING)
        return true;
    tell(r, REPLY_CONTENT, str_head(buf_str(&r->held), n));
    buf_consume(&r->held, n);
    if (!found)
        return false;
    if (found->what != CALL)
        buf_consume(&r->held, strlen(found->text));
    r->opened = found->what == BEGIN && !(r->thoughts->how & REPLY_NO_MARKS);
    r->place = found->what == CALL    ? CALLING
               : found->what == HEAD  ? HEADER
               : found->what == BEGIN ? (r->thoughts->label ? LABEL : THINKING)
                                      : SAYING;
    return true;
}

static bool label_on(struct reply *r, bool last)
{
    struct str label = str_from(r->thoughts->label), text = buf_str(&r->held);
    bool found = str_starts(text, label);

    if (!found && !last && str_starts(label, text))
        return false;
    if (found || (last && str_starts(label, text)))
        buf_consume(&r->held, MIN(label.len, text.len));
    r->place = THINKING;
    return true;
}

static bool is_unsure(struct reply *r, bool last)
{
    const struct mark *found;

    (void)find_first(r, ~0u, &found);
    if (!found && !last && r->held.len <= REPLY_CALL_BYTES_MAX)
        return false;
    r->place = found && (found->what == END || found->what == CALL_OF_THOUGHTS) ? THINKING : SAYING;
    return true;
}

/* A header needs its mark: that of the answer's first message is in the prompt. Two of them are not
 * one in the other: what stands between is said. */
static bool skip_header(struct reply *r, bool last)
{
    const struct mark *found;
    size_t n = find_first(r, ~0u, &found);

    if (!found && !last && r->held.len <= REPLY_CALL_BYTES_MAX)
        return false;
    if (found ? found->what != END && (r->begun || found->what != HEAD) : r->begun)
        buf_consume(&r->held, n);
    r->begun = true;
    r->place = SAYING;
    return true;
}

static bool step(struct reply *r, bool last)
{
    switch (r->place) {
    case UNSURE:
        return is_unsure(r, last);
    case HEADER:
        return skip_header(r, last);
    case LABEL:
        return label_on(r, last);
    case THINKING:
        return think_on(r, last);
    case CALLING:
        return call_on(r, last);
    case SAYING:
        break;
    }
    return say_on(r, last);
}

/* --- the way of it ---------------------------------------------------------------------------- */

static void read_on(struct reply *r, struct str text)
{
    buf_put_str(&r->held, text);
    while (r->held.len && step(r, false))
        ;
    r->told_content |= r->place == CALLING && text.len;
}

static void from_harmony(void *arg, const struct reply_part *part)
{
    struct reply *r = arg;

    if (part->kind == REPLY_CONTENT)
        read_on(r, part->text);
    else
        r->tell(r->arg, part);
    r->told_thought |= part->kind == REPLY_THOUGHT;
    r->told_content |= part->kind == REPLY_CALL;
}

bool reply_push(struct reply *r, struct str text)
{
    r->told_thought = r->told_content = false;
    if (r->said_first && text.len) {
        tell(r, REPLY_CONTENT, str_from(r->said_first));
        r->said_first = NULL;
    }
    if (r->harmony)
        harmony_push(r->harmony, text);
    else
        read_on(r, text);
    if (r->told_thought || r->told_content)
        r->in_thoughts = r->told_thought;
    return r->in_thoughts;
}

void reply_end(struct reply *r)
{
    if (r->harmony)
        harmony_end(r->harmony);
    while (r->held.len && step(r, true))
        ;
}
