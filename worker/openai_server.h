/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One worker as a plain OpenAI server, as `vllm serve` is one: it stands for an engine without the
 * Dynamo runtime.
 *
 *     /v1/models  /v1/chat/completions  /v1/completions  /tokenize  /health  /version
 *     /metrics, with vLLM's names
 *
 * KV events go by engine_publisher, where it has ports. One loop.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/net/loop.h"
#include "router/discovery/card.h"

struct mock_worker;
struct openai_server;

struct openai_server_conf {
    struct loop *loop;
    const char *host;
    uint16_t port;              /* 0 = a free one */
    struct mock_worker *worker; /* borrowed; freed before the server */
    struct model_card *card;    /* borrowed during the call */
    const char *root;           /* where the model's files are, as /v1/models tells it */
    uint32_t block_size, dp_size;
    size_t n_blocks;
    bool prefix_caching;
};

/* Reads the model's files. */
MUST_CHECK int openai_server_start(struct openai_server **ret,
                                   const struct openai_server_conf *conf, struct err *e);
uint16_t openai_server_port(const struct openai_server *s);
/* /health says 503; no new connections. */
void openai_server_stop(struct openai_server *s);
struct openai_server *openai_server_free(struct openai_server *s);
DEFINE_CLEANUP(struct openai_server *, openai_server_free)
