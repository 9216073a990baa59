/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request of the OpenAI API on the modelled engine, from its body to its last chunk.
 */
#include <stdio.h>

#include "lib/base/digest.h"
#include "lib/base/json_pull.h"
#include "router/openai/chunk.h"
#include "router/token/detok.h"
#include "router/token/stop.h"
#include "worker/openai_inner.h"

struct openai_job {
    struct list link;
    struct openai_server *s;
    struct http_exchange *x; /* NULL: answered, or the client has gone */
    struct arena *arena;     /* of @in */
    struct openai_request in;
    struct token_ids prompt;
    struct mock_job *job;
    struct detok detok;
    struct stop_rules rules;
    struct stop stop;
    struct chunk chunk;
    struct buf out, text;
    struct chunk_end end;
    struct usage usage;
    bool begun, dropping;
};

static void job_free(struct openai_job *j)
{
    list_remove(&j->link);
    j->job = mock_job_cancel(j->job);
    detok_done(&j->detok);
    stop_done(&j->stop);
    chunk_done(&j->chunk);
    token_ids_done(&j->prompt);
    openai_request_done(&j->in);
    arena_free(j->arena);
    buf_done(&j->out);
    buf_done(&j->text);
    free(j);
}

static void count_end(struct openai_job *j, enum openai_end how)
{
    metric_add(j->s->ended[how], 1);
}

/* --- answers ---------------------------------------------------------------------------------- */

static const struct usage *usage_in_chunks(const struct openai_job *j)
{
    return j->in.continuous_usage ? &j->usage : NULL;
}

static void flush(struct openai_job *j)
{
    if (j->out.len == 0)
        return;
    if (!j->begun)
        http_stream_begin(j->x, 200, "text/event-stream; charset=utf-8");
    j->begun = true;
    http_stream_write(j->x, buf_str(&j->out));
    buf_clear(&j->out);
}

static void emit(struct openai_job *j, struct str text)
{
    if (!j->in.stream)
        buf_put_str(&j->text, text);
    else
        chunk_put_text(&j->chunk, &j->out, text, usage_in_chunks(j));
}

static void complete(struct openai_job *j)
{
    struct http_exchange *x = j->x;

    if (!x)
        return;
    if (!j->in.stream) {
        chunk_put_folded(&j->chunk, &j->out, &(struct chunk_delta){.text = buf_str(&j->text)},
                         &j->end, &j->usage);
        http_respond(x, 200, "application/json", buf_str(&j->out));
    } else {
        chunk_put_end(&j->chunk, &j->out,
                      &(struct chunk_delta){.text = j->chunk.api == API_CHAT ? STR_NULL : STR("")},
                      &j->end, usage_in_chunks(j));
        if (j->in.include_usage)
            chunk_put_usage(&j->chunk, &j->out, &j->usage);
        chunk_put_done(&j->out);
        flush(j);
        http_stream_end(x);
    }
    j->x = NULL;
}

/* --- what the engine says --------------------------------------------------------------------- */

static void drop(void *arg)
{
    job_free(arg);
}

/* A stop string: the engine must not be called from within its own callback. */
static void stop_here(struct openai_job *j)
{
    count_end(j, OPENAI_STOP);
    complete(j);
    j->dropping = true;
    loop_defer(j->s->conf.loop, drop, j);
}

static void take_usage(struct openai_job *j, struct str json)
{
    struct str details = json_pull_member(json, "prompt_tokens_details");
    struct str cached = json_pull_member(details, "cached_tokens");
    uint64_t n = 0;

    if (details.len)
        j->usage.prompt_details_json = str_from(arena_strdup(j->arena, details));
    (void)!str_parse_u64(cached, &n);
    metric_add(j->s->queries, (double)j->prompt.len);
    metric_add(j->s->hits, (double)n);
}

/* True when a stop string was found. */
static bool take_ids(struct openai_job *j, const struct engine_output *o, struct buf *text)
{
    for (size_t i = 0; i < o->n_token_ids; i++) {
        struct str piece = detok_push(&j->detok, o->token_ids[i]);

        (void)stop_count(&j->stop, o->token_ids[i]); /* no id is hidden here */
        if (stop_push(&j->stop, piece, text) != STOP_GO_ON)
            return true;
    }
    return false;
}

static void on_item(void *arg, struct mock_worker *w, const struct engine_output *o)
{
    struct openai_job *j = arg;
    AUTO(buf_done) struct buf text = BUF_NULL;
    bool stopped;

    (void)w;
    if (j->dropping)
        return;
    j->usage.completion_tokens += o->n_token_ids;
    metric_add(j->s->generation_tokens, (double)o->n_token_ids);
    stopped = take_ids(j, o, &text);
    if (o->finish != FINISH_NONE && !stopped)
        stop_flush(&j->stop, &text);
    if (o->completion_usage_json.len)
        take_usage(j, o->completion_usage_json);
    if (text.len || o->n_token_ids)
        emit(j, text.len ? buf_str(&text) : STR(""));
    j->end.finish = o->finish == FINISH_LENGTH && !stopped ? "length" : "stop";
    if (stopped)
        stop_here(j);
    else if (j->in.stream)
        flush(j);
}

static void on_finished(void *arg)
{
    struct openai_job *j = arg;

    j->job = NULL;
    if (j->dropping)
        return;
    count_end(j, strcmp(j->end.finish, "length") == 0 ? OPENAI_LENGTH : OPENAI_STOP);
    complete(j);
    job_free(j);
}

static void on_broken(void *arg)
{
    struct openai_job *j = arg;

    j->job = NULL;
    if (j->x && j->begun)
        http_stream_abort(j->x);
    else if (j->x)
        http_respond(j->x, 503, "text/plain", STR("engine is gone"));
    j->x = NULL;
    if (!j->dropping)
        job_free(j);
}

/* Only what waits for another worker's prompt fails so, which this API has not. */
static void on_failed(void *arg, const char *why)
{
    (void)why;
    on_broken(arg);
}

static const struct mock_answer ANSWER = {
    .item = on_item, .finished = on_finished, .failed = on_failed, .broken = on_broken};

/* The client has left: vLLM aborts what runs for it, and counts that nowhere. */
static void on_gone(void *arg)
{
    struct openai_job *j = arg;

    j->x = NULL;
    if (!j->dropping)
        job_free(j);
}

/* --- start ------------------------------------------------------------------------------------ */

bool openai_prompt(struct openai_server *s, const struct openai_request *in, struct token_ids *ret,
                   struct api_error *e)
{
    AUTO(buf_done) struct buf rendered = BUF_NULL;
    struct chat_input chat = {.messages = in->messages,
                              .tools = in->tools,
                              .args = in->template_args,
                              .response_format = in->guided.response_format};
    struct str text = in->prompt.text;
    struct err why;
    int r = 0;

    if (in->prompt.is_ids) {
        memcpy(token_ids_reserve(ret, in->prompt.n_ids), in->prompt.ids,
               in->prompt.n_ids * sizeof(*in->prompt.ids));
        ret->len = in->prompt.n_ids;
        return true;
    }
    if (in->api == API_CHAT) {
        if (!s->text.chat)
            return api_fail(e, 400, "messages", "the model has no chat template");
        r = chat_render(s->text.chat, &chat, &rendered, &why);
        text = buf_str(&rendered);
    }
    if (r == 0)
        r = tokenizer_encode(s->text.tokenizer, s->scratch, text, ret, &why);
    return r == 0 || api_fail(e, 400, NULL, "%s", why.text);
}

static void start_output(struct openai_job *j)
{
    const struct openai_request *in = &j->in;
    struct str id = http1_header_get(http_request(j->x), "x-request-id");
    char uuid[UUID_TEXT_SIZE];

    random_uuid(uuid);
    j->rules = (struct stop_rules){
        .strings = in->stop.stop,
        .n_strings = in->stop.n_stop,
        .min_tokens = in->stop.min_tokens.set ? in->stop.min_tokens.v : 0,
        .include_string = in->sampling.include_stop_str_in_output.set &&
                          in->sampling.include_stop_str_in_output.v,
    };
    stop_init(&j->stop, &j->rules);
    detok_init(&j->detok, j->s->text.tokenizer, j->prompt.ptr, j->prompt.len, true);
    chunk_init(&j->chunk, in->api, &CHUNKS_OF_1, id.len ? id : str_from(uuid), in->model,
               clock_wall_ms() / 1000);
}

static bool submit(struct openai_job *j, struct api_error *e)
{
    const struct model_text *t = &j->s->text;
    struct engine_request rq = {.model = j->in.model,
                                .token_ids = j->prompt.ptr,
                                .n_token_ids = j->prompt.len,
                                .stop = j->in.stop,
                                .eos_token_ids = t->eos_ids,
                                .n_eos_token_ids = t->n_eos_ids};
    struct err why;

    if (mock_worker_submit(j->s->conf.worker, arena_new(), &rq, &ANSWER, j, &j->job, &why) < 0)
        return api_fail(e, 400, NULL, "%s", why.text);
    metric_add(j->s->prompt_tokens, (double)j->prompt.len);
    j->usage.prompt_tokens = j->prompt.len;
    return true;
}

static bool check_choices(const struct openai_request *in, struct api_error *e)
{
    return openai_request_choices(in) == 1
               ? true
               : api_fail(e, 400, "n", "one choice a request is served");
}

static bool check_model(const struct openai_server *s, const struct openai_request *in,
                        struct api_error *e)
{
    if (s->stopping)
        return api_fail(e, 503, NULL, "engine is stopping");
    return str_is(in->model, s->name) ||
           api_fail(e, 404, "model", "The model `%.*s` does not exist.", STR_ARG(in->model));
}

void openai_job_start(struct openai_server *s, struct http_exchange *x, enum api api)
{
    struct openai_job *j = xcalloc(1, sizeof(*j));
    struct api_error e;

    j->s = s;
    j->x = x;
    j->arena = arena_new();
    list_append(&s->jobs, &j->link);
    if (!openai_request_parse(api, http_request(x)->body, j->arena, &j->in, &e) ||
        !check_model(s, &j->in, &e) || !check_choices(&j->in, &e) ||
        !openai_prompt(s, &j->in, &j->prompt, &e)) {
        api_error_respond(x, &e);
        job_free(j);
        return;
    }
    start_output(j);
    if (!submit(j, &e)) {
        api_error_respond(x, &e);
        job_free(j);
        return;
    }
    http_on_gone(x, on_gone, j);
}

void openai_jobs_drop(struct openai_server *s)
{
    LIST_FOREACH (j, &s->jobs, struct openai_job, link) {
        j->x = NULL;
        list_remove(&j->link);
        if (!j->dropping)
            job_free(j);
    }
}
