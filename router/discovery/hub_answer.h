/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a model hub says of a file in the headers of its answers, and which names it may give us for
 * files of ours. Pure. Source: the hub's public clients (X-Repo-Commit, X-Linked-Etag,
 * X-Linked-Size beside the headers of RFC 9110).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/str.h"

enum { HUB_WORD_MAX = 128, HUB_LOCATION_MAX = 2048 };

#define HUB_SIZE_UNKNOWN UINT64_MAX

struct hub_answer {
    char etag[HUB_WORD_MAX + 1];   /* of the file, not of a redirect; "" = none that serves */
    char commit[HUB_WORD_MAX + 1]; /* revision that was meant; "" = not said */
    char location[HUB_LOCATION_MAX + 1];
    uint64_t size; /* of the whole file */
    uint64_t from; /* where the bytes of this answer begin */
    bool linked;   /* etag and size are those of what the file links to */
    bool has_range;
};

struct hub_answer hub_answer_none(void);
/* The next header, in order; name "" begins a further answer. What makes no sense is passed over. */
void hub_answer_add(struct hub_answer *a, struct str name, struct str value);

/* A path segment of its own: letters, digits, ".", "_", "-", at most HUB_WORD_MAX, not "." or "..". */
bool hub_word_is_valid(struct str s);
/* "name" or "organisation/name". */
bool hub_name_is_valid(struct str s);
