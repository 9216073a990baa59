/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the answer must look like, in the engine's terms: guided_decoding of a request (wire.md §5.1,
 * 8.3), from guided_*, tool_choice and response_format. Pure.
 */
#pragma once

#include "lib/base/buf.h"
#include "lib/base/json_tree.h"
#include "lib/base/str.h"

enum tool_choice { TOOL_AUTO, TOOL_NONE, TOOL_REQUIRED, TOOL_NAMED };

/* JSON as the client sent it; empty = not given. */
struct guided {
    struct str json, regex, choice, grammar, backend, whitespace_pattern;
    struct str response_format;
};

/* The tool of that name; NULL when there is none. */
const struct json *guided_find_tool(const struct json *tools, struct str name);
/* Appends the object, or nothing when the answer is free. False: more than one rule is given. */
bool guided_put(const struct guided *g, enum tool_choice choice, struct str named,
                const struct json *tools, struct buf *out);
