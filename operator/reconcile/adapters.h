/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DynamoGraphDeploymentScalingAdapter: part of its graph's pass, which an edit of it asks for.
 */
#pragma once

#include "operator/reconcile/apply.h"

/*
 * Makes the graph that owns @a follow its adapters, and tells in their status what they scale. 0,
 * CONTROLLER_AGAIN when the graph changed, or -errno.
 */
MUST_CHECK int adapters_follow(struct apply *a, struct err *e);
