/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests on workers that take and write the OpenAI API themselves, for the files of a request only.
 */
#pragma once

#include "router/frontend/request_state.h"

/* A chunk of what the worker says. False: it cannot be read, the request has ended. */
bool request_text_take(struct request *rq, struct str data);
/* For the batch that @rq is a member of: its choices; the whole answer, when it is the last. */
void request_text_put_choices(struct request *rq, struct buf *out);
void request_text_put_body(struct request *rq, struct str choices, struct buf *out);
