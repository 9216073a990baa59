/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Engines that an EndpointSlice with ENGINE_LABEL names: its ready pods. Pure.
 */
#pragma once

#include "lib/base/mem.h"
#include "router/engine/engine_spec.h"

struct json;

struct engine_wanted {
    char *name; /* of the pod; the URL where there is none */
    struct engine_spec spec;
};
struct engine_wants {
    struct engine_wanted *at;
    size_t n;
};

/* Leaves out what makes no URL. Free with engine_wants_done(). */
void engine_slice_read(const struct json *slice, struct engine_wants *ret);
void engine_wants_add(struct engine_wants *w, const char *name, struct engine_spec *take_spec);
void engine_wants_done(struct engine_wants *w);
DEFINE_CLEANUP_EMBEDDED(struct engine_wants, engine_wants_done)
/* Whether the slice is of the Dynamo namespace @ns; NULL = of any. */
bool engine_slice_is_of(const struct json *slice, const char *ns);
