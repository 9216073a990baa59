/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions over NATS and their answers, as JetStream's API wants them, on the loop: no thread and
 * no waiting of its own. The API is JSON over plain subjects ($JS.API.…), so that a link is all it
 * needs.
 *
 * A question is answered exactly once: with what the server said, or after 5 s with JS_LOST. One
 * loop thread.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/net/loop.h"
#include "lib/net/nats_link.h"

struct nats_js;

enum { JS_LOST = -1, JS_NOT_FOUND = 404 };

struct js_answer {
    int code;           /* 0, an error of the API, or JS_LOST */
    char why[128];      /* "" without error */
    struct str payload; /* JSON; a view during the call */
};

typedef void (*js_fn)(void *arg, const struct js_answer *a);

MUST_CHECK int nats_js_new(struct nats_js **ret, struct loop *l, struct nats_link *n,
                           struct err *e);
/* Before its link. Unanswered questions are forgotten. */
struct nats_js *nats_js_free(struct nats_js *js);
DEFINE_CLEANUP(struct nats_js *, nats_js_free)
/* @out->reply is ours. Copies. */
void nats_js_ask(struct nats_js *js, const struct nats_outgoing *out, js_fn fn, void *arg);
/* Forgets all questions of @arg. */
void nats_js_forget(struct nats_js *js, const void *arg);
