/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What engines tell of themselves over HTTP: /v1/models, /metrics (vLLM's and SGLang's names),
 * SGLang's /server_info, vLLM's /kv_event_sources. Foreign text: bounded, fuzzed. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

enum { ENGINE_MODELS_MAX = 64, ENGINE_NAME_MAX = 512, ENGINE_RANKS_MAX = 64 };

struct engine_models {
    struct engine_model_name {
        char *id;
        char *root;       /* path or hub name of its files; may be NULL */
        bool is_lora;     /* it has a parent */
        uint32_t max_len; /* 0 = not told */
    } at[ENGINE_MODELS_MAX];
    size_t n;
};

/* -EINVAL: it is no list of models, or an empty one. Free with engine_models_done(). */
MUST_CHECK int engine_models_read(struct str json, struct engine_models *ret, struct err *e);
void engine_models_done(struct engine_models *m);
DEFINE_CLEANUP_EMBEDDED(struct engine_models, engine_models_done)
bool engine_models_equal(const struct engine_models *a, const struct engine_models *b);

/* One rank: vLLM's label engine, SGLang's dp_rank; without either rank 0. */
struct engine_rank_load {
    bool has_usage;
    double usage; /* share of KV cache in use */
    uint64_t running, waiting;
};

struct engine_load_report {
    uint32_t block_size;   /* of cache_config_info; 0 = not told */
    uint64_t total_blocks; /* likewise, of one rank */
    uint32_t n_ranks;      /* the highest that has a number, and one */
    struct engine_rank_load ranks[ENGINE_RANKS_MAX];
};

/* Never fails: what is not there stays 0. */
void engine_load_read(struct str metrics, struct engine_load_report *ret);

/* Ids of an answer of /tokenize; 0 when it is none, or has more than @cap. */
size_t engine_tokens_read(struct str json, uint32_t *ret_ids, size_t cap);

/* SGLang's server arguments. */
struct engine_server_info {
    uint32_t page_size, dp_size;       /* 0 = not told */
    uint64_t max_tokens;               /* that fit into the KV cache; 0 = not told */
    bool has_events;                   /* kv_events_config names a publisher */
    uint16_t events_port, replay_port; /* 0 = not told */
};

MUST_CHECK int engine_server_info_read(struct str json, struct engine_server_info *ret,
                                       struct err *e);

/*
 * --kv-events-config of an engine: {"publisher":"zmq","endpoint":"tcp://…:5557","replay_endpoint":…}.
 * False when it is no object, or names no publisher.
 */
MUST_CHECK bool engine_events_config_read(struct str json, uint16_t *ret_events,
                                          uint16_t *ret_replay);

/* Where events of an engine are: ports of rank 0, from which those of other ranks count up. */
struct engine_event_sources {
    bool has_events;
    uint16_t events_port, replay_port; /* replay: 0 = none */
    uint32_t n_ranks;                  /* that it names; 0 = none */
};

/*
 * Of vLLM 0.31 and later: {"0":{…as above…},"1":…}, by rank; an engine without events has none, or
 * says so of each. -EINVAL: it is no object of ranks, or their ports do not count up.
 */
MUST_CHECK int engine_event_sources_read(struct str json, struct engine_event_sources *ret,
                                         struct err *e);
