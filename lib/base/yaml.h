/* SPDX-License-Identifier: Apache-2.0 */
/*
 * YAML documents as JSON trees (libyaml events), read as kubectl reads them: YAML 1.1 scalars, so
 * that plain yes, no, on, off, y and n are booleans and 017 is octal; dates stay strings; keys
 * become strings; of several members with one name the last stays; merge keys act in their place.
 * Size, depth and what aliases expand to are limited. An integer beyond ±2^53 is -ERANGE.
 */
#pragma once

#include "lib/base/json_tree.h"

enum { YAML_MAX_BYTES = 16 << 20, YAML_DEPTH = 64, YAML_MAX_NODES = 1 << 20 };

/*
 * *ret is a JSON array with one element per non-empty document. -EINVAL (with the line), -ERANGE,
 * or -E2BIG when a limit is exceeded.
 */
MUST_CHECK int yaml_parse(struct json **ret, struct str text, struct err *e);
