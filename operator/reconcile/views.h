/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the operator keeps of the objects that it watches: of a Deployment's spec `replicas` and
 * `paused` (its generation tells of any change in the rest), of a Secret the names of its
 * registries ("registries", no credentials), of pods those that something keeps from running
 * ("waiting" says what), of worker metadata the records that say which routing a pod runs, of
 * claims that they exist, of Ingresses ours.
 */
#pragma once

#include "operator/ctrl/cache.h"

extern const struct cache_view views[];
extern const size_t views_len;
