/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /v1/embeddings: requests read, what workers of either kind are sent (wire.md §5.3), and their
 * answers as clients get them. Pure.
 *
 * A vector is numbers, or, since 1.x, a text: their bytes in base64, as floats of 32 bits, little
 * endian. Clients get base64 when they ask for it and the worker tells it so, else numbers.
 */
#pragma once

#include <stddef.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "router/openai/openai.h"

struct err;

enum { EMBEDDINGS_INPUTS_MAX = 65536 };

/* False with @e filled. The inputs are the prompts of @ret, of which there may be none; keys that are
 * not known are passed over, as in the reference. */
MUST_CHECK bool embeddings_request_parse(struct str body, struct arena *a,
                                         struct openai_request *ret, struct api_error *e);

/* Makes of the keys that only 1.x has what the generation of the model makes of them: 0.9.0 does not
 * look at them. False with @e filled. */
MUST_CHECK bool embeddings_request_settle(struct openai_request *r, bool of_1, struct api_error *e);

/* All inputs as ids, one behind the other; @ends says where each of them ends. */
struct embeddings_ids {
    const uint32_t *ids;
    const size_t *ends;
    size_t n;
};
/* The payload for a worker that takes ids, and for one that takes what the client wrote: of that the
 * members that the reference of its generation knows. */
void embeddings_put_ids(struct buf *out, const struct openai_request *in,
                        const struct embeddings_ids *ids, struct str mdc_sum);
void embeddings_put_body(struct buf *out, struct str body, bool of_1);

/* What a worker has told so far; BUF_NULLs to begin with. */
struct embeddings_answer {
    bool base64;     /* the client wants it */
    struct buf data; /* the objects, with commas between */
    struct buf model_json, object_json;
    size_t n;
    uint64_t prompt_tokens, total_tokens;
};
void embeddings_answer_done(struct embeddings_answer *a);
DEFINE_CLEANUP_EMBEDDED(struct embeddings_answer, embeddings_answer_done)
/* An item of a worker that takes ids, and one of a worker that answers as OpenAI does. -EINVAL: it
 * is not such a one. */
MUST_CHECK int embeddings_add_vectors(struct embeddings_answer *a, struct str json, struct err *e);
MUST_CHECK int embeddings_add_answer(struct embeddings_answer *a, struct str json, struct err *e);
/* @model is told where the worker did not name it. */
void embeddings_put(const struct embeddings_answer *a, struct str model, struct buf *out);
