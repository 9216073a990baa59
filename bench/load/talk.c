/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/load/talk.h"

#include <inttypes.h>

#include "bench/load/prose.h"
#include "lib/base/json_put.h"

/* After a failure, so that a server that is away is not stormed. */
enum { BACKOFF_MS = 200 };

struct user {
    struct talk *talk;
    struct load_call *call;
    struct timer *timer;    /* think time and back-off */
    struct buf messages;    /* JSON objects with commas between, without brackets */
    uint64_t random;        /* of this conversation */
    uint64_t turn, n_turns; /* turn 0: no conversation */
    bool idle;              /* has nothing more to do */
};

struct talk {
    struct loop *loop;
    struct talk_conf conf;
    struct score *score;
    char *url;
    char **starters;
    struct user *users;
    uint64_t n_begun;
    size_t n_idle, n_running;
    bool stopping;
    struct buf body;
};

static void put_message(struct buf *out, const char *role, struct str content)
{
    struct json_put j = json_put_on(out);

    if (out->len > 0)
        buf_put_char(out, ',');
    json_put_object(&j);
    json_put_key(&j, "role");
    json_put_cstr(&j, role);
    json_put_key(&j, "content");
    json_put_str(&j, content);
    json_put_object_end(&j);
}

static void put_body(struct user *u, struct buf *out)
{
    const struct talk_conf *c = &u->talk->conf;
    uint64_t max_tokens = prose_between(&u->random, c->output_min, c->output_max);
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    json_put_key(&j, "model");
    json_put_cstr(&j, c->model);
    json_put_key(&j, "stream");
    json_put_bool(&j, true);
    json_put_key(&j, "stream_options");
    json_put_raw(&j, STR("{\"include_usage\":true}"));
    json_put_key(&j, "max_tokens");
    json_put_u64(&j, max_tokens);
    if (c->ignore_eos) {
        json_put_key(&j, "ignore_eos");
        json_put_bool(&j, true);
    }
    if (c->want_worker) {
        json_put_key(&j, "nvext");
        json_put_raw(&j, STR("{\"extra_fields\":[\"worker_id\"]}"));
    }
    json_put_key(&j, "messages");
    buf_put_char(out, '[');
    buf_put_str(out, buf_str(&u->messages));
    buf_put_cstr(out, "]}");
}

/* --- one user --------------------------------------------------------------------------------- */

static void on_answer(void *arg, const struct load_result *r, struct str text);

static void ask(struct user *u)
{
    struct talk *t = u->talk;
    struct load_call_spec spec = {.http = t->conf.http,
                                  .url = t->url,
                                  .timeout_ms = t->conf.timeout_ms,
                                  .keep_text = true,
                                  .gaps = &t->score->gaps,
                                  .done = on_answer,
                                  .arg = u};

    buf_clear(&t->body);
    put_body(u, &t->body);
    spec.body = buf_str(&t->body);
    t->n_running++;
    u->call = load_call_start(&spec);
}

static void rest(struct user *u)
{
    struct talk *t = u->talk;

    if (u->idle)
        return;
    u->idle = true;
    if (++t->n_idle == t->conf.concurrency)
        t->conf.done(t->conf.arg);
}

static void begin_conversation(struct user *u)
{
    struct talk *t = u->talk;
    const struct talk_conf *c = &t->conf;
    const char *starter;

    if (t->stopping || (c->conversations && t->n_begun == c->conversations)) {
        rest(u);
        return;
    }
    u->random = c->seed ^ (++t->n_begun * UINT64_C(0xd6e8feb86659fd93));
    starter = t->starters[prose_between(&u->random, 0, c->n_starters - 1)];
    u->n_turns = prose_between(&u->random, c->turns_min, c->turns_max);
    u->turn = 1;
    buf_clear(&u->messages);
    put_message(&u->messages, "user", str_from(starter));
    ask(u);
}

static void continue_conversation(struct user *u, struct str answer)
{
    AUTO(buf_done) struct buf question = BUF_NULL;

    put_message(&u->messages, "assistant", answer);
    prose_put(&question, &u->random, u->talk->conf.question_tokens, u->talk->conf.tokens_per_word);
    put_message(&u->messages, "user", buf_str(&question));
    u->turn++;
}

static void on_timer(void *arg)
{
    struct user *u = arg;

    if (u->turn == 0)
        begin_conversation(u);
    else if (u->talk->stopping)
        rest(u);
    else
        ask(u);
}

static void on_answer(void *arg, const struct load_result *r, struct str text)
{
    struct user *u = arg;
    struct talk *t = u->talk;

    u->call = NULL;
    t->n_running--;
    score_add(t->score, r);
    if (r->outcome != LOAD_OK || u->turn == u->n_turns)
        u->turn = 0;
    else
        continue_conversation(u, text);
    timer_start(u->timer, r->outcome != LOAD_OK ? BACKOFF_MS : t->conf.think_ms);
}

/* --- all -------------------------------------------------------------------------------------- */

/* The subject comes first: starters share no prefix. */
static char *starter_of(const struct talk_conf *c, uint64_t i)
{
    uint64_t random = c->starter_seed * UINT64_C(0x2545f4914f6cdd1d) + i;
    AUTO(buf_done) struct buf text = BUF_NULL;

    buf_printf(&text, "Article %" PRIu64 ".", prose_random(&random) % 1000000);
    prose_put(&text, &random, c->starter_tokens, c->tokens_per_word);
    buf_put_cstr(&text, "\n\nExplain the technical content of this article.");
    return buf_take_cstr(&text);
}

struct talk *talk_start(struct loop *l, const struct talk_conf *conf, struct score *score)
{
    struct talk *t = xcalloc(1, sizeof(*t));

    t->loop = l;
    t->conf = *conf;
    t->score = score;
    t->url = xasprintf("%s/v1/chat/completions", conf->url);
    t->starters = xcalloc(conf->n_starters, sizeof(char *));
    for (uint64_t i = 0; i < conf->n_starters; i++)
        t->starters[i] = starter_of(conf, i);
    t->users = xcalloc(conf->concurrency, sizeof(*t->users));
    for (uint64_t i = 0; i < conf->concurrency; i++) {
        struct user *u = &t->users[i];

        u->talk = t;
        u->timer = timer_new(l, on_timer, u);
        timer_start(u->timer, 0);
    }
    return t;
}

/* Who waits for its next turn need not wait any longer. */
void talk_stop(struct talk *t)
{
    t->stopping = true;
    for (uint64_t i = 0; i < t->conf.concurrency; i++)
        if (!t->users[i].call && !t->users[i].idle)
            timer_start(t->users[i].timer, 0);
}

struct talk *talk_free(struct talk *t)
{
    if (!t)
        return NULL;
    for (uint64_t i = 0; i < t->conf.concurrency; i++) {
        load_call_cancel(t->users[i].call);
        timer_free(t->users[i].timer);
        buf_done(&t->users[i].messages);
    }
    for (uint64_t i = 0; i < t->conf.n_starters; i++)
        free(t->starters[i]);
    free(t->starters);
    free(t->users);
    free(t->url);
    buf_done(&t->body);
    free(t);
    return NULL;
}

size_t talk_running(const struct talk *t)
{
    return t->n_running;
}
