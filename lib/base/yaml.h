/* SPDX-License-Identifier: Apache-2.0 */
/*
 * YAML documents as JSON trees (libyaml events), read as kubectl reads them: YAML 1.1 scalars with
 * yes/no/on/off left as strings the way sigs.k8s.io/yaml resolves them, merge keys, several
 * documents. Size, depth and the number of nodes that aliases expand to are limited.
 */
#pragma once

#include "lib/base/json_tree.h"

enum { YAML_MAX_BYTES = 16 << 20, YAML_DEPTH = 64, YAML_MAX_NODES = 1 << 20 };

/* *ret is a JSON array with one element per non-empty document. */
MUST_CHECK int yaml_parse(struct json **ret, struct str text, struct err *e);
