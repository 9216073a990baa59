/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/plan/stock_engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/err.h"
#include "operator/api/graph.h"
#include "operator/plan/framework.h"

enum { VLLM_PORT = 8000, SGLANG_PORT = 30000, EVENTS_PORT = 5557, WORDS_MAX = 1024 };

/* --- words of a command ----------------------------------------------------------------------- */

struct words {
    char *at[WORDS_MAX];
    size_t n;
};

static void words_done(struct words *w)
{
    for (size_t i = 0; i < w->n; i++)
        free(w->at[i]);
    w->n = 0;
}
DEFINE_CLEANUP_EMBEDDED(struct words, words_done)

static void add_word(struct words *w, struct str word)
{
    if (w->n < WORDS_MAX)
        w->at[w->n++] = str_dup(word);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* One word of a shell's text, without its quotes; *at moves behind it. */
static void take_word(struct str text, size_t *at, struct buf *out)
{
    char quote = '\0';

    for (; *at < text.len && (quote || !is_blank(text.ptr[*at])); (*at)++) {
        char c = text.ptr[*at];

        if (c == quote)
            quote = '\0';
        else if (!quote && (c == '\'' || c == '"'))
            quote = c;
        else if (c != '\\' || quote == '\'' || *at + 1 == text.len)
            buf_put_char(out, c);
        else if (text.ptr[++*at] != '\n') /* else the line goes on */
            buf_put_char(out, text.ptr[*at]);
    }
}

static void split(struct words *w, struct str text)
{
    for (size_t at = 0; at < text.len;) {
        AUTO(buf_done) struct buf word = BUF_NULL;

        if (is_blank(text.ptr[at])) {
            at++;
            continue;
        }
        take_word(text, &at, &word);
        if (word.len)
            add_word(w, buf_str(&word));
    }
}

static struct str base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return str_from(slash ? slash + 1 : path);
}

static bool is_shell(const struct json *command)
{
    const char *first = json_cstr(json_at(command, 0));

    return first && str_ends(base_name(first), STR("sh"));
}

/* A shell's text is cut into words; other arguments are words. */
static void read_words(struct words *w, const struct json *container)
{
    const struct json *lists[] = {json_get(container, "command"), json_get(container, "args")};
    bool shell = is_shell(lists[0]) || json_len(lists[0]) == 0; /* a worker's default is a shell */

    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        JSON_FOREACH (word, lists[i]) {
            const char *text = json_cstr(word);

            if (text && shell)
                split(w, str_from(text));
            else if (text)
                add_word(w, str_from(text));
        }
}

static bool word_is(const struct words *w, size_t i, const char *want)
{
    return i < w->n && strcmp(w->at[i], want) == 0;
}

/* --option value or --option=value; NULL when it is not there. */
static const char *option(const struct words *w, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < w->n; i++) {
        if (word_is(w, i, name))
            return i + 1 < w->n ? w->at[i + 1] : NULL;
        if (strncmp(w->at[i], name, len) == 0 && w->at[i][len] == '=')
            return w->at[i] + len + 1;
    }
    return NULL;
}

/* --- what it runs ----------------------------------------------------------------------------- */

static bool runs_module(const struct words *w, const char *module)
{
    bool python = false;

    for (size_t i = 0; i + 1 < w->n; i++) {
        if (python && word_is(w, i, "-m") && word_is(w, i + 1, module))
            return true;
        python |= str_starts(base_name(w->at[i]), STR("python"));
    }
    return false;
}

static bool runs_vllm(const struct words *w)
{
    for (size_t i = 0; i + 1 < w->n; i++)
        if (str_is(base_name(w->at[i]), "vllm") && word_is(w, i + 1, "serve"))
            return true;
    return runs_module(w, "vllm.entrypoints.openai.api_server");
}

static bool runs_mocker(const struct words *w)
{
    for (size_t i = 0; i < w->n; i++)
        if (str_is(base_name(w->at[i]), "dynamo-mocker"))
            return option(w, "--openai-port") != NULL;
    return runs_module(w, "dynamo.mocker") && option(w, "--openai-port");
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
    take_port(s, option(w, "--port"));
    take_port(s, option(w, "--openai-port"));
    take_events(s, option(w, "--kv-events-config"));
    put_number(s->events_port, option(w, "--zmq-kv-events-ports"), UINT16_MAX);
    put_number(s->replay_port, option(w, "--zmq-replay-ports"), UINT16_MAX);
    put_number(s->block_size, option(w, "--block-size"), 65536);
    put_number(s->block_size, option(w, "--page-size"), 65536);
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
    read_words(&w, container);
    found = !framework_detect(container) && read_command(&s, &w);
    if (named_kind(named, &s.kind))
        found = true;
    if (!found)
        return false;
    take_annotations(&s, annotations);
    *ret = s;
    return true;
}
