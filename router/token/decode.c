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

static int load_replace(struct loading *l, const struct json *config, struct err *e)
{
    const char *text = json_get_cstr(json_get(config, "pattern"), "String");
    const char *content = json_get_cstr(config, "content");
    struct decode *d = l->d;

    if (!text || !*text || !content)
        return err_set(e, -ENOTSUP, "a pattern that is no String is not supported");
    if (l->joined || *d->drop_first)
        return err_set(e, -ENOTSUP, "Replace after tokens are joined is not supported");
    if (d->n_replaces == DECODE_MAX_REPLACE)
        return err_set(e, -E2BIG, "more than %d Replace steps", DECODE_MAX_REPLACE);
    d->replaces[d->n_replaces++] = (struct decode_replace){xstrdup(text), xstrdup(content)};
    return 0;
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
    if (!l->fused || stop != 0 || start < 0 || start > STRIP_MAX || l->d->n_strip > 0)
        return err_set(e, -ENOTSUP, "Strip is only supported after Fuse, at the start");
    l->d->n_strip = (uint32_t)start;
    return 0;
}

static int load_metaspace(struct loading *l, const struct json *config, struct err *e)
{
    const char *scheme = json_get_cstr(config, "prepend_scheme");
    struct decode *d = l->d;
    bool prefix_space = true;
    char mark[8];
    int r = load_character(config, "replacement", mark, e);

    if (r < 0)
        return r;
    if (l->joined || d->n_replaces > 0)
        return err_set(e, -ENOTSUP, "Metaspace is only supported as the first step");
    (void)json_get_bool(config, "add_prefix_space", &prefix_space);
    if (scheme ? strcmp(scheme, "never") != 0 : prefix_space)
        memcpy(d->drop_first, mark, sizeof(mark));
    d->replaces[d->n_replaces++] = (struct decode_replace){xstrdup(mark), xstrdup(" ")};
    return 0;
}

static int load_join(struct loading *l, enum decode_join join, struct err *e)
{
    if (l->joined)
        return err_set(e, -ENOTSUP, "two steps that join tokens are not supported");
    if (join == DECODE_BYTES && l->d->n_replaces > 0)
        return err_set(e, -ENOTSUP, "ByteLevel is only supported as the first step");
    l->d->join = join;
    l->joined = true;
    l->fused = join == DECODE_BYTES;
    return 0;
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
    if (strcmp(type, "ByteLevel") == 0)
        return load_join(l, DECODE_BYTES, e);
    if (strcmp(type, "ByteFallback") == 0)
        return load_join(l, DECODE_FALLBACK, e);
    if (strcmp(type, "Fuse") == 0) {
        l->joined = l->fused = true;
        return 0;
    }
    if (strcmp(type, "Sequence") != 0 || depth > DECODE_MAX_REPLACE)
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

void decode_done(struct decode *d)
{
    for (size_t i = 0; i < d->n_replaces; i++) {
        free(d->replaces[i].pattern);
        free(d->replaces[i].content);
    }
    free(d->entries);
    buf_done(&d->text);
    *d = (struct decode){0};
}

/* --- table ------------------------------------------------------------------------------------ */

/* Appends @text with every @r->pattern replaced. */
static void put_replaced(struct buf *out, struct str text, const struct decode_replace *r)
{
    struct str pattern = str_from(r->pattern);

    while (text.len > 0) {
        const char *hit = memmem(text.ptr, text.len, pattern.ptr, pattern.len);
        size_t n = hit ? (size_t)(hit - text.ptr) : text.len;

        buf_put(out, text.ptr, n);
        if (hit)
            buf_put_cstr(out, r->content);
        text = str_skip(text, n + (hit ? pattern.len : 0));
    }
}

static void put_text(struct decode *d, struct str spelling)
{
    struct buf now = BUF_NULL, next = BUF_NULL;

    if (d->join == DECODE_BYTES && decode_letters(spelling, &d->text))
        return;
    buf_put_str(&now, spelling);
    for (size_t i = 0; i < d->n_replaces; i++) {
        struct buf old = now;

        put_replaced(&next, buf_str(&now), &d->replaces[i]);
        now = next;
        next = old;
        buf_clear(&next);
    }
    buf_put_str(&d->text, buf_str(&now));
    buf_done(&now);
    buf_done(&next);
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

void decode_add(struct decode *d, uint32_t id, struct str spelling)
{
    struct decode_entry *entry = &d->entries[id];
    struct str text;

    entry->start = (uint32_t)d->text.len;
    (void)buf_reserve(&d->text, 1);
    put_text(d, spelling);
    entry->len = (uint32_t)d->text.len - entry->start;
    text = decode_text(d, id);
    entry->byte = d->join == DECODE_FALLBACK ? parse_byte(text) : -1;
    entry->whole = str_is_utf8(text);
}
