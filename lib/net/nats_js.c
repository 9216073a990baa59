/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/nats_js.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/buf.h"
#include "lib/base/digest.h"
#include "lib/base/json_pull.h"
#include "lib/base/list.h"

enum { ANSWER_MS = 5000, CHECK_MS = 500, NOBODY_THERE = 503 };

struct question {
    struct list link;
    uint64_t id, until_ms;
    js_fn fn;
    void *arg;
};

struct nats_js {
    struct loop *loop;
    struct nats_link *link;
    char inbox[32]; /* "_INBOX.<hex>." */
    uint64_t subscription, last_id;
    struct list questions;
    struct timer *check;
};

/* --- answers -------------------------------------------------------------------------------------- */

/* Writes the code and text of an answer's "error" member; 0 when it has none. */
static int js_error_parse(struct str json, char *ret_why, size_t size)
{
    struct str error = json_pull_member(json, "error");
    struct str text = json_pull_member(error, "description");
    uint64_t code = 0;

    ret_why[0] = '\0';
    if (json.len == 0 || json.ptr[0] != '{') {
        (void)snprintf(ret_why, size, "the answer is not JSON");
        return JS_LOST;
    }
    if (error.len == 0)
        return 0;
    (void)snprintf(ret_why, size, "%.*s", STR_ARG(text));
    return str_parse_u64(json_pull_member(error, "code"), &code) && code > 0 && code < 1000
               ? (int)code
               : JS_LOST;
}

static void answer(struct question *q, const struct js_answer *a)
{
    struct question done = *q;

    list_remove(&q->link);
    free(q);
    done.fn(done.arg, a); /* may free the client */
}

static void on_answer(void *arg, const struct nats_message *m)
{
    struct nats_js *js = arg;
    struct js_answer a = {.payload = m->payload};
    uint64_t id;

    if (!str_parse_hex64(str_skip(m->subject, strlen(js->inbox)), &id))
        return;
    if (m->status == NOBODY_THERE) {
        a.code = JS_LOST;
        (void)snprintf(a.why, sizeof(a.why), "the server has no JetStream");
    } else {
        a.code = js_error_parse(m->payload, a.why, sizeof(a.why));
    }
    LIST_FOREACH (q, &js->questions, struct question, link) {
        if (q->id == id) {
            answer(q, &a);
            return;
        }
    }
}

static struct question *overdue(struct nats_js *js)
{
    LIST_FOREACH (q, &js->questions, struct question, link)
        if (q->until_ms <= loop_now_ms(js->loop))
            return q;
    return NULL;
}

/* One at a time: an answer may free the client, whose timer then does not come again. */
static void on_check(void *arg)
{
    static const struct js_answer lost = {.code = JS_LOST, .why = "no answer"};
    struct nats_js *js = arg;
    struct question *q = overdue(js);

    if (!list_empty(&js->questions))
        timer_start(js->check, q ? 0 : CHECK_MS);
    if (q)
        answer(q, &lost);
}

/* --- questions ------------------------------------------------------------------------------------ */

void nats_js_ask(struct nats_js *js, const struct nats_outgoing *out, js_fn fn, void *arg)
{
    struct question *q = xcalloc(1, sizeof(*q));
    AUTO(mem_free) char *reply = xasprintf("%s%" PRIx64, js->inbox, ++js->last_id);
    struct nats_outgoing with_reply = *out;

    q->id = js->last_id;
    q->fn = fn;
    q->arg = arg;
    q->until_ms = loop_now_ms(js->loop) + ANSWER_MS;
    list_append(&js->questions, &q->link);
    with_reply.reply = reply;
    (void)nats_link_send(js->link, &with_reply); /* what did not leave is not answered */
    if (!timer_active(js->check))
        timer_start(js->check, CHECK_MS);
}

void nats_js_forget(struct nats_js *js, const void *arg)
{
    LIST_FOREACH (q, &js->questions, struct question, link) {
        if (q->arg == arg) {
            list_remove(&q->link);
            free(q);
        }
    }
}

int nats_js_new(struct nats_js **ret, struct loop *l, struct nats_link *n, struct err *e)
{
    AUTO(nats_js_free) struct nats_js *js = xcalloc(1, sizeof(*js));
    AUTO(mem_free) char *all = NULL;
    int r;

    js->loop = l;
    js->link = n;
    list_init(&js->questions);
    js->check = timer_new(l, on_check, js);
    (void)snprintf(js->inbox, sizeof(js->inbox), "_INBOX.%016" PRIx64 ".", random_u64());
    all = xasprintf("%s*", js->inbox);
    r = nats_link_subscribe(n, all, on_answer, js, &js->subscription, e);
    if (r < 0)
        return r;
    *ret = TAKE(js);
    return 0;
}

struct nats_js *nats_js_free(struct nats_js *js)
{
    if (!js)
        return NULL;
    LIST_FOREACH (q, &js->questions, struct question, link) {
        list_remove(&q->link);
        free(q);
    }
    if (js->subscription)
        nats_link_unsubscribe(js->link, js->subscription);
    timer_free(js->check);
    free(js);
    return NULL;
}
