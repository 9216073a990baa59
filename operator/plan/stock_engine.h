/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers that run an engine's own OpenAI server and no Dynamo runtime, from their command:
 *
 *     vllm serve …            python -m vllm.entrypoints.openai.api_server …
 *     python -m sglang.launch_server …
 *     dynamo-mocker --openai-port N …     (stands for vLLM)
 *
 * or by annotation, for any other: commutator.dev/engine: openai. The reference's operator does not
 * know them. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/json_tree.h"

/* Labels of the Service, which its EndpointSlices carry: frontends of ours read them. Annotations of
 * the same names on the service of the graph come before what the command says. */
#define ENGINE_LABEL "commutator.dev/engine"
#define ENGINE_LABEL_EVENTS_PORT "commutator.dev/engine-kv-events-port"
#define ENGINE_LABEL_REPLAY_PORT "commutator.dev/engine-kv-replay-port"
#define ENGINE_LABEL_BLOCK_SIZE "commutator.dev/engine-block-size"
#define ENGINE_ANNOTATION_PORT "commutator.dev/engine-port"

enum { ENGINE_WORD_SIZE = 64 };

struct stock_engine {
    const char *kind; /* "vllm", "sglang", "openai" */
    int64_t port;     /* of its HTTP server */
    /* Values of the labels, "" = not known: frontends look for themselves. */
    char events_port[ENGINE_WORD_SIZE], replay_port[ENGINE_WORD_SIZE], block_size[ENGINE_WORD_SIZE];
};

/* Whether the worker of this spec is one. */
MUST_CHECK bool stock_engine_detect(struct stock_engine *ret, const struct json *spec);
