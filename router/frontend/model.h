/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model as it is served: card, tokenizer, chat template, scheduler, and where its workers are.
 *
 * Loaded off the loop when its first card appears; requests wait for nothing, they are told that
 * the model is not there yet. A request holds a reference, so a model that discovery drops lives
 * until its last request has ended. One loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/net/loop.h"
#include "router/discovery/instances.h"
#include "router/sched/scheduler.h"
#include "router/token/chat.h"
#include "router/token/tokenizer.h"

struct map64;
struct model;

enum model_state { MODEL_LOADING, MODEL_READY, MODEL_FAILED };

struct model_conf {
    struct loop *loop;
    const char *model_root;                    /* where cards' files are looked for, may be NULL */
    uint32_t block_size;                       /* override of the card's, 0 = none */
    const struct route_conf *route;            /* borrowed: the configuration in force */
    void (*ready)(void *arg, struct model *m); /* loaded or failed */
    void *arg;
};

struct model {
    unsigned refs;
    struct model_conf conf;
    char *name;
    char *label; /* lower case, for metrics (wire.md §10) */
    struct model_card *card;
    char *ns, *component, *endpoint;
    enum model_state state;
    struct err why; /* of MODEL_FAILED */
    struct tokenizer *tokenizer;
    struct chat *chat; /* NULL: completions only */
    uint32_t *eos_ids;
    size_t n_eos_ids;
    struct scheduler *scheduler;
    struct map64 *addresses; /* worker id -> its address (char *) */
    struct map64 *inhibited; /* worker id -> until when (loop ms) it is passed over */
    double busy_decode_blocks, busy_prefill_tokens; /* of /busy_threshold; NAN = configuration's */
    struct tokenizer_scratch **spare;               /* one per thread that tokenizes at a time */
    size_t n_spare;
};

/* Starts loading. Never NULL. */
struct model *model_new(const struct served_model *found, const struct model_conf *conf);
struct model *model_ref(struct model *m);
struct model *model_unref(struct model *m);
/* After a change of configuration or thresholds. */
void model_configure(struct model *m);

void model_put_worker(struct model *m, const struct worker *w);
void model_remove_worker(struct model *m, uint64_t worker_id);
/* Empty when the worker is not there (any more). Borrowed until it changes. */
struct str model_worker_address(const struct model *m, uint64_t worker_id);

/* A worker that just failed is passed over for a while, unless there is no other. */
enum { MODEL_INHIBIT_MS = 5000 };
void model_inhibit(struct model *m, uint64_t worker_id);
/* Writes at most @cap ids that are inhibited now, returns how many. */
size_t model_inhibited(struct model *m, uint64_t *ret_ids, size_t cap);

/* Working memory for one tokenization; give it back. */
struct tokenizer_scratch *model_take_scratch(struct model *m);
void model_give_scratch(struct model *m, struct tokenizer_scratch *take_scratch);
