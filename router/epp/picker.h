/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A frontend that only chooses: discovery, models, KV events and routing, without HTTP.
 *
 * It has a loop on a thread of its own. picker_start() and picker_free() are for one thread; the
 * functions of `on loop` are called by tasks alone (task.h, picker_loop()), prompt making by any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/net/loop.h"
#include "router/epp/llm_capi.h"
#include "router/epp/pods.h"
#include "router/frontend/model.h"
#include "router/frontend/pool.h"
#include "router/openai/openai.h"
#include "router/token/tokenizer.h"
#include "router/wire/optional.h"

struct picker;

struct picker_conf {
    const char *ns, *component; /* these are copied */
    const char *model;          /* NULL = any */
    const char *const *flags;   /* of a frontend, before its variables; ends with NULL */
    bool enforce_disagg;
    const char *(*env)(const char *name);
};

/* Returns when its model can be routed for; -EINVAL and the like: it cannot be made.
 * DYN_SYSTEM_PORT opens /health, /live and /metrics of it. */
MUST_CHECK int picker_start(struct picker **ret, const struct picker_conf *conf, struct err *e);
/* What was booked is given back. NULL in, NULL out. */
struct picker *picker_free(struct picker *p);
DEFINE_CLEANUP(struct picker *, picker_free)
struct loop *picker_loop(const struct picker *p);

/* --- on loop; after the frontend has ended they answer as if nobody were there --- */

struct pick {
    enum pool_role role;
    bool disagg;     /* of POOL_DECODE: the prompt comes from elsewhere */
    struct str salt; /* keeps its blocks apart from others'; empty = none */
    const struct openai_request *request;
    const uint32_t *tokens;
    size_t n_tokens;
    struct pods pods;
    struct worker_rank worker; /* the answer */
};

/* Chooses for an answer that begins and ends here: where there are prefill workers, one of each. Whether it
 * found one that computes the prompt apart is in @ret_prefill->set. */
query_router_result_t picker_choose_pair(struct picker *p, struct model *m, struct pick *pick,
                                         struct opt_u64 *ret_prefill);
/* The one that is to answer @in; NULL when there is none. A reference, for model_unref(). */
struct model *picker_take_model(struct picker *p, const struct openai_request *in, struct str body);
query_router_result_t picker_choose(struct picker *p, struct model *m, struct pick *pick);
/* Of @pick its tokens, salt and worker. Codes as add_request() and its kin have them. */
query_router_result_t picker_book(struct picker *p, struct str id, const struct pick *pick);
void picker_prefilled(struct picker *p, struct str id);
void picker_end(struct picker *p, struct str id);
