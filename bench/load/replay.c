/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/load/replay.h"

#include <errno.h>
#include <inttypes.h>

#include "bench/load/trace_line.h"
#include "lib/base/json_put.h"
#include "lib/base/list.h"

struct flight {
    struct list link;
    struct replay *replay;
    struct load_call *call;
};

struct replay {
    struct loop *loop;
    struct replay_conf conf;
    struct score *score;
    char *url;
    struct timer *timer;
    struct list flights;
    size_t n_running;
    uint64_t start_ns, n_sent, n_late, n_left_out, n_lines;
    struct trace_line next; /* valid while `has_next` */
    bool has_next, at_end, told;
    struct err why; /* of a bad trace; empty text = none */
    char *line;
    size_t line_size;
    struct buf body;
};

static void end_if_over(struct replay *rp)
{
    if (!rp->at_end || rp->has_next || rp->n_running > 0 || rp->told)
        return;
    rp->told = true;
    rp->conf.done(rp->conf.arg, rp->why.text[0] ? rp->why.text : NULL);
}

/* False at the end of the trace. */
static bool read_next(struct replay *rp)
{
    while (!rp->has_next && !rp->at_end) {
        ssize_t n = getline(&rp->line, &rp->line_size, rp->conf.file);
        struct str text = n > 0 ? str_trim(str_slice(rp->line, (size_t)n)) : STR_NULL;

        rp->n_lines++;
        if (n <= 0) {
            rp->at_end = true;
        } else if (text.len == 0) {
            continue;
        } else if (trace_line_parse(text, &rp->next, &rp->why) < 0) {
            (void)err_wrap(&rp->why, -EINVAL, "line %" PRIu64, rp->n_lines);
            rp->at_end = true;
        } else if (rp->conf.input_max && rp->next.input_length > rp->conf.input_max) {
            rp->n_left_out++;
        } else {
            rp->why.text[0] = '\0';
            rp->has_next = true;
        }
    }
    return rp->has_next;
}

static void put_body(struct replay *rp)
{
    struct json_put j = json_put_on(&rp->body);

    buf_clear(&rp->body);
    json_put_object(&j);
    json_put_key(&j, "model");
    json_put_cstr(&j, rp->conf.model);
    json_put_key(&j, "stream");
    json_put_bool(&j, true);
    json_put_key(&j, "stream_options");
    json_put_raw(&j, STR("{\"include_usage\":true}"));
    json_put_key(&j, "max_tokens");
    json_put_u64(&j, rp->next.output_length);
    if (rp->conf.ignore_eos) {
        json_put_key(&j, "ignore_eos");
        json_put_bool(&j, true);
    }
    if (rp->conf.want_worker) {
        json_put_key(&j, "nvext");
        json_put_raw(&j, STR("{\"extra_fields\":[\"worker_id\"]}"));
    }
    json_put_key(&j, "prompt");
    trace_line_put_prompt(&rp->body, &rp->next, rp->conf.token_first, rp->conf.token_last,
                          rp->n_sent);
    buf_put_char(&rp->body, '}');
}

static void pump(struct replay *rp);

static void on_answer(void *arg, const struct load_result *r, struct str text)
{
    struct flight *f = arg;
    struct replay *rp = f->replay;

    (void)text;
    list_remove(&f->link);
    free(f);
    rp->n_running--;
    score_add(rp->score, r);
    pump(rp);
}

static void send_next(struct replay *rp)
{
    struct flight *f = xcalloc(1, sizeof(*f));
    struct load_call_spec spec = {.http = rp->conf.http,
                                  .url = rp->url,
                                  .timeout_ms = rp->conf.timeout_ms,
                                  .gaps = &rp->score->gaps,
                                  .done = on_answer,
                                  .arg = f};

    put_body(rp);
    spec.body = buf_str(&rp->body);
    f->replay = rp;
    f->call = load_call_start(&spec);
    list_append(&rp->flights, &f->link);
    rp->n_running++;
    rp->n_sent++;
    rp->has_next = false;
    if (rp->conf.requests_max && rp->n_sent == rp->conf.requests_max)
        rp->at_end = true;
}

static uint64_t due_ns(const struct replay *rp)
{
    return rp->start_ns + (uint64_t)(rp->next.timestamp_ms * 1e6 / rp->conf.speed);
}

/* Sends what is due. */
static void pump(struct replay *rp)
{
    while (read_next(rp)) {
        uint64_t now = clock_now_ns(), due = due_ns(rp);

        if (due > now) {
            timer_start(rp->timer, (due - now + 999999) / 1000000);
            return;
        }
        if (rp->n_running >= rp->conf.in_flight_max)
            return; /* an answer pumps again */
        if (now - due > UINT64_C(100000000))
            rp->n_late++;
        send_next(rp);
    }
    end_if_over(rp);
}

static void on_timer(void *arg)
{
    pump(arg);
}

struct replay *replay_start(struct loop *l, const struct replay_conf *conf, struct score *score)
{
    struct replay *rp = xcalloc(1, sizeof(*rp));

    rp->loop = l;
    rp->conf = *conf;
    rp->score = score;
    rp->url = xasprintf("%s/v1/completions", conf->url);
    rp->start_ns = clock_now_ns();
    list_init(&rp->flights);
    rp->timer = timer_new(l, on_timer, rp);
    timer_start(rp->timer, 0);
    return rp;
}

void replay_stop(struct replay *rp)
{
    rp->at_end = true;
    rp->has_next = false;
    timer_start(rp->timer, 0);
}

struct replay *replay_free(struct replay *rp)
{
    if (!rp)
        return NULL;
    LIST_FOREACH (f, &rp->flights, struct flight, link) {
        load_call_cancel(f->call);
        free(f);
    }
    timer_free(rp->timer);
    trace_line_done(&rp->next);
    free(rp->line);
    free(rp->url);
    buf_done(&rp->body);
    free(rp);
    return NULL;
}

size_t replay_running(const struct replay *rp)
{
    return rp->n_running;
}

uint64_t replay_late(const struct replay *rp)
{
    return rp->n_late;
}

uint64_t replay_left_out(const struct replay *rp)
{
    return rp->n_left_out;
}
