/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/normalize.h"

#include <errno.h>

#include "lib/base/digest.h"
#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "router/token/added.h"
#include "router/token/chars.h"
#include "router/token/decode.h"
#include "router/token/regex.h"
#include "router/token/utf8.h"

enum { BERT_STEPS = 5 }; /* the most that one type becomes */

/* --- single characters ------------------------------------------------------------------------ */

static void put_unaccented(struct buf *out, uint32_t cp)
{
    if (!chars_is_mark(cp))
        utf8_append(out, cp);
}

static void put_spacing(struct buf *out, uint32_t cp)
{
    if (!chars_is_nonspacing(cp))
        utf8_append(out, cp);
}

static void put_clean(struct buf *out, uint32_t cp)
{
    if (!chars_is_control(cp))
        utf8_append(out, utf8_is_space(cp) ? ' ' : cp);
}

static void put_apart(struct buf *out, uint32_t cp)
{
    bool apart = chars_is_ideograph(cp);

    buf_put_cstr(out, apart ? " " : "");
    utf8_append(out, cp);
    buf_put_cstr(out, apart ? " " : "");
}

static void put_letters(struct buf *out, uint32_t cp)
{
    char bytes[4];

    decode_put_letters(str_slice(bytes, utf8_put(cp, bytes)), out);
}

/* Rules of SentencePiece's nmt_nfkc, as the library has them. */
static void put_nmt(struct buf *out, uint32_t cp)
{
    bool gone = (cp >= 0x01 && cp <= 0x08) || cp == 0x0b || (cp >= 0x0e && cp <= 0x1f) ||
                cp == 0x7f || cp == 0x8f || cp == 0x9f;
    bool blank = cp == 0x09 || cp == 0x0a || cp == 0x0c || cp == 0x0d || cp == 0x1680 ||
                 (cp >= 0x200b && cp <= 0x200f) || cp == 0x2028 || cp == 0x2029 || cp == 0x2581 ||
                 cp == 0xfeff || cp == 0xfffd;

    if (!gone)
        utf8_append(out, blank ? ' ' : cp);
}

/* --- loading ---------------------------------------------------------------------------------- */

static struct normalize_step *add_step(struct normalize *n, enum normalize_kind kind)
{
    struct normalize_step *step = &n->steps[n->n_steps++];

    *step = (struct normalize_step){.kind = kind};
    return step;
}

static void add_each(struct normalize *n, void (*put)(struct buf *, uint32_t))
{
    add_step(n, NORMALIZE_EACH)->put = put;
}

static int load_prepend(struct normalize *n, const struct json *config, struct err *e)
{
    const char *text = json_get_cstr(config, "prepend");

    if (!text)
        return err_set(e, -EINVAL, "prepend is missing");
    add_step(n, NORMALIZE_PREPEND)->content = xstrdup(text);
    return 0;
}

static int load_replace(struct normalize *n, const struct json *config, struct err *e)
{
    const struct json *pattern = json_get(config, "pattern");
    const char *regex = json_get_cstr(pattern, "Regex"), *text = json_get_cstr(pattern, "String");
    const char *content = json_get_cstr(config, "content");
    struct normalize_step *step;

    if (!content || (!regex && !text) || (text && !*text))
        return err_set(e, -EINVAL, "pattern or content is missing");
    step = add_step(n, text ? NORMALIZE_REPLACE : NORMALIZE_REGEX);
    step->content = xstrdup(content);
    n->drops |= !*content;
    if (!text)
        return regex_compile(&step->regex, str_from(regex), REGEX_ONIGURUMA, e);
    step->pattern = xstrdup(text);
    return 0;
}

static int load_form(struct normalize *n, const char *type)
{
    static const char *const names[] = {
        [FORM_NFC] = "NFC", [FORM_NFD] = "NFD", [FORM_NFKC] = "NFKC", [FORM_NFKD] = "NFKD"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(type, names[i]) == 0) {
            add_step(n, NORMALIZE_FORM)->form = (enum form)i;
            return 0;
        }
    return -ENOENT;
}

static int load_strip(struct normalize *n, const struct json *config)
{
    struct normalize_step *step = add_step(n, NORMALIZE_STRIP);

    (void)json_get_bool(config, "strip_left", &step->left);
    (void)json_get_bool(config, "strip_right", &step->right);
    return 0;
}

/* BERT's: each switch is a step of its own; strip_accents follows lowercase unless it is given. */
static int load_bert(struct normalize *n, const struct json *config)
{
    bool clean = true, cjk = true, lower = true, accents;

    (void)json_get_bool(config, "clean_text", &clean);
    (void)json_get_bool(config, "handle_chinese_chars", &cjk);
    (void)json_get_bool(config, "lowercase", &lower);
    accents = lower;
    n->drops = true;
    (void)json_get_bool(config, "strip_accents", &accents);
    if (clean)
        add_each(n, put_clean);
    if (cjk)
        add_each(n, put_apart);
    if (accents) {
        add_step(n, NORMALIZE_FORM)->form = FORM_NFD;
        add_each(n, put_spacing);
    }
    if (lower)
        add_each(n, chars_put_lower);
    return 0;
}

static int load_charsmap(struct normalize *n, const struct json *config, struct err *e)
{
    AUTO(buf_done) struct buf bytes = BUF_NULL;
    const char *text = json_get_cstr(config, "precompiled_charsmap");

    if (text && !base64_decode(&bytes, str_from(text)))
        return err_set(e, -EINVAL, "precompiled_charsmap is not base64");
    n->drops = true;
    return charsmap_load(&add_step(n, NORMALIZE_CHARSMAP)->charsmap, buf_str(&bytes), e);
}

/* Types without options; -ENOENT when @type is none. */
static int load_plain(struct normalize *n, const char *type)
{
    static const struct {
        const char *type;
        void (*put)(struct buf *out, uint32_t cp);
    } plain[] = {
        {"ByteLevel", put_letters},
        {"Lowercase", chars_put_lower},
        {"StripAccents", put_unaccented},
        {"Nmt", put_nmt},
    };

    for (size_t i = 0; i < ARRAY_LEN(plain); i++)
        if (strcmp(type, plain[i].type) == 0) {
            add_each(n, plain[i].put);
            return 0;
        }
    return load_form(n, type);
}

static int load_any(struct normalize *n, const struct json *config, int depth, struct err *e);

static int load_sequence(struct normalize *n, const struct json *config, int depth, struct err *e)
{
    size_t i = 0;

    JSON_FOREACH (child, json_get(config, "normalizers")) {
        int r = load_any(n, child, depth + 1, e);

        if (r < 0)
            return err_wrap(e, r, "normalizers[%zu]", i);
        i++;
    }
    return 0;
}

static int load_any(struct normalize *n, const struct json *config, int depth, struct err *e)
{
    const char *type = json_get_cstr(config, "type");

    if (!type)
        return err_set(e, -EINVAL, "type is missing");
    if (n->n_steps + BERT_STEPS > NORMALIZE_MAX_STEPS || depth > NORMALIZE_MAX_STEPS)
        return err_set(e, -E2BIG, "too many steps");
    if (strcmp(type, "Sequence") == 0)
        return load_sequence(n, config, depth, e);
    if (strcmp(type, "Prepend") == 0)
        return load_prepend(n, config, e);
    if (strcmp(type, "Replace") == 0)
        return load_replace(n, config, e);
    if (strcmp(type, "Precompiled") == 0)
        return load_charsmap(n, config, e);
    if (strcmp(type, "BertNormalizer") == 0)
        return load_bert(n, config);
    n->drops |=
        strcmp(type, "Strip") == 0 || strcmp(type, "StripAccents") == 0 || strcmp(type, "Nmt") == 0;
    if (strcmp(type, "Strip") == 0)
        return load_strip(n, config);
    return load_plain(n, type) == 0 ? 0
                                    : err_set(e, -ENOTSUP, "type \"%s\" is not supported", type);
}

int normalize_load(struct normalize *n, const struct json *config, struct err *e)
{
    return !config || json_is_null(config) ? 0 : load_any(n, config, 0, e);
}

int normalize_load_pieces(struct normalize *n, const struct normalize_pieces *p, struct str map,
                          struct err *e)
{
    struct normalize_step *step = add_step(n, NORMALIZE_PIECES);

    step->pieces = *p;
    n->drops = true;
    return charsmap_load(&step->charsmap, map, e);
}

void normalize_done(struct normalize *n)
{
    for (size_t i = 0; i < n->n_steps; i++) {
        (void)regex_free(n->steps[i].regex);
        free(n->steps[i].pattern);
        free(n->steps[i].content);
        charsmap_done(&n->steps[i].charsmap);
        if (n->steps[i].pieces.kept)
            added_done(n->steps[i].pieces.kept);
        free(n->steps[i].pieces.kept);
    }
    *n = (struct normalize){0};
}

/* --- running ---------------------------------------------------------------------------------- */

void normalize_work_done(struct normalize_work *w)
{
    buf_done(&w->text);
    buf_done(&w->next);
}

static int replace_text(const struct normalize_step *step, struct str text, size_t limit,
                        struct buf *out)
{
    struct str pattern = str_from(step->pattern), content = str_from(step->content);

    while (text.len > 0) {
        const char *hit = pattern.len == 1 ? memchr(text.ptr, pattern.ptr[0], text.len)
                                           : memmem(text.ptr, text.len, pattern.ptr, pattern.len);

        if (!hit)
            break;
        buf_put(out, text.ptr, (size_t)(hit - text.ptr));
        buf_put_str(out, content);
        if (out->len > limit)
            return -E2BIG;
        text = str_skip(text, (size_t)(hit - text.ptr) + pattern.len);
    }
    buf_put_str(out, text);
    return 0;
}

static int replace_matches(const struct normalize_step *step, struct regex_scratch *scratch,
                           struct str text, size_t limit, struct buf *out)
{
    size_t done = 0, from = 0, start, end;

    while (from <= text.len) {
        int r = regex_find(step->regex, scratch, text, from, &start, &end);

        if (r < 0)
            return r;
        if (r == 0)
            break;
        buf_put(out, text.ptr + done, start - done);
        buf_put_cstr(out, step->content);
        if (out->len > limit)
            return -E2BIG;
        done = end;
        from = end + (start < end ? 0 : end < text.len ? utf8_len(text.ptr[end]) : 1);
    }
    buf_put(out, text.ptr + done, text.len - done);
    return 0;
}

static void put_stripped(const struct normalize_step *step, struct str text, struct buf *out)
{
    const char *end = text.ptr + text.len;

    while (step->left && text.ptr < end && utf8_is_space(utf8_get(text.ptr)))
        text.ptr += utf8_len(*text.ptr);
    while (step->right && end > text.ptr && utf8_is_space(utf8_get(utf8_prev(text.ptr, end))))
        end = utf8_prev(text.ptr, end);
    buf_put(out, text.ptr, (size_t)(end - text.ptr));
}

/* What the beginning of *@text becomes, which is taken off it. */
static struct str next_piece(const struct normalize_step *step, struct str *text)
{
    size_t n = added_prefix(step->pieces.kept, *text);
    struct str piece = str_slice(text->ptr, n);

    if (n == 0)
        n = charsmap_longest(&step->charsmap, *text, &piece);
    if (n == 0) {
        n = utf8_len(text->ptr[0]);
        piece = str_slice(text->ptr, n);
    }
    *text = str_skip(*text, n);
    return piece;
}

static void put_marked(const struct normalize_pieces *p, struct str piece, struct buf *out)
{
    for (size_t i = 0; i < piece.len; i++)
        if (piece.ptr[i] == ' ')
            buf_put_cstr(out, p->mark);
        else
            buf_put_char(out, piece.ptr[i]);
}

static int put_pieces(const struct normalize_step *step, struct str text, bool at_start,
                      size_t limit, struct buf *out)
{
    const struct normalize_pieces *p = &step->pieces;
    bool after_blank = p->squeezes;

    for (struct str rest = text; p->squeezes && text.len > 0; text = rest)
        if (!str_is(next_piece(step, &rest), " "))
            break;
    if (text.len == 0)
        return 0;
    if (p->prefix && (at_start || !p->first_only))
        buf_put_cstr(out, p->mark);
    while (text.len > 0) {
        struct str piece = next_piece(step, &text);

        while (after_blank && str_starts(piece, STR(" ")))
            piece = str_skip(piece, 1);
        put_marked(p, piece, out);
        if (piece.len > 0)
            after_blank = p->squeezes && str_ends(piece, STR(" "));
        if (out->len > limit)
            return -E2BIG;
    }
    while (p->squeezes && str_ends(buf_str(out), str_from(p->mark)))
        buf_truncate(out, out->len - strlen(p->mark));
    if (p->suffix)
        buf_put_cstr(out, p->mark);
    return 0;
}

static int run_step(const struct normalize_step *step, struct regex_scratch *scratch,
                    struct str text, bool at_start, size_t limit, struct buf *out)
{
    switch (step->kind) {
    case NORMALIZE_PREPEND:
        buf_put_cstr(out, step->content);
        buf_put_str(out, text);
        return 0;
    case NORMALIZE_REPLACE:
        return replace_text(step, text, limit, out);
    case NORMALIZE_REGEX:
        return replace_matches(step, scratch, text, limit, out);
    case NORMALIZE_FORM:
        form_apply(step->form, text, limit, out);
        return 0;
    case NORMALIZE_CHARSMAP:
        return charsmap_apply(&step->charsmap, scratch, text, limit, out);
    case NORMALIZE_STRIP:
        put_stripped(step, text, out);
        return 0;
    case NORMALIZE_EACH:
        for (size_t i = 0; i < text.len; i += utf8_len(text.ptr[i]))
            step->put(out, utf8_get(text.ptr + i));
        return 0;
    case NORMALIZE_PIECES:
        return put_pieces(step, text, at_start, limit, out);
    }
    return 0;
}

int normalize_run(const struct normalize *n, struct normalize_work *w,
                  struct regex_scratch *scratch, struct str text, bool at_start, size_t limit,
                  struct str *ret)
{
    for (size_t i = 0; text.len > 0 && i < n->n_steps; i++) {
        const struct normalize_step *step = &n->steps[i];
        struct buf done;
        int r;

        if (step->kind == NORMALIZE_FORM && form_is(step->form, text))
            continue;
        buf_clear(&w->next);
        r = run_step(step, scratch, text, at_start, limit, &w->next);
        if (r < 0 || w->next.len > limit)
            return -E2BIG;
        done = w->next;
        w->next = w->text;
        w->text = done;
        text = buf_str(&w->text);
    }
    *ret = text;
    return 0;
}
