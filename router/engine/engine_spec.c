/* SPDX-License-Identifier: Apache-2.0 */
#include "router/engine/engine_spec.h"

#include <errno.h>
#include <string.h>

void engine_spec_done(struct engine_spec *s)
{
    free(s->url);
    free(s->host);
    free(s->model);
    free(s->model_path);
    free(s->events);
    free(s->replay);
    free(s->key_env);
    *s = (struct engine_spec){.url = NULL};
}

static char *dup_or_null(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

void engine_spec_copy(struct engine_spec *ret, const struct engine_spec *from)
{
    *ret = *from;
    ret->url = dup_or_null(from->url);
    ret->host = dup_or_null(from->host);
    ret->model = dup_or_null(from->model);
    ret->model_path = dup_or_null(from->model_path);
    ret->events = dup_or_null(from->events);
    ret->replay = dup_or_null(from->replay);
    ret->key_env = dup_or_null(from->key_env);
}

static bool same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

bool engine_spec_equal(const struct engine_spec *a, const struct engine_spec *b)
{
    return same(a->url, b->url) && same(a->model, b->model) && same(a->model_path, b->model_path) &&
           same(a->events, b->events) && same(a->replay, b->replay) &&
           same(a->key_env, b->key_env) && a->no_events == b->no_events &&
           a->block_size == b->block_size;
}

/* Without the "/v1" that users of OpenAI clients are used to. */
static int take_url(struct engine_spec *s, struct str url, struct err *e)
{
    struct str host, rest,
        scheme = str_starts(url, STR("https://"))  ? STR("https://")
                 : str_starts(url, STR("http://")) ? STR("http://")
                                                   : STR_NULL;

    while (str_ends(url, STR("/")))
        url = str_head(url, url.len - 1);
    if (str_ends(url, STR("/v1")))
        url = str_head(url, url.len - 3);
    host = str_skip(url, MIN(scheme.len, url.len));
    for (size_t i = 0; i < host.len; i++)
        if ((unsigned char)host.ptr[i] <= ' ')
            host.len = 0;
    if (!scheme.len || !host.len || host.ptr[0] == '/')
        return err_set(e, -EINVAL, "'%.*s' is not http://host:port", STR_ARG(url));
    rest = host;
    (void)str_cut(&rest, '/', &host);
    rest = host;
    if (host.ptr[0] != '[')
        (void)str_cut(&rest, ':', &host);
    else if (str_cut(&rest, ']', &host))
        host.len++; /* with its brackets */
    s->url = str_dup(url);
    s->host = str_dup(host);
    return 0;
}

static void replace(char **at, struct str value)
{
    free(*at);
    *at = str_dup(value);
}

static int take_option(struct engine_spec *s, struct str key, struct str value, struct err *e)
{
    uint64_t n;

    if (!value.len)
        return err_set(e, -EINVAL, "'%.*s' has no value", STR_ARG(key));
    if (str_is(key, "model"))
        replace(&s->model, value);
    else if (str_is(key, "model-path"))
        replace(&s->model_path, value);
    else if (str_is(key, "kv-events") && str_is(value, "none"))
        s->no_events = true;
    else if (str_is(key, "kv-events"))
        replace(&s->events, value);
    else if (str_is(key, "kv-replay"))
        replace(&s->replay, value);
    else if (str_is(key, "api-key-env"))
        replace(&s->key_env, value);
    else if (!str_is(key, "block-size"))
        return err_set(e, -EINVAL,
                       "'%.*s' is none of model, model-path, kv-events, kv-replay, block-size, "
                       "api-key-env",
                       STR_ARG(key));
    else if (!str_parse_u64(value, &n) || n == 0 || n > 65536)
        return err_set(e, -EINVAL, "block-size '%.*s' is not between 1 and 65536", STR_ARG(value));
    else
        s->block_size = (uint32_t)n;
    return 0;
}

int engine_spec_parse(struct engine_spec *ret, struct str text, struct err *e)
{
    AUTO(engine_spec_done) struct engine_spec s = {.url = NULL};
    struct str rest = text, part, key;
    bool more = str_cut(&rest, ',', &part);
    int r = take_url(&s, part, e);

    while (r == 0 && more) {
        more = str_cut(&rest, ',', &part);
        (void)str_cut(&part, '=', &key);
        r = take_option(&s, key, part, e);
    }
    if (r < 0)
        return err_wrap(e, r, "engine");
    *ret = s;
    s = (struct engine_spec){.url = NULL};
    return 0;
}
