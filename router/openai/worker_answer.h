/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers of workers that write OpenAI's chunks themselves (ModelInput::Text): each is read and
 * written anew, with the members, nulls and order that the reference's frontend of the worker's
 * generation gives it; or all are gathered into one body. Pure.
 *
 * Values stay as the worker wrote them, and what it says of an unknown member is left out.
 */
#pragma once

#include <stddef.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "router/openai/chunk_style.h"
#include "router/openai/openai.h"

struct err;
struct worker_answer;

/* All that a worker says in one answer that is gathered; and choices and calls of it. */
enum { WORKER_ANSWER_BYTES_MAX = 64 << 20, WORKER_ANSWER_CALLS_MAX = 1024 };

/* @first is added to the index of each choice: the worker answers one of several prompts. */
struct worker_answer *worker_answer_new(enum api api, const struct chunk_style *style,
                                        uint32_t first) __attribute__((returns_nonnull));
struct worker_answer *worker_answer_free(struct worker_answer *w); /* NULL in, NULL out */
DEFINE_CLEANUP(struct worker_answer *, worker_answer_free)

/* A chunk of a stream, without the event around it. -EINVAL: a member is missing or of a wrong kind;
 * nothing was written. */
MUST_CHECK int worker_answer_put_chunk(struct worker_answer *w, struct str json, struct buf *out,
                                       struct err *e);
/* Joins it to those before. -EINVAL likewise; -EMSGSIZE: beyond the bounds. */
MUST_CHECK int worker_answer_gather(struct worker_answer *w, struct str json, struct err *e);
/* The choices that were gathered, with commas between; and the body with @choices. */
void worker_answer_put_choices(struct worker_answer *w, struct buf *out);
void worker_answer_put_body(struct worker_answer *w, struct str choices, struct buf *out);
