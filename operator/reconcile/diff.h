/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether an object that exists is what was planned, and what to write when it is not. Pure.
 *
 * Two annotations tell, and stay readable for the reference operator: nvidia.com/last-applied-hash
 * (plan_spec_hash) and nvidia.com/last-applied-generation. Of a kind with metadata.generation any
 * change of the spec shows in that number, also one that the plan has no opinion about; a kind
 * without is compared value by value. Labels, annotations and the owner of the plan must be there;
 * those of others are tolerated.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/json_tree.h"

#define DIFF_HASH "nvidia.com/last-applied-hash"
#define DIFF_GENERATION "nvidia.com/last-applied-generation"

enum diff {
    DIFF_NONE,
    DIFF_UPDATE,   /* PUT *ret_update: conditional on the resourceVersion that was compared */
    DIFF_RECREATE, /* a field that cannot be changed differs: delete, then create */
    DIFF_FOREIGN,  /* something else controls the object: hands off */
};

/* Puts the two annotations on an object that is about to be created. */
void diff_stamp(struct json *want);
/*
 * @want as planned, without the two annotations. *ret_update (owned) is written for DIFF_UPDATE
 * only: @live with everything planned put in its place, without status.
 */
enum diff diff_objects(const struct json *live, const struct json *want, struct json **ret_update);
/*
 * Merge patch (RFC 7396) that turns @old into @new, with null for what goes; NULL when they are
 * equal. Owned.
 */
struct json *diff_patch(const struct json *old, const struct json *new);
/*
 * Whether somebody has edited the object between @before, which a pass worked on, and @answer, what the
 * API server answered to a write of that pass which asked for no version. True for another generation,
 * label or annotation.
 */
bool diff_edited(const struct json *before, const struct json *answer);
