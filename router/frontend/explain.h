/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "Why this worker?": remembers decisions, answers about them, and measures them.
 *
 *     GET /explain/{request id}         every decision of the request, or of the newest that its
 *                                       client called so (x-request-id), oldest first; JSON, or with
 *                                       Accept: text/plain a sentence and a few lines each
 *     GET /decisions?since=SEQ&limit=N  JSON lines, oldest first, those numbered above SEQ; a first
 *                                       line {"overwritten":N} when some of them are gone, or
 *                                       {"restarted":true} when SEQ is not of this process
 *
 * Shadow policies score every decision here, without effect. One loop thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/metric.h"
#include "lib/net/loop.h"
#include "router/sched/decision_record.h"

struct explain;
struct http_exchange;

struct explain_conf {
    struct loop *loop;
    size_t records;      /* in the ring */
    const char *file;    /* to append every decision to, NULL = none */
    uint64_t file_bytes; /* see decision_log.h */
    uint64_t shadows;    /* bits of ROUTE_SHADOW_WORDS */
    struct metric_registry *metrics;
};

struct frontend_conf;
/* As the options say. */
struct explain_conf explain_conf_of(const struct frontend_conf *c, struct loop *l,
                                    struct metric_registry *metrics);
/* -errno when the file cannot be written. */
MUST_CHECK int explain_new(struct explain **ret, const struct explain_conf *conf, struct err *e);
struct explain *explain_free(struct explain *x);
DEFINE_CLEANUP(struct explain *, explain_free)
void explain_shadow(struct explain *x, uint64_t shadows);

/* A client calls the request @id by another name, too. */
void explain_named(struct explain *x, struct str client_id, struct str id);
/* What scheduler_route() made of @q. Returns the number of the record. */
uint64_t explain_decided(struct explain *x, const struct route_request *q,
                         const struct route_decision *d, int result,
                         const struct decision_context *context);
/* How it went, once. Nothing happens when the record is overwritten. */
void explain_ended(struct explain *x, uint64_t seq, const struct decision_outcome *outcome);

void explain_answer(struct explain *x, struct http_exchange *exchange);
void explain_list(struct explain *x, struct http_exchange *exchange);
