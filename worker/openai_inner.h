/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What openai_server.c and openai_job.c share.
 */
#pragma once

#include "lib/base/list.h"
#include "lib/base/metric.h"
#include "lib/net/http_server.h"
#include "router/discovery/model_cache.h"
#include "router/discovery/model_text.h"
#include "router/openai/openai.h"
#include "worker/mock_worker.h"
#include "worker/openai_server.h"

/* Why a request of vLLM ended. */
enum openai_end { OPENAI_STOP, OPENAI_LENGTH, OPENAI_ENDS };

struct openai_server {
    struct openai_server_conf conf;
    struct model_text text;
    struct tokenizer_scratch *scratch; /* of the one thread that tokenizes */
    char *name, *root;
    uint32_t context_length;
    struct http_server *http;
    struct metric_registry *metrics;
    struct metric_family *running, *waiting, *usage; /* {model_name,engine} */
    struct metric *prompt_tokens, *generation_tokens, *queries, *hits;
    struct metric *ended[OPENAI_ENDS];
    struct list jobs;
    bool stopping;
};

/* The prompt of a request as ids; false with @e filled. */
MUST_CHECK bool openai_prompt(struct openai_server *s, const struct openai_request *in,
                              struct token_ids *ret, struct api_error *e);
void openai_job_start(struct openai_server *s, struct http_exchange *x, enum api api);
/* The server ends: the exchange is gone, the job too. */
void openai_jobs_drop(struct openai_server *s);
