/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers in the harmony format of gpt-oss models: messages with a header each, whose channel says
 * whether the text is a thought ("analysis") or content ("final", "commentary"), and whose
 * recipient "functions.NAME" makes it the arguments of a call.
 *
 *     <|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…<|return|>
 *
 * Muse writes the same in other words: the recipient "self" makes it a thought, "user" or none
 * content, and any other calls, as elements:
 *
 *     <|start|>assistant to=self<|message|>…<|eom|><|start|>assistant to=user<|message|>…<|eot|>
 *
 * How the answer is cut into pieces makes no difference. What has no header is content. Pure.
 */
#pragma once

#include "router/openai/reply.h"

struct harmony;
struct harmony_dialect;

extern const struct harmony_dialect HARMONY_GPT_OSS, HARMONY_MUSE;

/* Without @thoughts analysis is left out; without @calls a call is content, as it was written. */
struct harmony *harmony_new(const struct harmony_dialect *dialect, bool thoughts, bool calls,
                            reply_fn tell, void *arg);
struct harmony *harmony_free(struct harmony *h);
DEFINE_CLEANUP(struct harmony *, harmony_free)

void harmony_push(struct harmony *h, struct str text);
/* Tells what was held back. The mark behind a last call may be missing: engines keep the token
 * that ends an answer to themselves. */
void harmony_end(struct harmony *h);
