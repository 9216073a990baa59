/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the workers of a model are asked and how they answer, for the files of a request only.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/buf.h"
#include "lib/base/str.h"
#include "router/frontend/own_apis.h"

struct request;

/* What the worker is sent and what is made of its items, by what the model's workers take. */
struct request_form {
    void (*put)(struct request *rq, struct buf *out);
    /* The data of an item. May end the request. */
    void (*take)(struct request *rq, struct str data);
    /* The stream has ended as it should: answers. */
    void (*end)(struct request *rq);
    /* Gives back what take() made, for another worker or for good. */
    void (*reset)(struct request *rq);
    bool splits_prompts; /* by workers that prefill and workers that decode */
    bool answers_late;   /* nothing reaches the client before the first token */
};
extern const struct request_form REQUEST_OF_TOKENS;  /* request_output.c */
extern const struct request_form REQUEST_OF_TEXT;    /* request_text.c */
extern const struct request_form REQUEST_OF_VECTORS; /* request_embed.c */

/* request_embed.c: all inputs as ids, when the workers take ids. Touches nothing but the request. */
void request_embed_tokenize(struct request *rq);

/* request_output.c: the answer is whole, all of its stream is in rq->out but the farewell. */
void request_complete_stream(struct request *rq);
