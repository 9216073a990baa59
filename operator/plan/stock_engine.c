/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/plan/stock_engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/err.h"
#include "operator/api/graph.h"
#include "operator/plan/framework.h"
#include "operator/plan/words.h"

enum { VLLM_PORT = 8000, SGLANG_PORT = 30000, EVENTS_PORT = 5557 };

/* --- what it runs ----------------------------------------------------------------------------- */

static bool runs_module(const struct words *w, const char *module)
{
    bool python = false;

    for (size_t i = 0; i + 1 < w->n; i++) {
        if (python && words_at_is(w, i, "-m") && words_at_is(w, i + 1, module))
            return true;
        python |= str_starts(words_base_name(w->at[i]), STR("python"));
    }
    return false;
}

static bool runs_vllm(const struct words *w)
{
    for (size_t i = 0; i + 1 < w->n; i++)
        if (str_is(words_base_name(w->at[i]), "vllm") && words_at_is(w, i + 1, "serve"))
            return true;
    return runs_module(w, "vllm.entrypoints.openai.api_server");
}

static bool runs_mocker(const struct words *w)
{
    for (size_t i = 0; i < w->n; i++)
        if (str_is(words_base_name(w->at[i]), "dynamo-mocker"))
            return words_option(w, "--openai-port") != NULL;
    return runs_module(w, "dynamo.mocker") && words_option(w, "--openai-port");
}

/* Only numbers get into labels. */
static void put_number(char ret[ENGINE_WORD_SIZE], const char *text, uint64_t max)
{
    uint64_t n;

    if (text && str_parse_u64(str_from(text), &n) && n && n <= max)
        (void)snprintf(ret, ENGINE_WORD_SIZE, "%" PRIu64, n);
}

/* "tcp://…:5557" */
static void put_port_of(char ret[ENGINE_WORD_SIZE], const char *endpoint)
{
    const char *colon = endpoint ? strrchr(endpoint, ':') : NULL;

    put_number(ret, colon ? colon + 1 : NULL, UINT16_MAX);
}

/* --kv-events-config, the same for both engines. */
static void take_events(struct stock_engine *s, const char *text)
{
    AUTO(json_free) struct json *config = NULL;
    const char *publisher, *endpoint;
    struct err e;

    if (!text || json_parse(&config, str_from(text), &e) < 0)
        return;
    publisher = json_get_cstr(config, "publisher");
    endpoint = json_get_cstr(config, "endpoint");
    if (!publisher || strcmp(publisher, "zmq") != 0)
        return;
    if (endpoint)
        put_port_of(s->events_port, endpoint);
    else
        (void)snprintf(s->events_port, sizeof(s->events_port), "%d", EVENTS_PORT);
    put_port_of(s->replay_port, json_get_cstr(config, "replay_endpoint"));
}

static void take_port(struct stock_engine *s, const char *text)
{
    uint64_t n;

    if (text && str_parse_u64(str_from(text), &n) && n && n <= UINT16_MAX)
        s->port = (int64_t)n;
}

static bool read_command(struct stock_engine *s, const struct words *w)
{
    if (runs_vllm(w))
        *s = (struct stock_engine){.kind = "vllm", .port = VLLM_PORT};
    else if (runs_module(w, "sglang.launch_server"))
        *s = (struct stock_engine){.kind = "sglang", .port = SGLANG_PORT};
    else if (runs_mocker(w))
        *s = (struct stock_engine){.kind = "vllm", .port = VLLM_PORT};
    else
        return false;
    take_port(s, words_option(w, "--port"));
    take_port(s, words_option(w, "--openai-port"));
    take_events(s, words_option(w, "--kv-events-config"));
    put_number(s->events_port, words_option(w, "--zmq-kv-events-ports"), UINT16_MAX);
    put_number(s->replay_port, words_option(w, "--zmq-replay-ports"), UINT16_MAX);
    put_number(s->block_size, words_option(w, "--block-size"), 65536);
    put_number(s->block_size, words_option(w, "--page-size"), 65536);
    return true;
}

/* --- annotations ------------------------------------------------------------------------------ */

static void take_annotations(struct stock_engine *s, const struct json *annotations)
{
    const char *events = json_get_cstr(annotations, ENGINE_LABEL_EVENTS_PORT);

    take_port(s, json_get_cstr(annotations, ENGINE_ANNOTATION_PORT));
    if (events && strcmp(events, "none") == 0)
        (void)snprintf(s->events_port, sizeof(s->events_port), "none");
    else
        put_number(s->events_port, events, UINT16_MAX);
    put_number(s->replay_port, json_get_cstr(annotations, ENGINE_LABEL_REPLAY_PORT), UINT16_MAX);
    put_number(s->block_size, json_get_cstr(annotations, ENGINE_LABEL_BLOCK_SIZE), 65536);
}

/* A kind that is not known counts as "openai"; "none" says that it is a worker of Dynamo after all. */
static bool named_kind(const char *named, const char **ret)
{
    static const char *const kinds[] = {"vllm", "sglang"};

    if (!named || !named[0] || strcmp(named, "none") == 0)
        return false;
    *ret = "openai";
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (strcmp(named, kinds[i]) == 0)
            *ret = kinds[i];
    return true;
}

bool stock_engine_detect(struct stock_engine *ret, const struct json *spec)
{
    const struct json *annotations = json_get(spec, "annotations");
    const char *named = json_get_cstr(annotations, ENGINE_LABEL);
    const struct json *container = json_path(spec, "extraPodSpec", "mainContainer", NULL);
    AUTO(words_done) struct words w = {.n = 0};
    struct stock_engine s = {.port = VLLM_PORT};
    bool found;

    if (!service_is_worker(spec) || (named && strcmp(named, "none") == 0))
        return false;
    words_read(&w, container);
    found = !framework_detect(container) && read_command(&s, &w);
    if (named_kind(named, &s.kind))
        found = true;
    if (!found)
        return false;
    take_annotations(&s, annotations);
    *ret = s;
    return true;
}
