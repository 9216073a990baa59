/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jinja templates, the part of the language that chat templates are written in.
 *
 * Settings are those of chat templates: a block tag takes the newline after it and the blanks
 * before it away (trim_blocks, lstrip_blocks), the last newline of the source is dropped, and what
 * generation blocks hold stays.
 *
 * Templates come from strangers: source size, nesting, steps, output and memory are limited.
 * A struct template is immutable; any number of threads may render it. Pure: time is an argument.
 */
#pragma once

#include <stdint.h>
#include <time.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

struct err;
struct json;
struct template;

enum {
    TEMPLATE_MAX_SOURCE = 256 << 10,
    TEMPLATE_MAX_OUTPUT = 64 << 20,
    TEMPLATE_MAX_MEMORY = 128 << 20, /* of the values that one rendering makes */
    TEMPLATE_MAX_DEPTH = 64,         /* nested expressions, blocks and macro calls */
    TEMPLATE_MAX_STEPS = 4000000,
};

enum template_style {
    /* As the models were trained: what `transformers` makes with PyPI jinja2. */
    TEMPLATE_TRANSFORMERS,
    /* As the reference's frontend 0.9.0 prints values (true, none, {"key": 1}); objects are sorted
     * by their keys, and tojson is compact and escapes < > & ' (wire.md 8.4). */
    TEMPLATE_DYNAMO_0_9,
};
extern const char *const TEMPLATE_STYLE_WORDS[]; /* in that order, and then NULL */

/* Nothing of @source is kept. -EINVAL with the line, -ENOTSUP for what the subset lacks, -E2BIG. */
MUST_CHECK int template_parse(struct template **ret, struct str source, enum template_style style,
                              struct err *e);
/* Before it is shared: as the engine of 1.x, to tojson what is undefined is null, what has no length
 * has length 0, and there is the filter fromjson. */
void template_act_as_1(struct template *t);
struct template *template_free(struct template *t);
DEFINE_CLEANUP(struct template *, template_free)

/* All borrowed during the call. */
struct template_context {
    const struct json *vars; /* object: each member is a variable */
    const struct json *over; /* the same, hides those of the same name; may be NULL */
    const struct tm *now;    /* local time, for strftime_now(); NULL makes that function fail */
    uint64_t steps;          /* give up with -EAGAIN after so many, 0 = the limit above */
};

/*
 * Appends the rendered text to @out. -EINVAL for an error in the template or one that it raises
 * itself, -E2BIG over a limit, -EAGAIN; the message names the line, and @out is as before.
 */
MUST_CHECK int template_render(const struct template *t, const struct template_context *in,
                               struct buf *out, struct err *e);
