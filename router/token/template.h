/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jinja templates, the part of the language that chat templates are written in.
 *
 * Settings are those of chat templates: a block tag takes the newline after it and the blanks
 * before it away (trim_blocks, lstrip_blocks), the last newline of the source is dropped,
 * generation blocks are removed. Values print as the reference's engine prints them (true, none,
 * {"key": 1}); tojson sorts keys and escapes < > & ' (wire.md 8.4).
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

/* Nothing of @source is kept. -EINVAL with the line, -ENOTSUP for what the subset lacks, -E2BIG. */
MUST_CHECK int template_parse(struct template **ret, struct str source, struct err *e);
struct template *template_free(struct template *t);
DEFINE_CLEANUP(struct template *, template_free)

/*
 * Appends the rendered text to @out. Each member of the object @vars is a variable; a member of
 * the object @over (may be NULL) hides one of the same name. @now is the local time that
 * strftime_now() formats; NULL makes that function fail. -EINVAL for an error in the template or
 * one that it raises itself, -E2BIG over a limit; the message names the line, and @out is as
 * before.
 */
MUST_CHECK int template_render(const struct template *t, const struct json *vars,
                               const struct json *over, const struct tm *now, struct buf *out,
                               struct err *e);
