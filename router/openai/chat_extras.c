/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/chat_extras.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/json_put.h"
#include "lib/base/json_tree.h"
#include "router/openai/chat_build.h"

static const char *const KINDS[] = {"image_url", "video_url", "audio_url"};

/* The kind of a part that is a medium, else NULL. */
static const char *medium_of(const struct json *part)
{
    for (size_t i = 0; i < ARRAY_LEN(KINDS); i++)
        if (chat_is(part, "type", KINDS[i]))
            return KINDS[i];
    return NULL;
}

static const char *url_of(const struct json *part, const char *kind)
{
    return json_get_cstr(json_get(part, kind), "url");
}

/* Media of a chat, in one order for all that goes over them. */
struct walk {
    const struct json *message, *part;
};

/* The next part of @kind, or of any when it is NULL. */
static const struct json *next_medium(struct walk *w, const char *kind)
{
    for (;;) {
        w->part = w->part ? json_next(w->part) : json_first(json_get(w->message, "content"));
        while (w->message && !w->part) {
            w->message = json_next(w->message);
            w->part = json_is_array(json_get(w->message, "content"))
                          ? json_first(json_get(w->message, "content"))
                          : NULL;
        }
        if (!w->part || (medium_of(w->part) && (!kind || chat_is(w->part, "type", kind))))
            return w->part;
    }
}

static struct walk walk_of(const struct json *messages)
{
    struct walk w = {.message = json_first(messages)};

    return w;
}

size_t chat_images(const struct openai_request *r, struct arena *a, struct chat_image **ret,
                   bool *ret_others)
{
    struct walk all = walk_of(r->messages), w = all;
    struct chat_image *images;
    const struct json *part;
    size_t n = 0, n_media = 0;

    while (next_medium(&all, NULL))
        n_media++;
    images = arena_alloc(a, (n_media + 1) * sizeof(*images));
    while ((part = next_medium(&w, KINDS[0])))
        images[n++] = (struct chat_image){str_from(url_of(part, KINDS[0])),
                                          str_from(json_get_cstr(part, "uuid"))};
    *ret = images;
    *ret_others = n_media > n;
    return n;
}

/* --- multi_modal_data, multi_modal_uuids ------------------------------------------------------ */

static void put_source(struct json_put *j, const struct json *part, const char *kind)
{
    const char *url = url_of(part, kind);

    json_put_object(j);
    json_put_key(j, url ? "Url" : "UuidOnly"); /* which the engine has seen before */
    json_put_cstr(j, url ? url : json_get_cstr(part, "uuid"));
    json_put_object_end(j);
}

static void put_uuid(struct json_put *j, const struct json *part, const char *kind)
{
    (void)kind;
    json_put_cstr(j, json_get_cstr(part, "uuid"));
}

/* {kind: [what @put writes of each part], …} */
static struct str by_kind(const struct json *messages, struct arena *a,
                          void (*put)(struct json_put *, const struct json *, const char *))
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct json_put j = json_put_on(&out);

    json_put_object(&j);
    for (size_t i = 0; i < ARRAY_LEN(KINDS); i++) {
        struct walk w = walk_of(messages);
        const struct json *part = next_medium(&w, KINDS[i]);

        if (!part)
            continue;
        json_put_key(&j, KINDS[i]);
        json_put_array(&j);
        for (; part; part = next_medium(&w, KINDS[i]))
            put(&j, part, KINDS[i]);
        json_put_array_end(&j);
    }
    json_put_object_end(&j);
    return str_from(arena_strdup(a, buf_str(&out)));
}

static bool any_uuid(const struct json *messages)
{
    struct walk w = walk_of(messages);
    const struct json *part;

    while ((part = next_medium(&w, NULL)))
        if (json_get_cstr(part, "uuid"))
            return true;
    return false;
}

/* --- extra_args.messages ---------------------------------------------------------------------- */

/* What 1.x does not say twice: it stands in multi_modal_data. */
static const char *told_url(const char *url, bool of_1)
{
    return of_1 && str_starts(str_from(url), STR("data:")) ? "" : url;
}

static struct json *new_medium(const struct json *part, const char *kind, bool of_1)
{
    struct json *ret = json_new_object(), *source;
    const char *url = url_of(part, kind), *uuid = json_get_cstr(part, "uuid");
    const char *detail = json_get_cstr(json_get(part, kind), "detail");

    (void)json_set_cstr(ret, "type", kind);
    if (url) {
        source = json_need_object(ret, kind);
        (void)json_set_cstr(source, "url", told_url(url, of_1));
        if (strcmp(kind, "audio_url") != 0)
            (void)json_set(source, "detail", detail ? json_new_cstr(detail) : json_new_null());
    } else {
        (void)json_set(ret, kind, json_new_null());
    }
    if (uuid && of_1)
        (void)json_set_cstr(ret, "uuid", uuid);
    return ret;
}

static struct json *new_content(const struct json *content, bool of_1)
{
    struct json *ret = json_new_array();

    JSON_FOREACH (part, content) {
        const char *kind = medium_of(part);

        (void)json_add(ret, kind ? new_medium(part, kind, of_1) : json_dup(part));
    }
    return ret;
}

static struct json *new_message(const struct json *message, bool of_1)
{
    struct json *ret = json_new_object();

    JSON_FOREACH (member, message) {
        const char *key = json_key(member);

        if (strcmp(key, "content") == 0 && json_is_array(member))
            (void)json_set(ret, key, new_content(member, of_1));
        else
            chat_move(ret, key, message, key);
    }
    return ret;
}

static void put_messages(struct json_put *j, const struct json *messages, bool of_1)
{
    AUTO(json_free) struct json *all = json_new_array();
    AUTO(buf_done) struct buf text = BUF_NULL;

    JSON_FOREACH (message, messages)
        (void)json_add(all, new_message(message, of_1));
    json_print(all, &text);
    json_put_key(j, "messages");
    json_put_raw(j, buf_str(&text));
}

/* --- extra_args ------------------------------------------------------------------------------- */

static void put_own(struct json_put *j, struct str own)
{
    struct str key, value;
    struct json_pull p;

    json_pull_init(&p, own);
    if (own.len && json_pull_object(&p))
        while (json_pull_key(&p, &key) && json_pull_skip(&p, &value))
            json_put_member_raw(j, key, value);
}

static void put_hashes(struct json_put *j, const uint64_t *hashes, size_t n)
{
    json_put_key(j, "mm_hashes");
    json_put_array(j);
    for (size_t i = 0; i < n; i++) {
        char hex[17];

        (void)snprintf(hex, sizeof(hex), "%016" PRIx64, hashes[i]);
        json_put_cstr(j, hex);
    }
    json_put_array_end(j);
}

/* By which an engine knows where thoughts end and what has to have a form begins. */
static void put_thoughts(struct json_put *j, const struct json *template_args)
{
    AUTO(buf_done) struct buf text = BUF_NULL;

    json_print(template_args, &text);
    json_put_key(j, "reasoning_parser_kwargs");
    json_put_object(j);
    json_put_key(j, "chat_template_kwargs");
    json_put_raw(j, buf_str(&text));
    json_put_object_end(j);
}

void chat_extras_make(const struct openai_request *r, const struct chat_extras_conf *conf,
                      struct arena *a, struct chat_extras *ret)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct json_put j = json_put_on(&out);
    struct walk w = walk_of(r->messages);
    bool has_media = next_medium(&w, NULL) != NULL;
    bool tells_thoughts = conf->of_1 && conf->has_thoughts && json_len(r->template_args) > 0;

    *ret = (struct chat_extras){.args = r->extra_args_json};
    if (!has_media && !tells_thoughts)
        return;
    json_put_object(&j);
    if (has_media) {
        ret->media = by_kind(r->messages, a, put_source);
        if (conf->of_1 && any_uuid(r->messages))
            ret->uuids = by_kind(r->messages, a, put_uuid);
        put_messages(&j, r->messages, conf->of_1);
    }
    if (has_media && conf->of_1) {
        json_put_key(&j, "formatted_prompt");
        json_put_str(&j, conf->prompt);
    }
    put_own(&j, r->extra_args_json);
    if (tells_thoughts)
        put_thoughts(&j, r->template_args);
    if (conf->n_mm_hashes)
        put_hashes(&j, conf->mm_hashes, conf->n_mm_hashes);
    json_put_object_end(&j);
    ret->args = str_from(arena_strdup(a, buf_str(&out)));
}
