/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of a worker that is a plain OpenAI server (vLLM, SGLang, any) and does not run the
 * Dynamo runtime. Immutable; owned by the worker's entry in the engine directory.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A text whose tokens engines are asked for: what they put before those of the text itself, they put
 * before every prompt of completions (beginning of sequence).
 */
#define ENGINE_SAMPLE "a"
enum { ENGINE_SAMPLE_MAX = 8 };

struct stock_engine {
    char *model;   /* what the engine calls the model */
    char *api_key; /* what requests show it; NULL = what their clients sent */
    char *events,
        *replay; /* its ZeroMQ publisher and replay, "tcp://host:port" of rank 0; NULL = none */
    uint32_t block_size;                /* of its KV blocks; 0 = it does not say */
    bool tokenizes;                     /* it answers /tokenize */
    uint32_t sample[ENGINE_SAMPLE_MAX]; /* its tokens of ENGINE_SAMPLE; none where it does not */
    size_t n_sample;
};
