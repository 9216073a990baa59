/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a component's pod is before the user says anything. Source: operator.md §2.7, 2.8. Pure.
 */
#pragma once

#include "operator/plan/pod.h"

/* Command, ports and probes of the component's type; no environment. Owned. */
struct json *pod_default_container(const struct json *spec) __attribute__((returns_nonnull));
/* Infrastructure, identity and type, weakest first. Owned. */
struct json *pod_default_env(const struct component *c) __attribute__((returns_nonnull));
