/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/post_processor.h"

#include <string.h>

enum { DEPTH_MAX = 8 };

static bool is_id(const struct json *v, int64_t *ret)
{
    return json_i64(v, ret) && *ret >= 0 && *ret <= UINT32_MAX;
}

static void put_first(struct token_ids *ids, const struct token_ids *more)
{
    if (!more->len)
        return;
    (void)token_ids_reserve(ids, more->len);
    memmove(ids->ptr + more->len, ids->ptr, ids->len * sizeof(*ids->ptr));
    memcpy(ids->ptr, more->ptr, more->len * sizeof(*ids->ptr));
    ids->len += more->len;
}

static void put_last(struct token_ids *ids, const struct token_ids *more)
{
    for (size_t i = 0; i < more->len; i++)
        token_ids_push(ids, more->ptr[i]);
}

/* Around what is there already. */
static void wrap(struct post_processor *p, const struct token_ids *before,
                 const struct token_ids *after)
{
    if (p->before.len + before->len > POST_PROCESSOR_MAX ||
        p->after.len + after->len > POST_PROCESSOR_MAX) {
        p->unknown = "it puts too many tokens around a text";
        return;
    }
    put_first(&p->before, before);
    put_last(&p->after, after);
}

/* ["[SEP]", 102] */
static bool read_pair(const struct json *pair, struct token_ids *ids)
{
    int64_t id;

    if (!json_is_array(pair) || json_len(pair) != 2 || !is_id(json_at(pair, 1), &id))
        return false;
    token_ids_push(ids, (uint32_t)id);
    return true;
}

static void add_ends(struct post_processor *p, const struct json *config)
{
    AUTO(token_ids_done) struct token_ids before = {0};
    AUTO(token_ids_done) struct token_ids after = {0};

    if (read_pair(json_get(config, "cls"), &before) && read_pair(json_get(config, "sep"), &after))
        wrap(p, &before, &after);
    else
        p->unknown = "cls or sep is missing";
}

static bool read_special(const struct json *specials, const struct json *piece,
                         struct token_ids *ids)
{
    const char *name = json_get_cstr(piece, "id");
    const struct json *listed = name ? json_get(json_get(specials, name), "ids") : NULL;
    int64_t id;

    if (!json_is_array(listed) || json_len(listed) > POST_PROCESSOR_MAX)
        return false;
    JSON_FOREACH (each, listed) {
        if (!is_id(each, &id))
            return false;
        token_ids_push(ids, (uint32_t)id);
    }
    return ids->len <= POST_PROCESSOR_MAX;
}

static bool is_text(const struct json *piece)
{
    const char *id = json_get_cstr(json_get(piece, "Sequence"), "id");

    return id && strcmp(id, "A") == 0;
}

static void add_template(struct post_processor *p, const struct json *config)
{
    AUTO(token_ids_done) struct token_ids before = {0};
    AUTO(token_ids_done) struct token_ids after = {0};
    const struct json *specials = json_get(config, "special_tokens");
    const struct json *single = json_get(config, "single");
    size_t n_texts = 0;
    bool ok = json_is_array(single);

    JSON_FOREACH (piece, single) {
        if (is_text(piece))
            n_texts++;
        else
            ok = ok && read_special(specials, json_get(piece, "SpecialToken"),
                                    n_texts ? &after : &before);
    }
    if (!ok || n_texts != 1) {
        p->unknown = "its template is not one text between special tokens";
        return;
    }
    wrap(p, &before, &after);
    p->is_parted = json_len(single) > 1;
}

static void add(struct post_processor *p, const struct json *config, unsigned depth)
{
    const char *type = json_get_cstr(config, "type");
    struct str name = str_from(type);

    if (str_is(name, "ByteLevel") || p->unknown)
        return;
    if (str_is(name, "Sequence") && depth < DEPTH_MAX) {
        JSON_FOREACH (each, json_get(config, "processors"))
            add(p, each, depth + 1);
    } else if (p->is_parted) {
        p->unknown = "it puts tokens around those of a template";
    } else if (str_is(name, "TemplateProcessing")) {
        add_template(p, config);
    } else if (str_is(name, "BertProcessing") || str_is(name, "RobertaProcessing")) {
        add_ends(p, config);
    } else {
        p->unknown = "its type is not known";
    }
}

void post_processor_load(struct post_processor *p, const struct json *config)
{
    if (config && !json_is_null(config))
        add(p, config, 0);
}

void post_processor_done(struct post_processor *p)
{
    token_ids_done(&p->before);
    token_ids_done(&p->after);
}
