/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LLMEngineOutput: the data of one response item (wire.md §5.2, 15.3).
 *
 * Read once per token, so the reader reuses its memory and copies nothing but ids and escaped
 * strings. Members named *_json are JSON text as the worker sent it; empty = absent or null.
 * One thread per reader.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/wire/optional.h"

struct err;

enum finish_reason {
    FINISH_NONE,
    FINISH_EOS,
    FINISH_STOP,
    FINISH_LENGTH,
    FINISH_CANCELLED, /* also "abort", which real workers send */
    FINISH_CONTENT_FILTER,
    FINISH_ERROR, /* {"error":text} or "error: text" */
};

struct engine_output {
    const uint32_t *token_ids; /* new ids only */
    size_t n_token_ids;
    bool has_text; /* the worker detokenised: no detokenising and no stop handling of ours */
    struct str text;
    enum finish_reason finish;
    struct str finish_error; /* text of FINISH_ERROR */
    struct opt_u64 index;
    struct opt_f64 cum_log_probs;
    struct str stop_reason_json;  /* string or integer */
    struct str log_probs_json;    /* [f64], one per new id */
    struct str top_logprobs_json; /* [[{rank,token_id,token,logprob}]] */
    struct str disaggregated_params_json;
    struct str completion_usage_json;
    struct str tokens_json; /* [s or null]; when empty, the writer puts one null per id */
    struct str extra_args_json;
};

/* Embedded by value; zero-initialised is ready. */
struct engine_output_reader {
    uint32_t *ids;
    size_t cap_ids;
    struct buf scratch;
};

void engine_output_reader_done(struct engine_output_reader *r);
DEFINE_CLEANUP_EMBEDDED(struct engine_output_reader, engine_output_reader_done)

/*
 * Views in *ret live until the next parse with @r and as long as @json. -EINVAL when token_ids is
 * missing or a type is wrong; unknown keys are ignored.
 */
MUST_CHECK int engine_output_parse(struct engine_output_reader *r, struct str json,
                                   struct engine_output *ret, struct err *e);

/* As a mocker of the reference writes it: every key, null when unset; "tokens" one null per id. */
void engine_output_put(struct buf *out, const struct engine_output *o);
