/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pods that a gateway lets a request go to, as their workers' ids.
 *
 * Pure; bytes of somebody else's, fuzzed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/arena.h"
#include "lib/base/str.h"

enum { PODS_MAX = 65536 }; /* beyond it, a list restricts nothing */

struct pods {
    uint64_t *worker_ids; /* ascending; of the arena */
    size_t n;             /* 0 = any */
};

/*
 * An array of objects, each with "podName", at its top or in its member "pod". Those without a name
 * are passed over. What is no such text, or too long, names nobody.
 */
struct pods pods_parse(struct arena *a, struct str json);
bool pods_have(const struct pods *p, uint64_t worker_id);
