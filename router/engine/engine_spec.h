/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which engine to serve, as a user or the operator says it. Pure.
 *
 *     http://host:8000,kv-events=tcp://host:5557,kv-replay=tcp://host:5558,block-size=16,
 *         model=name,model-path=/models/x,api-key-env=NAME
 *
 * Everything but the URL may be left out: the engine is asked.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

enum { ENGINES_MAX = 4096 };

struct engine_spec {
    char *url;        /* "http://host:8000", without a path that /v1 would follow */
    char *host;       /* of it, as it stands in a URL: an IPv6 address in brackets */
    char *model;      /* the name towards clients; NULL = the engine's own */
    char *model_path; /* a directory with its tokenizer; NULL = what the engine says */
    char *events, *replay;
    char *key_env;       /* the variable that holds its API key; NULL = as for all */
    bool no_events;      /* kv-events=none: it publishes none, none are looked for */
    uint32_t block_size; /* 0 = ask */
};

MUST_CHECK int engine_spec_parse(struct engine_spec *ret, struct str text, struct err *e);
void engine_spec_copy(struct engine_spec *ret, const struct engine_spec *from);
void engine_spec_done(struct engine_spec *s);
DEFINE_CLEANUP_EMBEDDED(struct engine_spec, engine_spec_done)
bool engine_spec_equal(const struct engine_spec *a, const struct engine_spec *b);

/*
 * Labels of a Kubernetes Service, which its EndpointSlices carry: the operator writes them, the
 * directory reads them. Ports as numbers; "none" for no events.
 */
#define ENGINE_LABEL "commutator.dev/engine" /* "vllm", "sglang", "openai" */
#define ENGINE_LABEL_EVENTS_PORT "commutator.dev/engine-kv-events-port"
#define ENGINE_LABEL_REPLAY_PORT "commutator.dev/engine-kv-replay-port"
#define ENGINE_LABEL_BLOCK_SIZE "commutator.dev/engine-block-size"
