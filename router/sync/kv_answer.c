/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/kv_answer.h"

#include <errno.h>

#include "lib/base/json_pull.h"
#include "lib/base/json_put.h"
#include "router/sync/event_order.h"

void kv_query_put(struct buf *out, const struct event_question *q)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    json_put_member_u64(&j, "worker_id", q->worker.worker_id);
    opt_u64_put(&j, "start_event_id", q->first);
    opt_u64_put(&j, "end_event_id", q->last);
    opt_u64_put(&j, "dp_rank", OPT_U64(q->worker.dp_rank));
    json_put_member_bool(&j, "supports_tree_dump_failed", true);
    json_put_member_cstr(&j, "kind", "recovery");
    json_put_object_end(&j);
}

/* A number, or null, or something else that is passed over. */
static void pull_id(struct json_pull *p, struct opt_u64 *ret)
{
    if (json_pull_peek(p) == JSON_KIND_NUMBER)
        ret->set = json_pull_u64(p, &ret->v);
    else
        (void)json_pull_skip(p, NULL);
}

/* An array, or since 1.x {"events":[…],"last_event_id":n,…}. */
static void pull_events(struct json_pull *p, struct kv_answer *a)
{
    struct str key;

    if (json_pull_peek(p) == JSON_KIND_ARRAY) {
        (void)json_pull_skip(p, &a->events);
        return;
    }
    if (!json_pull_object(p))
        return;
    while (json_pull_key(p, &key)) {
        if (str_is(key, "events") && json_pull_peek(p) == JSON_KIND_ARRAY)
            (void)json_pull_skip(p, &a->events);
        else if (str_is(key, "last_event_id"))
            pull_id(p, &a->newest);
        else
            (void)json_pull_skip(p, NULL);
    }
}

static void pull_too_new(struct json_pull *p, struct kv_answer *a)
{
    struct str key;

    if (!json_pull_object(p))
        return;
    while (json_pull_key(p, &key)) {
        if (str_is(key, "newest_available"))
            pull_id(p, &a->newest);
        else
            (void)json_pull_skip(p, NULL);
    }
}

static void pull_variant(struct json_pull *p, struct str name, struct kv_answer *a)
{
    if (str_is(name, "Events") || str_is(name, "TreeDump")) {
        a->kind = str_is(name, "Events") ? KV_ANSWER_EVENTS : KV_ANSWER_DUMP;
        pull_events(p, a);
    } else if (str_is(name, "TooNew")) {
        a->kind = KV_ANSWER_TOO_NEW;
        pull_too_new(p, a);
    } else if (json_pull_peek(p) == JSON_KIND_STRING) {
        (void)json_pull_raw_string(p, &a->why);
    } else {
        a->why = name;
        (void)json_pull_skip(p, NULL);
    }
}

int kv_answer_parse(struct str json, struct kv_answer *ret, struct err *e)
{
    struct kv_answer a = {.kind = KV_ANSWER_REFUSED};
    struct json_pull p;
    struct str name;
    unsigned variants = 0;
    int r;

    json_pull_init(&p, json);
    if (json_pull_peek(&p) == JSON_KIND_STRING) { /* a variant without content */
        variants = json_pull_raw_string(&p, &a.why);
    } else if (json_pull_object(&p)) {
        for (; json_pull_key(&p, &name); variants++)
            pull_variant(&p, name, &a);
    }
    r = json_pull_end(&p, e);
    if (r < 0)
        return err_wrap(e, r, "recovery answer");
    if (variants != 1)
        return err_set(e, -EINVAL, "recovery answer: %u variants instead of one", variants);
    if ((a.kind == KV_ANSWER_EVENTS || a.kind == KV_ANSWER_DUMP) && !a.events.ptr)
        return err_set(e, -EINVAL, "recovery answer: no events in it");
    if (a.kind == KV_ANSWER_TOO_NEW && !a.newest.set)
        return err_set(e, -EINVAL, "recovery answer: newest_available is missing");
    *ret = a;
    return 0;
}
