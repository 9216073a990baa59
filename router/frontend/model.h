/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model as it is served: card, tokenizer, chat template, and the pool of its workers.
 *
 * Loaded off the loop when its first card appears, and again, after a pause that grows, while its
 * files cannot be had; requests wait for nothing, they are told that the model is not there yet. A
 * request holds a reference, so a model that discovery drops lives until its last request has
 * ended. A changed card makes a new model on the same pool: what began with the old tokenizer and
 * template ends with them. One loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/net/loop.h"
#include "lib/net/side_pool.h"
#include "router/discovery/instances.h"
#include "router/discovery/model_cache.h"
#include "router/discovery/model_text.h"
#include "router/frontend/pool.h"
#include "router/openai/chunk_style.h"
#include "router/token/chat.h"
#include "router/token/prompt_cache.h"
#include "router/token/tokenizer.h"

struct model;

/* Whose answers clients get: those of the generation that the model's card is of, or always of one. */
enum answer_style { ANSWERS_BY_CARD, ANSWERS_OF_0_9, ANSWERS_OF_1 };

/* Of those of 1.x: the member that has the thoughts. */
enum reasoning_field { REASONING_IN_CONTENT, REASONING_SHORT };

enum model_state { MODEL_LOADING, MODEL_READY, MODEL_FAILED };

struct model_conf {
    struct loop *loop;
    struct side_pool *side;            /* where loading is done */
    const struct model_places *places; /* where cards' files are looked for */
    uint64_t retry_ms;                 /* before the second attempt; 0 = 5 s */
    enum template_style template_style;
    enum answer_style answer_style;
    enum reasoning_field reasoning_field;
    struct card_objects *objects;              /* for cards whose files are in NATS */
    size_t prompt_cache_bytes;                 /* 0 = every prompt is tokenized whole */
    uint32_t block_size;                       /* override of the card's, 0 = none */
    const struct route_conf *route;            /* borrowed: the configuration in force */
    void (*ready)(void *arg, struct model *m); /* loaded or failed, the latter several times */
    void *arg;
};

struct model {
    unsigned refs;
    struct model_conf conf;
    char *name;
    char *label; /* lower case, for metrics (wire.md §10) */
    struct model_card *card;
    const struct chunk_style *chunks;
    bool reads_special; /* its parsers need the text of special tokens */
    enum model_state state;
    struct err why; /* of MODEL_FAILED, or what a model that is ready lacks; "" = nothing */
    struct timer *retry;
    unsigned failures;
    unsigned n_fetched, n_differ; /* as in model_files, and so are these */
    struct hub_hold *hold;
    bool has_room;
    unsigned n_evicted;
    uint64_t hub_bytes;
    bool dropped;
    struct tokenizer *tokenizer;
    struct prompt_cache *prompt_cache; /* NULL = none */
    struct chat *chat;                 /* NULL: completions only */
    uint32_t *eos_ids;
    size_t n_eos_ids;
    uint32_t vocabulary; /* ids it has, as model_text says */
    struct image_marks images;
    bool
        is_stock; /* its workers are plain OpenAI servers: they serve what we cannot tokenize, too */
    bool takes_text;        /* its workers take clients' requests as they are: no tokens here */
    struct model *next_set; /* of the same name; linked by serving_link_sets() */
    struct pool *pool;
    double busy_decode_blocks, busy_prefill_tokens; /* of /busy_threshold; NAN = configuration's */
    struct tokenizer_scratch **spare;               /* one per thread that tokenizes at a time */
    size_t n_spare;
};

/* Starts loading. @pool NULL = one of its own, else a reference is taken. Never NULL. */
struct model *model_new(const struct served_model *found, const struct model_conf *conf,
                        struct pool *pool);
/* Whether clients get what the reference's frontend 1.x would give them; no plain OpenAI server. */
bool model_is_of_1(const struct model *m);
/* What of a request's salt its caches are looked up by: engines behind 0.9.0 know none. */
struct str model_salt(const struct model *m, struct str salt);
struct model *model_ref(struct model *m);
/* Nobody wants it any more: it tells nothing further. Gives the reference back. */
struct model *model_drop(struct model *m);
struct model *model_unref(struct model *m);
/* After a change of configuration or thresholds. */
void model_configure(struct model *m);

/* Whether clients are told of it. */
static inline bool model_is_served(const struct model *m)
{
    return m->state == MODEL_READY && pool_is_open(m->pool);
}
/* Whether its workers do what is asked for by one of enum api. */
bool model_serves(const struct model *m, unsigned api);
/* Whether its tokenizer, and for @chat its template, are here. */
static inline bool model_can_tokenize(const struct model *m, bool chat)
{
    return m->tokenizer && (m->chat || !chat);
}
/* Working memory for one tokenization; give it back. */
struct tokenizer_scratch *model_take_scratch(struct model *m);
void model_give_scratch(struct model *m, struct tokenizer_scratch *take_scratch);
