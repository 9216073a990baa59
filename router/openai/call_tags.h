/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an engine is to write calls of tools so that the model's parser reads them: guided_decoding with a
 * structural tag in that parser's form, as the frontend of 1.6.1 makes it for workers whose cards ask for
 * it. `guided.h` has the rules without. Pure.
 */
#pragma once

#include "router/openai/guided.h"

/* What a model's card asks for. */
struct call_tags {
    const char *parser; /* of calls; NULL = none */
    bool on;
    bool always; /* for choices that are left to the model, too, though nothing in them needs it */
    bool strict; /* schemas hold even for tools that say `strict: false` */
};

/* What of a request matters. */
struct call_wish {
    enum tool_choice choice;
    struct str named;         /* of TOOL_NAMED */
    const struct json *tools; /* checked */
    bool one;                 /* calls are not to be parallel */
};

/* Appends the object to the empty @out, or nothing where no tag is made. */
void call_tags_put(const struct call_tags *c, const struct call_wish *w, struct buf *out);
