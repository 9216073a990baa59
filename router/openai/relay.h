/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests and answers that pass through to an OpenAI server and back: what is changed on the way,
 * and what is read of it. Everything else travels on as it came. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/wire/optional.h"

struct err;

/*
 * The body for the engine: its own name of the model, unless that is empty, and without nvext. A
 * template's arguments get the name that engines know them by. @body has been read: it is an object.
 */
enum relay_usage {
    RELAY_WHOLE,  /* the answer is one body, which tells it: no stream_options */
    RELAY_STREAM, /* they ask for it, since only the engine knows how many tokens there were */
    RELAY_AS_IS,  /* an API whose answers tell it in any case */
};
void relay_request_put(struct buf *out, struct str body, struct str engine_model,
                       enum relay_usage usage);

/*
 * The body for a worker that takes OpenAI requests itself (ModelInput::Text): what the client wrote,
 * without members that are null. @prompt_json instead of its prompts, unless empty.
 */
void relay_text_put(struct buf *out, struct str body, struct str prompt_json);

/*
 * The body without what clients may ask of routers in nvext; its cache_salt stays, which keeps them
 * apart. An nvext that is no object stays, too: it is refused later. False when @body is no object
 * in well-formed JSON: nothing is written.
 */
MUST_CHECK bool relay_put_unsteered(struct buf *out, struct str body);

/* A chunk of a stream, or a whole answer. */
struct relay_answer {
    bool has_choices; /* the last chunk with the usage has none */
    bool has_text;    /* text, reasoning or a tool call: what an engine generates tokens for */
    bool has_finish;
    struct opt_u64 prompt_tokens, completion_tokens, cached_tokens;
    bool is_error;
    struct str error; /* its words: a view of the JSON or of the scratch */
    struct str param; /* the field that it is about, as it stands in the JSON; empty = none */
    int status;       /* that the error names; 0 = none */
};

/* @scratch is replaced. -EINVAL: it is no JSON object. */
MUST_CHECK int relay_answer_read(struct str json, struct buf *scratch, struct relay_answer *ret,
                                 struct err *e);
/* A number of a usage; *@ret stays where there is none. For relay_*.c. */
void relay_count_read(struct str object, const char *key, struct opt_u64 *ret);

struct relay_change {
    struct str model; /* the name that the client knows; empty = the engine's is the same */
    bool hide_usage;  /* the client has not asked for it */
    struct str fingerprint_json; /* its system_fingerprint; empty = as it stands there */
};
/* The answer as the client gets it. */
void relay_answer_put(struct buf *out, struct str json, const struct relay_change *c);
