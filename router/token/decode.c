/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/decode.h"

#include <errno.h>

#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "router/token/utf8.h"

/* --- byte alphabet ---------------------------------------------------------------------------- */

/*
 * Printable bytes of Latin-1 stand for themselves, the other 68 for U+0100 and following, in order
 * (GPT-2).
 */
static bool stands_for_itself(uint32_t cp)
{
    return (cp >= 0x21 && cp <= 0x7e) || (cp >= 0xa1 && cp <= 0xac) || (cp >= 0xae && cp <= 0xff);
}

int decode_letter(uint32_t cp)
{
    if (stands_for_itself(cp))
        return (int)cp;
    cp -= 0x100;
    if (cp <= 0x20)
        return (int)cp;
    if (cp <= 0x42)
        return (int)(0x7f + cp - 0x21);
    return cp == 0x43 ? 0xad : -1;
}

static uint32_t letter_of(uint8_t byte)
{
    if (stands_for_itself(byte))
        return byte;
    if (byte <= 0x20)
        return 0x100U + byte;
    return byte == 0xad ? 0x143 : 0x121U + byte - 0x7f;
}

void decode_put_letters(struct str bytes, struct buf *out)
{
    for (size_t i = 0; i < bytes.len; i++)
        utf8_append(out, letter_of((uint8_t)bytes.ptr[i]));
}

bool decode_letters(struct str spelling, struct buf *out)
{
    size_t before = out->len;

    for (size_t i = 0; i < spelling.len; i += utf8_len(spelling.ptr[i])) {
        int byte = decode_letter(utf8_get(spelling.ptr + i));

        if (byte < 0) {
            buf_truncate(out, before);
            return false;
        }
        buf_put_char(out, (char)byte);
    }
    return true;
}

/* --- loading ---------------------------------------------------------------------------------- */

enum { STRIP_MAX = 64 };

/* What has been seen of a sequence: its order decides what a step may still mean. */
struct loading {
    struct decode *d;
    bool joined; /* steps from here on see the whole text */
    bool fused;
};

static int add_step(struct loading *l, enum decode_kind kind, const char *pattern,
                    const char *content, struct err *e)
{
    struct decode *d = l->d;

    if (l->joined)
        return err_set(e, -ENOTSUP, "only Strip is supported after tokens are joined");
    if (d->suffix)
        return err_set(e, -ENOTSUP, "only Fuse is supported after BPEDecoder");
    if (d->n_steps == DECODE_MAX_STEPS)
        return err_set(e, -E2BIG, "more than %d steps", DECODE_MAX_STEPS);
    if (strlen(content) > DECODE_MAX_CONTENT)
        return err_set(e, -E2BIG, "content of more than %d bytes", DECODE_MAX_CONTENT);
    d->steps[d->n_steps++] = (struct decode_step){kind, xstrdup(pattern), xstrdup(content), false};
    return 0;
}

/* Lets the last step treat the first token of a text in its own way. */
static void mark_first(struct decode *d, bool first)
{
    d->steps[d->n_steps - 1].first = first;
    d->first_differs |= first;
}

static int load_replace(struct loading *l, const struct json *config, struct err *e)
{
    const char *text = json_get_cstr(json_get(config, "pattern"), "String");
    const char *content = json_get_cstr(config, "content");

    if (!text || !*text || !content)
        return err_set(e, -ENOTSUP, "a pattern that is no String is not supported");
    return add_step(l, DECODE_REPLACE, text, content, e);
}

static int load_wordpiece(struct loading *l, const struct json *config, struct err *e)
{
    const char *prefix = json_get_cstr(config, "prefix");
    bool cleanup = true;
    int r;

    if (!prefix)
        return err_set(e, -EINVAL, "prefix is missing");
    if (l->d->drops_repeated)
        return err_set(e, -ENOTSUP, "WordPiece after CTC is not supported");
    (void)json_get_bool(config, "cleanup", &cleanup);
    r = add_step(l, DECODE_WORDPIECE, prefix, "", e);
    if (r < 0)
        return r;
    mark_first(l->d, true);
    return cleanup ? add_step(l, DECODE_CLEANUP, "", "", e) : 0;
}

static int load_character(const struct json *config, const char *key, char ret[8], struct err *e)
{
    struct str c = str_from(json_get_cstr(config, key));

    if (c.len == 0 || c.len != utf8_len(c.ptr[0]))
        return err_set(e, -EINVAL, "%s must be one character", key);
    memcpy(ret, c.ptr, c.len);
    ret[c.len] = '\0';
    return 0;
}

static int load_strip(struct loading *l, const struct json *config, struct err *e)
{
    int64_t start = 0, stop = 0;
    int r = load_character(config, "content", l->d->strip, e);

    if (r < 0)
        return r;
    (void)json_get_i64(config, "start", &start);
    (void)json_get_i64(config, "stop", &stop);
    if (!l->fused || l->d->suffix || stop != 0 || start < 0 || start > STRIP_MAX ||
        l->d->n_strip > 0)
        return err_set(e, -ENOTSUP, "Strip is only supported after Fuse, at the start");
    l->d->n_strip = (uint32_t)start;
    return 0;
}

static int load_metaspace(struct loading *l, const struct json *config, struct err *e)
{
    const char *scheme = json_get_cstr(config, "prepend_scheme");
    bool prefix_space = true;
    char mark[8];
    int r = load_character(config, "replacement", mark, e);

    if (r < 0)
        return r;
    (void)json_get_bool(config, "add_prefix_space", &prefix_space);
    if (scheme)
        prefix_space = strcmp(scheme, "never") != 0;
    if (l->d->drops_repeated)
        return err_set(e, -ENOTSUP, "Metaspace after CTC is not supported");
    r = add_step(l, DECODE_METASPACE, mark, " ", e);
    if (r == 0)
        mark_first(l->d, prefix_space);
    return r;
}

static int load_join(struct loading *l, enum decode_join join, struct err *e)
{
    if (l->joined)
        return err_set(e, -ENOTSUP, "two steps that join tokens are not supported");
    if (l->d->drops_repeated || l->d->suffix)
        return err_set(e, -ENOTSUP, "only Fuse may join tokens after CTC or BPEDecoder");
    if (join == DECODE_BYTES && l->d->n_steps > 0)
        return err_set(e, -ENOTSUP, "ByteLevel is only supported as the first step");
    for (size_t i = 0; i < l->d->n_steps; i++)
        if (l->d->steps[i].kind == DECODE_WORDPIECE)
            return err_set(e, -ENOTSUP, "ByteFallback after WordPiece is not supported");
    l->d->join = join;
    l->joined = true;
    l->fused = join == DECODE_BYTES;
    return 0;
}

/* Speech models: a token lasts, the pad token parts it from the next of its kind. */
static int load_ctc(struct loading *l, const struct json *config, struct err *e)
{
    const char *pad = json_get_cstr(config, "pad_token");
    const char *delimiter = json_get_cstr(config, "word_delimiter_token");
    bool cleanup = true;
    int r;

    (void)json_get_bool(config, "cleanup", &cleanup);
    if (!pad || !*pad || !delimiter || !*delimiter)
        return err_set(e, -EINVAL, "pad_token or word_delimiter_token is missing");
    if (l->d->n_steps > 0)
        return err_set(e, -ENOTSUP, "CTC is only supported as the first step");
    r = add_step(l, DECODE_REPLACE, pad, "", e);
    if (r == 0 && cleanup)
        r = add_step(l, DECODE_CLEANUP, "", "", e);
    if (r == 0 && cleanup)
        r = add_step(l, DECODE_REPLACE, delimiter, " ", e);
    l->d->drops_repeated = r == 0;
    return r;
}

static int load_suffix(struct loading *l, const struct json *config, struct err *e)
{
    const char *suffix = json_get_cstr(config, "suffix");
    int r;

    if (!suffix || !*suffix)
        return err_set(e, -EINVAL, "suffix is missing");
    if (l->d->n_steps > 0)
        return err_set(e, -ENOTSUP, "BPEDecoder is only supported as the first step");
    r = add_step(l, DECODE_REPLACE, suffix, " ", e);
    if (r == 0)
        l->d->suffix = xstrdup(suffix);
    return r;
}

static int load_any(struct loading *l, const struct json *config, int depth, struct err *e)
{
    const char *type = json_get_cstr(config, "type");
    size_t i = 0;

    if (!type)
        return err_set(e, -EINVAL, "type is missing");
    if (strcmp(type, "Replace") == 0)
        return load_replace(l, config, e);
    if (strcmp(type, "Strip") == 0)
        return load_strip(l, config, e);
    if (strcmp(type, "Metaspace") == 0)
        return load_metaspace(l, config, e);
    if (strcmp(type, "WordPiece") == 0)
        return load_wordpiece(l, config, e);
    if (strcmp(type, "CTC") == 0)
        return load_ctc(l, config, e);
    if (strcmp(type, "BPEDecoder") == 0)
        return load_suffix(l, config, e);
    if (strcmp(type, "ByteLevel") == 0)
        return load_join(l, DECODE_BYTES, e);
    if (strcmp(type, "ByteFallback") == 0)
        return load_join(l, DECODE_FALLBACK, e);
    if (strcmp(type, "Fuse") == 0) {
        l->joined = l->fused = true;
        return 0;
    }
    if (strcmp(type, "Sequence") != 0 || depth > DECODE_MAX_STEPS)
        return err_set(e, -ENOTSUP, "type \"%s\" is not supported", type);
    JSON_FOREACH (child, json_get(config, "decoders")) {
        int r = load_any(l, child, depth + 1, e);

        if (r < 0)
            return err_wrap(e, r, "decoders[%zu]", i);
        i++;
    }
    return 0;
}

int decode_load(struct decode *d, const struct json *config, struct err *e)
{
    struct loading l = {.d = d};

    d->join = DECODE_SPACED;
    if (!config || json_is_null(config))
        return 0;
    d->join = DECODE_PLAIN;
    return load_any(&l, config, 0, e);
}

void decode_load_pieces(struct decode *d, enum decode_drop drop, bool has_bytes)
{
    d->join = DECODE_PIECES;
    d->drop = drop;
    d->has_bytes = has_bytes;
    d->steps[d->n_steps++] = (struct decode_step){
        .kind = DECODE_REPLACE, .pattern = xstrdup(DECODE_MARK), .content = xstrdup(" ")};
}

void decode_done(struct decode *d)
{
    for (size_t i = 0; i < d->n_steps; i++) {
        free(d->steps[i].pattern);
        free(d->steps[i].content);
    }
    free(d->entries);
    free(d->suffix);
    buf_done(&d->text);
    *d = (struct decode){0};
}

/* --- table ------------------------------------------------------------------------------------ */

/* Appends @text with every @pattern replaced. */
static void put_replaced(struct buf *out, struct str text, struct str pattern, struct str content)
{
    while (text.len > 0) {
        const char *hit = memmem(text.ptr, text.len, pattern.ptr, pattern.len);
        size_t n = hit ? (size_t)(hit - text.ptr) : text.len;

        buf_put(out, text.ptr, n);
        if (hit)
            buf_put_str(out, content);
        text = str_skip(text, n + (hit ? pattern.len : 0));
    }
}

/* Blanks that English does not write, in this order (transformers' clean_up_tokenization). */
static void put_clean(struct buf *out, struct str text)
{
    static const char *const rules[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    AUTO(buf_done) struct buf now = BUF_NULL;

    buf_put_str(&now, text);
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        struct buf next = BUF_NULL;

        put_replaced(&next, buf_str(&now), str_from(rules[i][0]), str_from(rules[i][1]));
        buf_done(&now);
        now = next;
    }
    buf_put_str(out, buf_str(&now));
}

static void put_wordpiece(struct buf *out, struct str text, struct str prefix, bool first)
{
    if (!first && str_starts(text, prefix))
        text = str_skip(text, prefix.len);
    else if (!first)
        buf_put_char(out, ' ');
    buf_put_str(out, text);
}

static void run_step(const struct decode_step *step, struct str text, bool first, struct buf *out)
{
    struct str pattern = str_from(step->pattern), content = str_from(step->content);

    switch (step->kind) {
    case DECODE_REPLACE:
        put_replaced(out, text, pattern, content);
        break;
    case DECODE_METASPACE:
        put_replaced(out, text, pattern, first && step->first ? STR("") : content);
        break;
    case DECODE_WORDPIECE:
        put_wordpiece(out, text, pattern, first);
        break;
    case DECODE_CLEANUP:
        put_clean(out, text);
        break;
    }
}

static int put_text(const struct decode *d, struct str spelling, bool first, struct buf *out)
{
    struct buf now = BUF_NULL, next = BUF_NULL;
    bool fits = true;

    if (d->join == DECODE_BYTES && decode_letters(spelling, out))
        return 0;
    buf_put_str(&now, spelling);
    for (size_t i = 0; fits && i < d->n_steps; i++) {
        struct buf old = now;

        run_step(&d->steps[i], buf_str(&now), first, &next);
        now = next;
        next = old;
        buf_clear(&next);
        fits = now.len <= DECODE_MAX_TOKEN;
    }
    if (fits)
        buf_put_str(out, buf_str(&now));
    buf_done(&now);
    buf_done(&next);
    return fits ? 0 : -E2BIG;
}

/* "<0x0A>" is 10; -1 for anything else. */
static int16_t parse_byte(struct str s)
{
    uint64_t byte;

    if (s.len != 6 || !str_starts(s, STR("<0x")) || s.ptr[5] != '>' ||
        !str_parse_hex64(str_slice(s.ptr + 3, 2), &byte))
        return -1;
    return (int16_t)byte;
}

void decode_size(struct decode *d, uint32_t limit)
{
    d->entries = xcalloc(limit, sizeof(*d->entries));
    d->limit = limit;
}

int decode_add(struct decode *d, uint32_t id, struct str spelling)
{
    struct decode_entry *entry = &d->entries[id];
    struct str text;

    entry->start = (uint32_t)d->text.len;
    (void)buf_reserve(&d->text, 1);
    if (put_text(d, spelling, false, &d->text) < 0 || d->text.len > DECODE_MAX_TEXT)
        return -E2BIG;
    entry->len = (uint32_t)d->text.len - entry->start;
    text = decode_text(d, id);
    entry->byte = d->join == DECODE_FALLBACK || d->has_bytes ? parse_byte(text) : -1;
    entry->mark = str_starts(spelling, STR(DECODE_MARK));
    entry->whole = str_is_utf8(text);
    return 0;
}

void decode_put_first(const struct decode *d, struct str spelling, struct buf *out)
{
    (void)put_text(d, spelling, true, out); /* never longer than elsewhere, which did fit */
}

void decode_put_last(const struct decode *d, struct str spelling, struct buf *out)
{
    put_replaced(out, spelling, str_from(d->suffix), STR(""));
}
