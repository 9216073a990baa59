/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of /v1/responses and /v1/messages as workers get them that take chats as they are: the
 * chat that 1.6.1 makes of each, which says more than tokens need. Always streamed, with usage. Pure.
 */
#pragma once

#include "lib/base/buf.h"
#include "lib/base/str.h"

/* @body is the request, @chat what it was made (openai_request.made_chat); both have been read. */
void responses_put_chat(struct buf *out, struct str body, struct str chat);
void messages_put_chat(struct buf *out, struct str body, struct str chat);
