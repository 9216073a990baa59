/* SPDX-License-Identifier: Apache-2.0 */
#include "router/engine/engine_slice.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/json_tree.h"

#define NAMESPACE_LABEL "nvidia.com/dynamo-namespace"
enum { PORT = 8000 };

void engine_wants_done(struct engine_wants *w)
{
    for (size_t i = 0; i < w->n; i++) {
        free(w->at[i].name);
        engine_spec_done(&w->at[i].spec);
    }
    free(w->at);
    *w = (struct engine_wants){.at = NULL};
}

void engine_wants_add(struct engine_wants *w, const char *name, struct engine_spec *take_spec)
{
    w->at = xreallocarray(w->at, w->n + 1, sizeof(*w->at));
    w->at[w->n++] = (struct engine_wanted){xstrdup(name), *take_spec};
    *take_spec = (struct engine_spec){.url = NULL};
}

static const char *label(const struct json *slice, const char *name)
{
    return json_get_cstr(json_path(slice, "metadata", "labels", NULL), name);
}

bool engine_slice_is_of(const struct json *slice, const char *ns)
{
    const char *its = label(slice, NAMESPACE_LABEL);

    return !ns || !its || strcmp(its, ns) == 0;
}

/* The port named http, else the first. */
static int64_t http_port(const struct json *slice)
{
    int64_t first = 0, port;

    JSON_FOREACH (one, json_get(slice, "ports")) {
        const char *name = json_get_cstr(one, "name");

        if (!json_get_i64(one, "port", &port))
            continue;
        if (name && strcmp(name, "http") == 0)
            return port;
        first = first ? first : port;
    }
    return first ? first : PORT;
}

static void put_endpoint(struct buf *out, const char *key, const char *host, const char *port)
{
    if (port && strcmp(port, "none") != 0)
        buf_printf(out, ",%s=tcp://%s:%s", key, host, port);
}

/* As a user would write it, so that there is one reader. */
static void put_spec(const struct json *slice, const char *host, struct buf *out)
{
    const char *events = label(slice, ENGINE_LABEL_EVENTS_PORT);
    const char *block_size = label(slice, ENGINE_LABEL_BLOCK_SIZE);

    buf_printf(out, "http://%s:%" PRIi64, host, http_port(slice));
    if (events && strcmp(events, "none") == 0)
        buf_put_cstr(out, ",kv-events=none");
    put_endpoint(out, "kv-events", host, events);
    put_endpoint(out, "kv-replay", host, label(slice, ENGINE_LABEL_REPLAY_PORT));
    if (block_size)
        buf_printf(out, ",block-size=%s", block_size);
}

static bool is_ready(const struct json *endpoint)
{
    bool ready = true; /* the API's own rule for what is not said */

    (void)json_get_bool(json_get(endpoint, "conditions"), "ready", &ready);
    return ready;
}

void engine_slice_read(const struct json *slice, struct engine_wants *ret)
{
    *ret = (struct engine_wants){.at = NULL};
    JSON_FOREACH (endpoint, json_get(slice, "endpoints")) {
        const char *address = json_cstr(json_at(json_get(endpoint, "addresses"), 0));
        const char *pod = json_get_cstr(json_get(endpoint, "targetRef"), "name");
        AUTO(buf_done) struct buf text = BUF_NULL;
        AUTO(mem_free) char *host = NULL;
        struct engine_spec spec;
        struct err e;

        if (!address || !is_ready(endpoint) || ret->n == ENGINES_MAX)
            continue;
        host = strchr(address, ':') ? xasprintf("[%s]", address) : xstrdup(address);
        put_spec(slice, host, &text);
        if (engine_spec_parse(&spec, buf_str(&text), &e) == 0)
            engine_wants_add(ret, pod ? pod : spec.url, &spec);
    }
}
