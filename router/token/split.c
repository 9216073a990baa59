/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/split.h"

#include <errno.h>
#include <inttypes.h>

#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "lib/base/mem.h"
#include "router/token/decode.h"
#include "router/token/newer.h"
#include "router/token/regex.h"
#include "router/token/scripts.h"
#include "router/token/utf8.h"

#include "router/token/punctuation.inc"

enum { SCAN_BATCH = 256, FIXED_LENGTH_MAX = 65535 };

/* --- loading ---------------------------------------------------------------------------------- */

static int load_any(struct split *sp, const struct json *config, int depth, struct err *e);

static struct split_step *add_step(struct split *sp, enum split_kind kind)
{
    struct split_step *step = &sp->steps[sp->n_steps++];

    *step = (struct split_step){.kind = kind};
    return step;
}

static int add_regex(struct split *sp, const char *pattern, enum regex_flavour flavour,
                     enum split_behavior behavior, struct err *e)
{
    struct split_step *step = add_step(sp, SPLIT_REGEX);

    step->behavior = behavior;
    step->letters = sp->byte_level;
    if (flavour == REGEX_ONIGURUMA)
        step->scan = scan_of(str_from(pattern));
    return regex_compile(&step->regex, str_from(pattern), flavour, e);
}

static int add_punctuation(struct split *sp, enum split_behavior behavior, struct err *e)
{
    int r = add_regex(sp, PUNCTUATION, REGEX_RUST, behavior, e);

    sp->steps[sp->n_steps - 1].exact = true;
    return r;
}

static int parse_behavior(const char *name, enum split_behavior *ret, struct err *e)
{
    static const char *const names[] = {
        [SPLIT_ISOLATED] = "Isolated",
        [SPLIT_REMOVED] = "Removed",
        [SPLIT_CONTIGUOUS] = "Contiguous",
        [SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
    };

    for (size_t i = 0; name && i < ARRAY_LEN(names); i++)
        if (strcmp(name, names[i]) == 0) {
            *ret = (enum split_behavior)i;
            return 0;
        }
    return err_set(e, -ENOTSUP, "behavior \"%s\"", name ? name : "");
}

static int load_byte_level(struct split *sp, const struct json *config, struct err *e)
{
    bool prefix_space = true, use_regex = true;
    int r = 0;

    (void)json_get_bool(config, "add_prefix_space", &prefix_space);
    (void)json_get_bool(config, "use_regex", &use_regex);
    if (prefix_space)
        (void)add_step(sp, SPLIT_PREFIX_SPACE);
    if (use_regex)
        r = add_regex(sp, SCAN_PATTERN_GPT2, REGEX_ONIGURUMA, SPLIT_ISOLATED, e);
    sp->byte_level = true;
    return r;
}

static int load_split(struct split *sp, const struct json *config, struct err *e)
{
    const struct json *pattern = json_get(config, "pattern");
    const char *regex = json_get_cstr(pattern, "Regex"), *text = json_get_cstr(pattern, "String");
    enum split_behavior behavior;
    int r;

    if (!regex && !text)
        return err_set(e, -EINVAL, "pattern: neither Regex nor String");
    r = parse_behavior(json_get_cstr(config, "behavior"), &behavior, e);
    if (r == 0)
        r = add_regex(sp, regex ? regex : text, regex ? REGEX_ONIGURUMA : REGEX_LITERAL, behavior,
                      e);
    if (r == 0)
        (void)json_get_bool(config, "invert", &sp->steps[sp->n_steps - 1].invert);
    return r;
}

static int load_prepend(const struct json *config, enum split_prepend *ret, struct err *e)
{
    const char *scheme = json_get_cstr(config, "prepend_scheme");
    bool prefix_space = true;

    *ret = SPLIT_PREPEND_ALWAYS;
    if (!scheme) { /* older files have a switch instead */
        if (json_get_bool(config, "add_prefix_space", &prefix_space) && !prefix_space)
            *ret = SPLIT_PREPEND_NEVER;
    } else if (strcmp(scheme, "first") == 0) {
        *ret = SPLIT_PREPEND_FIRST;
    } else if (strcmp(scheme, "never") == 0) {
        *ret = SPLIT_PREPEND_NEVER;
    } else if (strcmp(scheme, "always") != 0) {
        return err_set(e, -EINVAL, "prepend_scheme \"%s\"", scheme);
    }
    return 0;
}

static int load_metaspace(struct split *sp, const struct json *config, struct err *e)
{
    struct split_step *step = add_step(sp, SPLIT_METASPACE);
    struct str mark = str_from(json_get_cstr(config, "replacement"));
    bool cut = true;
    int r;

    if (mark.len == 0 || mark.len != utf8_len(mark.ptr[0]))
        return err_set(e, -EINVAL, "replacement must be one character");
    memcpy(step->mark, mark.ptr, mark.len);
    step->mark_len = mark.len;
    r = load_prepend(config, &step->prepend, e);
    if (r < 0)
        return r;
    (void)json_get_bool(config, "split", &cut);
    step->behavior = SPLIT_MERGED_WITH_NEXT;
    return cut ? regex_compile(&step->regex, mark, REGEX_LITERAL, e) : 0;
}

static int load_sequence(struct split *sp, const struct json *config, int depth, struct err *e)
{
    size_t i = 0;

    JSON_FOREACH (child, json_get(config, "pretokenizers")) {
        int r = load_any(sp, child, depth + 1, e);

        if (r < 0)
            return err_wrap(e, r, "pretokenizers[%zu]", i);
        i++;
    }
    return 0;
}

static int load_digits(struct split *sp, const struct json *config, struct err *e)
{
    bool each = false;

    (void)json_get_bool(config, "individual_digits", &each);
    return add_regex(sp, "\\p{N}", REGEX_RUST, each ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, e);
}

static int load_punctuation(struct split *sp, const struct json *config, struct err *e)
{
    enum split_behavior behavior = SPLIT_ISOLATED;
    const char *name = json_get_cstr(config, "behavior");
    int r = name ? parse_behavior(name, &behavior, e) : 0;

    return r < 0 ? r : add_punctuation(sp, behavior, e);
}

static int load_whitespace(struct split *sp, struct err *e)
{
    int r = add_regex(sp, "\\w+|[^\\w\\s]+", REGEX_RUST, SPLIT_REMOVED, e);

    sp->steps[sp->n_steps - 1].invert = true;
    return r;
}

static int load_bert(struct split *sp, struct err *e)
{
    int r = add_regex(sp, "\\s", REGEX_RUST, SPLIT_REMOVED, e);

    return r < 0 ? r : add_punctuation(sp, SPLIT_ISOLATED, e);
}

static int load_delimiter(struct split *sp, const struct json *config, struct err *e)
{
    const char *delimiter = json_get_cstr(config, "delimiter");

    if (!delimiter || !*delimiter)
        return err_set(e, -EINVAL, "delimiter is missing");
    return add_regex(sp, delimiter, REGEX_LITERAL, SPLIT_REMOVED, e);
}

static int load_fixed_length(struct split *sp, const struct json *config, struct err *e)
{
    AUTO(buf_done) struct buf pattern = BUF_NULL;
    int64_t length = 5;
    int r;

    if (json_get(config, "length") && !json_get_i64(config, "length", &length))
        return err_set(e, -EINVAL, "length is no integer");
    if (length < 1 || length > FIXED_LENGTH_MAX)
        return err_set(e, -EINVAL, "length %" PRIi64, length);
    buf_printf(&pattern, "(?s:.{1,%" PRIi64 "})", length);
    r = add_regex(sp, buf_cstr(&pattern), REGEX_RUST, SPLIT_ISOLATED, e);
    sp->steps[sp->n_steps - 1].exact = true;
    return r;
}

static int load_typed(struct split *sp, const char *type, const struct json *config, int depth,
                      struct err *e)
{
    if (strcmp(type, "Sequence") == 0)
        return load_sequence(sp, config, depth, e);
    if (strcmp(type, "ByteLevel") == 0)
        return load_byte_level(sp, config, e);
    if (strcmp(type, "Split") == 0)
        return load_split(sp, config, e);
    if (strcmp(type, "Metaspace") == 0)
        return load_metaspace(sp, config, e);
    if (strcmp(type, "Digits") == 0)
        return load_digits(sp, config, e);
    if (strcmp(type, "Punctuation") == 0)
        return load_punctuation(sp, config, e);
    if (strcmp(type, "Whitespace") == 0)
        return load_whitespace(sp, e);
    if (strcmp(type, "WhitespaceSplit") == 0)
        return add_regex(sp, "\\s", REGEX_RUST, SPLIT_REMOVED, e);
    if (strcmp(type, "BertPreTokenizer") == 0)
        return load_bert(sp, e);
    if (strcmp(type, "UnicodeScripts") == 0) {
        (void)add_step(sp, SPLIT_SCRIPTS);
        return 0;
    }
    if (strcmp(type, "CharDelimiterSplit") == 0)
        return load_delimiter(sp, config, e);
    if (strcmp(type, "FixedLength") == 0)
        return load_fixed_length(sp, config, e);
    return err_set(e, -ENOTSUP, "type \"%s\" is not supported", type);
}

static int load_any(struct split *sp, const struct json *config, int depth, struct err *e)
{
    const char *type = json_get_cstr(config, "type");

    if (!type)
        return err_set(e, -EINVAL, "type is missing");
    if (sp->n_steps + 2 > SPLIT_MAX_STEPS || depth > SPLIT_MAX_STEPS)
        return err_set(e, -E2BIG, "more than %d steps", SPLIT_MAX_STEPS);
    /* What follows sees the byte alphabet and not the text. */
    if (sp->byte_level && (strcmp(type, "ByteLevel") == 0 || strcmp(type, "Metaspace") == 0 ||
                           strcmp(type, "UnicodeScripts") == 0))
        return err_set(e, -ENOTSUP, "%s after ByteLevel is not supported", type);
    return load_typed(sp, type, config, depth, e);
}

int split_load(struct split *sp, const struct json *config, struct err *e)
{
    return !config || json_is_null(config) ? 0 : load_any(sp, config, 0, e);
}

void split_done(struct split *sp)
{
    for (size_t i = 0; i < sp->n_steps; i++)
        (void)regex_free(sp->steps[i].regex);
    *sp = (struct split){0};
}

/* --- cutting ---------------------------------------------------------------------------------- */

void split_work_done(struct split_work *w)
{
    free(w->spans.ptr);
    free(w->next.ptr);
    buf_done(&w->text);
    buf_done(&w->rewritten);
    buf_done(&w->matched);
    buf_done(&w->letters);
    *w = (struct split_work){0};
}

/* Room for @n more. */
static struct split_span *reserve_spans(struct split_spans *s, size_t n)
{
    if (s->cap - s->len < n) {
        s->cap = s->cap ? s->cap * 2 : 1024;
        s->ptr = xreallocarray(s->ptr, s->cap, sizeof(*s->ptr));
    }
    return s->ptr + s->len;
}

static void push_span(struct split_spans *s, size_t start, size_t end)
{
    if (start == end)
        return;
    (void)reserve_spans(s, 1);
    s->ptr[s->len++] = (struct split_span){(uint32_t)start, (uint32_t)end};
}

/* Assembles the spans of one stretch of text from its alternating matches and gaps. */
struct cutter {
    struct split_spans *out;
    enum split_behavior behavior;
    bool invert;
    size_t first;     /* out->len where this stretch began */
    bool after_match; /* the piece before was a match */
    size_t held;      /* merged with next: start of a match that waits */
    bool holds;
};

static void cut_contiguous(struct cutter *c, size_t start, size_t end, bool extend)
{
    if (extend && c->out->len > c->first)
        c->out->ptr[c->out->len - 1].end = (uint32_t)end;
    else
        push_span(c->out, start, end);
}

static void cut_before_next(struct cutter *c, size_t start, size_t end, bool match)
{
    if (!match) {
        push_span(c->out, c->holds ? c->held : start, end);
        c->holds = false;
        return;
    }
    if (c->holds)
        push_span(c->out, c->held, start);
    c->held = start;
    c->holds = true;
}

static void cut(struct cutter *c, size_t start, size_t end, bool match)
{
    match ^= c->invert;
    switch (c->behavior) {
    case SPLIT_ISOLATED:
        push_span(c->out, start, end);
        break;
    case SPLIT_REMOVED:
        if (!match)
            push_span(c->out, start, end);
        break;
    case SPLIT_CONTIGUOUS:
        cut_contiguous(c, start, end, match == c->after_match);
        break;
    case SPLIT_MERGED_WITH_PREVIOUS:
        cut_contiguous(c, start, end, match && !c->after_match);
        break;
    case SPLIT_MERGED_WITH_NEXT:
        cut_before_next(c, start, end, match);
        break;
    }
    c->after_match = match;
}

/* Whether each match becomes a word, when there is nothing between them. */
static bool keeps_matches(const struct split_step *step)
{
    return step->behavior == SPLIT_ISOLATED || (step->behavior == SPLIT_REMOVED && step->invert);
}

/* Patterns that are matched by hand match everywhere: their matches are the words. */
static int cut_scanned(const struct split_step *step, struct split_spans *out,
                       struct regex_scratch *scratch, struct str part, size_t base)
{
    size_t from = 0, start, end, n;

    while (from < part.len) {
        struct split_span *spans = reserve_spans(out, SCAN_BATCH);
        int r = REGEX_FOUND;

        n = scan_matches(step->scan, part, from, spans, SCAN_BATCH);
        from = n > 0 ? spans[n - 1].end : from;
        for (size_t i = 0; base > 0 && i < n; i++) {
            spans[i].start += (uint32_t)base;
            spans[i].end += (uint32_t)base;
        }
        out->len += n;
        if (n == SCAN_BATCH || from == part.len)
            continue;
        r = regex_find(step->regex, scratch, part, from, &start, &end);
        if (r < 0)
            return r;
        push_span(out, base + from, base + end);
        from = end;
    }
    return 0;
}

static int cut_span(const struct split_step *step, struct split_spans *out,
                    struct regex_scratch *scratch, struct str text, struct split_span span)
{
    struct cutter c = {
        .out = out, .behavior = step->behavior, .invert = step->invert, .first = out->len};
    struct str part = {text.ptr + span.start, span.end - span.start};
    size_t done = 0, from = 0, start, end;

    if (step->scan.kind != SCAN_NONE && keeps_matches(step))
        return cut_scanned(step, out, scratch, part, span.start);
    while (from < part.len) {
        int r = regex_find(step->regex, scratch, part, from, &start, &end);

        if (r < 0)
            return r;
        if (r == 0)
            break;
        if (start == end) { /* an empty match cuts nothing */
            from = end + (end < part.len ? utf8_len(part.ptr[end]) : 1);
            continue;
        }
        if (done < start)
            cut(&c, span.start + done, span.start + start, false);
        cut(&c, span.start + start, span.start + end, true);
        done = from = end;
    }
    if (done < part.len)
        cut(&c, span.start + done, span.end, false);
    if (c.holds)
        push_span(out, c.held, span.end);
    return 0;
}

static void swap_spans(struct split_work *w)
{
    struct split_spans old = w->spans;

    w->spans = w->next;
    w->next = old;
    w->next.len = 0;
}

static int run_regex(const struct split_step *step, struct split_work *w,
                     struct regex_scratch *scratch, struct str text)
{
    for (size_t i = 0; i < w->spans.len; i++) {
        int r = cut_span(step, &w->next, scratch, text, w->spans.ptr[i]);

        if (r < 0)
            return r;
    }
    swap_spans(w);
    return 0;
}

/* Cuts where the script changes. What goes with any script goes with the one before; there the library
 * drops what has none before it. */
static void run_scripts(struct split_work *w, struct str text)
{
    for (size_t i = 0; i < w->spans.len; i++) {
        struct split_span span = w->spans.ptr[i];
        uint8_t last = 0;
        size_t start = span.end;

        for (size_t at = span.start; at < span.end; at += utf8_len(text.ptr[at])) {
            uint8_t script = scripts_of(utf8_get(text.ptr + at));

            if (script == 0 || script == last)
                continue;
            if (last)
                push_span(&w->next, start, at);
            start = at;
            last = script;
        }
        push_span(&w->next, start, span.end);
    }
    swap_spans(w);
}

/* The same over the letters that stand for the bytes of each span, of which no pattern sees more. */
static int run_on_letters(const struct split_step *step, struct split_work *w,
                          struct regex_scratch *scratch, struct str text)
{
    for (size_t i = 0; i < w->spans.len; i++) {
        struct split_span span = w->spans.ptr[i];
        size_t first = w->next.len, at = 0, byte = span.start;
        int r;

        buf_clear(&w->letters);
        decode_put_letters(str_slice(text.ptr + span.start, span.end - span.start), &w->letters);
        r = cut_span(step, &w->next, scratch, buf_str(&w->letters),
                     (struct split_span){0, (uint32_t)w->letters.len});
        if (r < 0)
            return r;
        for (size_t k = first; k < w->next.len; k++) {
            struct split_span *cut = &w->next.ptr[k];

            for (; at < cut->start; byte++)
                at += utf8_len(buf_data(&w->letters)[at]);
            cut->start = (uint32_t)byte;
            for (; at < cut->end; byte++)
                at += utf8_len(buf_data(&w->letters)[at]);
            cut->end = (uint32_t)byte;
        }
    }
    swap_spans(w);
    return 0;
}

static void put_replaced(struct buf *out, struct str part, struct str mark)
{
    struct str word;
    bool more = part.len > 0;

    while (more) {
        more = str_cut(&part, ' ', &word);
        buf_put_str(out, word);
        if (more)
            buf_put_str(out, mark);
    }
}

/* Copies every span to a new text, with a mark before it where one is due. */
static struct str rewrite(const struct split_step *step, struct split_work *w, struct str text,
                          bool at_start)
{
    struct str mark = {step->mark, step->mark_len};
    struct buf old;

    buf_clear(&w->rewritten);
    for (size_t i = 0; i < w->spans.len; i++) {
        struct split_span span = w->spans.ptr[i];
        struct str part = {text.ptr + span.start, span.end - span.start};
        size_t start = w->rewritten.len;

        if (step->kind == SPLIT_PREFIX_SPACE) {
            if (part.ptr[0] != ' ')
                buf_put_char(&w->rewritten, ' ');
            buf_put_str(&w->rewritten, part);
        } else {
            bool due = step->prepend == SPLIT_PREPEND_ALWAYS ||
                       (step->prepend == SPLIT_PREPEND_FIRST && at_start && span.start == 0);

            if (due && part.ptr[0] != ' ' && !str_starts(part, mark))
                buf_put_str(&w->rewritten, mark);
            put_replaced(&w->rewritten, part, mark);
        }
        push_span(&w->next, start, w->rewritten.len);
    }
    swap_spans(w);
    old = w->text;
    w->text = w->rewritten;
    w->rewritten = old;
    return buf_str(&w->text);
}

int split_run(const struct split *sp, struct split_work *w, struct regex_scratch *scratch,
              struct str text, bool at_start, struct str *ret_text)
{
    struct str matched = text;
    int r = 0;

    if (sp->n_steps > 0)
        matched = newer_replaced(text, &w->matched);
    w->spans.len = w->next.len = 0;
    push_span(&w->spans, 0, text.len);
    for (size_t i = 0; r == 0 && i < sp->n_steps; i++) {
        const struct split_step *step = &sp->steps[i];

        if (step->kind == SPLIT_SCRIPTS) {
            run_scripts(w, text);
            continue;
        }
        if (step->kind != SPLIT_REGEX) {
            text = rewrite(step, w, text, at_start);
            matched = newer_replaced(text, &w->matched);
        }
        if (step->letters)
            r = run_on_letters(step, w, scratch, text);
        else if (step->regex)
            r = run_regex(step, w, scratch, step->exact ? text : matched);
    }
    if (r == 0)
        *ret_text = text;
    return r;
}
