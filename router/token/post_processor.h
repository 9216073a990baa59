/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tokenizer.json asks to put around a text ("post_processor"): ids before it and behind it. Prompts
 * go without them, embedded texts with them.
 *
 * ByteLevel puts nothing; BertProcessing, RobertaProcessing, TemplateProcessing and Sequence are
 * read. Whatever else is asked for is told in words and not refused: prompts do not need it.
 */
#pragma once

#include "lib/base/json_tree.h"
#include "router/token/tokenizer.h"

enum { POST_PROCESSOR_MAX = 1024 }; /* ids on each side */

/* Embedded by value; zero-initialised puts nothing. */
struct post_processor {
    struct token_ids before, after;
    bool
        is_parted; /* text and ids are no longer one: what is put around them then is another thing */
    const char *unknown; /* why this is not what the file asks for; NULL = it is */
};

void post_processor_load(struct post_processor *p, const struct json *config);
void post_processor_done(struct post_processor *p);
