/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON that steers a stream: control message, handshake, prologue, control words and the
 * envelope of items (wire.md §4.3, 4.5, 4.6, 4.7, 15.2, 15.3).
 *
 * Parsers hand out views: into the input, or into @scratch for strings with escapes. @scratch is
 * appended to, never moved by a parse that has begun, and must outlive the views. Pure.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

struct err;

/* --- control message: header of the request's two-part message -------------------------------- */

struct control {
    struct str id;            /* request id, any text */
    struct str address;       /* where the worker calls home: "ip:port" */
    struct str subject;       /* names the response stream; a uuid */
    struct str payload_codec; /* empty = json; a 1.x frontend may say "msgpack" */
};

/*
 * Fails on what makes a worker of the reference fall silent: a missing key, another transport than
 * tcp_server, another stream type than response, a context that is not the id. -EINVAL.
 */
MUST_CHECK int control_parse(struct str json, struct buf *scratch, struct control *ret,
                             struct err *e);
void control_put(struct buf *out, const struct control *c); /* payload_codec is never written */

/* --- response stream: frames with a header only ----------------------------------------------- */

void handshake_put(struct buf *out, struct str subject); /* JSON only, as all of these */
MUST_CHECK int handshake_parse(struct str json, struct buf *scratch, struct str *ret_subject,
                               struct err *e);

enum { PROLOGUE_ERROR = 1 }; /* outcome: the engine refused; *ret_error is its text */

/* @error STR_NULL = none. */
void prologue_put(struct buf *out, struct str error);
MUST_CHECK int prologue_parse(struct str json, struct buf *scratch, struct str *ret_error,
                              struct err *e);

enum control_word { WORD_NONE, WORD_STOP, WORD_KILL, WORD_SENTINEL };

enum control_word control_word_of(struct str header);
struct str control_word_text(enum control_word w); /* with its quotes: "\"kill\"" */

/* --- items: frames with a body only ----------------------------------------------------------- */

struct wire_item {
    bool final;       /* {"complete_final":true}: nothing follows */
    bool is_error;    /* event "error" or an error object; `error` is the text */
    struct str raw;   /* value of the outer "data" as JSON; empty when absent */
    struct str data;  /* inner "data" as JSON; empty when absent or null (annotations, errors) */
    struct str id;    /* of the annotation, usually empty */
    struct str event; /* "" for plain data */
    struct str error; /* error.message, else the comments joined by ", " */
    struct str error_type; /* 1.x: "Disconnected", "WorkerOverloaded", "Backend.EngineShutdown" …;
                              else empty */
};

/* -EINVAL when it is no item: not JSON, complete_final missing, neither data nor final. */
MUST_CHECK int wire_item_parse(struct str body, struct buf *scratch, struct wire_item *ret,
                               struct err *e);

/* Whether it is an error that tells of the loss of a worker, itself or one behind it. */
bool wire_item_is_loss(const struct wire_item *item);

/* {"data":{"data":@data},"complete_final":false}; bodies only, framing is two_part's. */
void wire_item_put(struct buf *out, struct str data);
/* {"data":@raw,"complete_final":false}: no annotation around it (recovery queries) */
void wire_item_put_raw(struct buf *out, struct str raw);
void wire_item_put_error(struct buf *out, struct str text); /* event "error" with one comment */
void wire_item_put_final(struct buf *out);
