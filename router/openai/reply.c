/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/reply_calls.h"
#include "router/openai/reply_harmony.h"

#include <strings.h>

/* --- ways of writing thoughts ----------------------------------------------------------------- */

/* An answer begins with thoughts, whether or not the mark is there; the mark of a call ends them. */
enum { INSIDE = 1, CALL_ENDS = 2 };

struct reply_thoughts {
    const char *name;
    const char *begin, *end;
    unsigned how;
};

static const struct reply_thoughts THOUGHTS[] = {
    {"basic", "<think>", "</think>", 0}, /* the first: of unknown names */
    {"deepseek_r1", "<think>", "</think>", INSIDE},
    {"deepseek_v3_2", "<think>", "</think>", INSIDE},
    {"step3", "<think>", "</think>", INSIDE},
    {"kimi_k25", "<think>", "</think>", INSIDE},
    {"minimax_m2", "<think>", "</think>", INSIDE | CALL_ENDS},
    {"nemotron_nano", "<think>", "</think>", INSIDE},
    {"nemotron3", "<think>", "</think>", INSIDE},
    {"nemotron_v3", "<think>", "</think>", INSIDE},
    {"kimi", "\xe2\x97\x81think\xe2\x96\xb7", "\xe2\x97\x81/think\xe2\x96\xb7", 0},
    {"mistral", "[THINK]", "[/THINK]", 0},
    {"granite", "Here is my thought process:", "Here is my response:", 0},
    {"minimax_m3", "<mm:think>", "</mm:think>", 0},
    {"minimax-m3", "<mm:think>", "</mm:think>", 0},
};

static const struct reply_thoughts HARMONY_THOUGHTS = {.name = "gpt_oss"};

const struct reply_thoughts *reply_find_thoughts(const char *name)
{
    if (!name)
        return NULL;
    if (strcasecmp(name, HARMONY_THOUGHTS.name) == 0)
        return &HARMONY_THOUGHTS;
    for (size_t i = 0; i < ARRAY_LEN(THOUGHTS); i++)
        if (strcasecmp(name, THOUGHTS[i].name) == 0)
            return &THOUGHTS[i];
    return &THOUGHTS[0];
}

const struct reply_calls *reply_find_calls(const char *name)
{
    for (size_t i = 0; name && i < REPLY_CALLS_N; i++)
        if (strcasecmp(name, REPLY_CALLS[i].name) == 0)
            return &REPLY_CALLS[i];
    return name && strcasecmp(name, REPLY_HARMONY_CALLS.name) == 0 ? &REPLY_HARMONY_CALLS : NULL;
}

/* --- the stream ------------------------------------------------------------------------------- */

enum thinking { BEFORE, THINKING, THOUGHT };

struct reply {
    const struct reply_thoughts *thoughts;
    const struct reply_calls *calls;
    struct str named;
    const struct json *tools;
    struct harmony *harmony; /* reads all of it first; NULL = another format */
    reply_fn tell;
    void *arg;
    enum thinking thinking;
    bool told_thought, told_content; /* of the text that was pushed last */
    bool in_thoughts;                /* where the text pushed last was */
    bool inside_first;               /* it begins with thoughts, whether or not the mark is there */
    bool calling;                    /* behind the mark that begins a call */
    bool said;                       /* content that is more than blanks */
    struct buf held;                 /* not told apart yet: the end of the stream */
    struct buf inside;               /* content not told yet: what may begin a call, or a call */
};

static void from_harmony(void *arg, const struct reply_part *part);

struct reply *reply_new(const struct reply_thoughts *thoughts, const struct reply_calls *calls,
                        struct str named, reply_fn tell, void *arg)
{
    struct reply *r = xcalloc(1, sizeof(*r));

    *r = (struct reply){
        .thoughts = thoughts, .calls = calls, .named = named, .tell = tell, .arg = arg};
    r->thinking = !thoughts ? THOUGHT : BEFORE;
    r->inside_first = thoughts && (thoughts->how & INSIDE);
    if (thoughts != &HARMONY_THOUGHTS && calls != &REPLY_HARMONY_CALLS)
        return r;
    r->harmony =
        harmony_new(thoughts == &HARMONY_THOUGHTS, calls == &REPLY_HARMONY_CALLS, from_harmony, r);
    r->thinking = THOUGHT;
    if (calls == &REPLY_HARMONY_CALLS)
        r->calls = NULL;
    return r;
}

void reply_expect_no_thoughts(struct reply *r)
{
    r->inside_first = false;
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
    buf_done(&r->inside);
    free(r);
    return NULL;
}

static void tell(struct reply *r, enum reply_kind kind, struct str text)
{
    if (text.len == 0)
        return;
    r->told_thought |= kind == REPLY_THOUGHT;
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

/* --- calls ------------------------------------------------------------------------------------ */

/* Tells the calls that are in @text; false when it is not made of calls. */
static bool tell_calls(struct reply *r, struct str text)
{
    struct reply_found found = {.named = r->named, .tools = r->tools};
    const char *p;
    bool ok = text.len <= REPLY_CALL_BYTES_MAX && r->calls->read(text, &found) && found.n > 0;

    p = ok ? buf_cstr(&found.text) : NULL;
    for (size_t i = 0; ok && i < found.n; i++) {
        struct reply_part part = {.kind = REPLY_CALL, .name = str_from(p)};

        part.text = str_from(p + part.name.len + 1);
        part.id = str_from(part.text.ptr + part.text.len + 1);
        p = part.id.ptr + part.id.len + 1;
        part.more = i + 1 < found.n;
        r->tell(r->arg, &part);
    }
    buf_done(&found.text);
    return ok;
}

/* What was held back as a call, which has ended here, with the marks around it. */
static void settle_call(struct reply *r, size_t n, size_t n_end)
{
    struct str all = str_slice(buf_data(&r->inside), n + n_end);
    bool marked = r->calls->begin && str_starts(all, str_from(r->calls->begin));
    size_t skip = marked ? strlen(r->calls->begin) : 0;

    if (!tell_calls(r, str_skip(str_head(all, n), skip)))
        tell(r, REPLY_CONTENT, all);
    buf_consume(&r->inside, n + n_end);
    r->calling = false;
}

/* Content of models whose calls need no mark: all of it, when it begins as one does. False while
 * there are only blanks, which go with what follows. */
static bool look_at_first(struct reply *r)
{
    struct str text = str_trim(buf_str(&r->inside));

    if (r->said || (r->calls->begin && !r->calls->first))
        return true;
    if (text.len == 0)
        return false;
    r->said = true;
    r->calling = !r->calls->first || text.ptr[0] == r->calls->first;
    return true;
}

/* Tells content up to where a call begins, or may begin. */
static void content_step(struct reply *r)
{
    struct str text = buf_str(&r->inside);
    bool found = false;
    size_t n = text.len;

    if (r->calling || !look_at_first(r) || r->calling)
        return;
    if (r->calls->begin)
        n = reply_find_mark(text, r->calls->begin, &found);
    tell(r, REPLY_CONTENT, str_head(text, n));
    buf_consume(&r->inside, n);
    r->calling = found;
}

static void push_content(struct reply *r, struct str text)
{
    bool found;

    r->told_content |= text.len > 0;
    if (!r->calls) {
        tell(r, REPLY_CONTENT, text);
        return;
    }
    buf_put_str(&r->inside, text);
    for (;;) {
        size_t n;

        content_step(r);
        if (!r->calling || !r->calls->end)
            break;
        /* The mark that begins it may look like one that ends it. */
        n = strlen(r->calls->begin);
        n += reply_find_mark(str_skip(buf_str(&r->inside), n), r->calls->end, &found);
        if (!found)
            break;
        settle_call(r, n, strlen(r->calls->end));
    }
    if (r->calling && r->inside.len > REPLY_CALL_BYTES_MAX)
        settle_call(r, r->inside.len, 0);
}

/* --- thoughts --------------------------------------------------------------------------------- */

/* Thoughts up to the mark that ends them: what is false needs more. */
static bool think_on(struct reply *r, bool last)
{
    struct str text = buf_str(&r->held);
    bool found, calls = false;
    size_t n = reply_find_mark(text, r->thoughts->end, &found), skip = strlen(r->thoughts->end);

    if ((r->thoughts->how & CALL_ENDS) && r->calls && r->calls->begin) {
        size_t n_calls = reply_find_mark(text, r->calls->begin, &calls);

        if (n_calls < n || (calls && !found)) {
            found = calls;
            skip = 0;
        }
        n = MIN(n, n_calls);
    }
    n = last && !found ? text.len : n;
    tell(r, REPLY_THOUGHT, str_head(text, n));
    buf_consume(&r->held, n + (found ? skip : 0));
    if (found)
        r->thinking = THOUGHT;
    return found;
}

/* One step through what is held: false when more is needed to go on. */
static bool think(struct reply *r, bool last)
{
    struct str text = buf_str(&r->held);
    struct str begin = str_from(r->thoughts->begin);
    bool found = false;
    size_t n;

    if (r->thinking == BEFORE) {
        struct str blank_free = str_trim(text);

        n = blank_free.len ? (size_t)(blank_free.ptr - text.ptr) : text.len;
        found = str_starts(blank_free, begin);
        if (!last && !found && (blank_free.len == 0 || str_starts(begin, blank_free)))
            return false;
        if (found)
            buf_consume(&r->held, n + begin.len);
        r->thinking = found || r->inside_first ? THINKING : THOUGHT;
        return true;
    }
    if (r->thinking == THINKING) {
        return think_on(r, last);
    }
    push_content(r, text);
    buf_clear(&r->held);
    return false;
}

static void from_harmony(void *arg, const struct reply_part *part)
{
    struct reply *r = arg;

    if (part->kind == REPLY_CONTENT)
        push_content(r, part->text);
    else
        r->tell(r->arg, part);
    r->told_thought |= part->kind == REPLY_THOUGHT;
    r->told_content |= part->kind == REPLY_CALL;
}

static void read_on(struct reply *r, struct str text)
{
    if (r->harmony) {
        harmony_push(r->harmony, text);
        return;
    }
    if (r->thinking == THOUGHT) {
        push_content(r, text);
        return;
    }
    buf_put_str(&r->held, text);
    while (r->held.len && think(r, false))
        ;
}

bool reply_push(struct reply *r, struct str text)
{
    r->told_thought = r->told_content = false;
    read_on(r, text);
    if (r->told_thought || r->told_content)
        r->in_thoughts = r->told_thought;
    return r->in_thoughts;
}

void reply_end(struct reply *r)
{
    if (r->harmony)
        harmony_end(r->harmony);
    while (r->held.len && think(r, true))
        ;
    if (r->calling && r->inside.len)
        settle_call(r, r->inside.len, 0);
    tell(r, REPLY_CONTENT, buf_str(&r->inside));
    buf_clear(&r->inside);
}
