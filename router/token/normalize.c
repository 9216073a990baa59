/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/normalize.h"

#include <errno.h>

#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "router/token/nfc.h"
#include "router/token/regex.h"
#include "router/token/utf8.h"

/* --- loading ---------------------------------------------------------------------------------- */

static struct normalize_step *add_step(struct normalize *n, enum normalize_kind kind)
{
    struct normalize_step *step = &n->steps[n->n_steps++];

    *step = (struct normalize_step){.kind = kind};
    return step;
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
    if (!text)
        return regex_compile(&step->regex, str_from(regex), REGEX_ONIGURUMA, e);
    step->pattern = xstrdup(text);
    return 0;
}

static int load_any(struct normalize *n, const struct json *config, int depth, struct err *e)
{
    const char *type = json_get_cstr(config, "type");
    size_t i = 0;

    if (!type)
        return err_set(e, -EINVAL, "type is missing");
    if (n->n_steps == NORMALIZE_MAX_STEPS || depth > NORMALIZE_MAX_STEPS)
        return err_set(e, -E2BIG, "more than %d steps", NORMALIZE_MAX_STEPS);
    if (strcmp(type, "Prepend") == 0)
        return load_prepend(n, config, e);
    if (strcmp(type, "Replace") == 0)
        return load_replace(n, config, e);
    if (strcmp(type, "NFC") == 0) {
        (void)add_step(n, NORMALIZE_NFC);
        return 0;
    }
    if (strcmp(type, "Sequence") != 0)
        return err_set(e, -ENOTSUP, "type \"%s\" is not supported", type);
    JSON_FOREACH (child, json_get(config, "normalizers")) {
        int r = load_any(n, child, depth + 1, e);

        if (r < 0)
            return err_wrap(e, r, "normalizers[%zu]", i);
        i++;
    }
    return 0;
}

int normalize_load(struct normalize *n, const struct json *config, struct err *e)
{
    return !config || json_is_null(config) ? 0 : load_any(n, config, 0, e);
}

void normalize_done(struct normalize *n)
{
    for (size_t i = 0; i < n->n_steps; i++) {
        (void)regex_free(n->steps[i].regex);
        free(n->steps[i].pattern);
        free(n->steps[i].content);
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

static int run_step(const struct normalize_step *step, struct regex_scratch *scratch,
                    struct str text, size_t limit, struct buf *out)
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
    case NORMALIZE_NFC:
        nfc_compose(text, out);
        return 0;
    }
    return 0;
}

int normalize_run(const struct normalize *n, struct normalize_work *w,
                  struct regex_scratch *scratch, struct str text, size_t limit, struct str *ret)
{
    if (text.len == 0) {
        *ret = text;
        return 0;
    }
    for (size_t i = 0; i < n->n_steps; i++) {
        struct buf done;
        int r;

        if (n->steps[i].kind == NORMALIZE_NFC && nfc_is_composed(text))
            continue;
        buf_clear(&w->next);
        r = run_step(&n->steps[i], scratch, text, limit, &w->next);
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
