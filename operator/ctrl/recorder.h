/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kubernetes Events, written in the background by a thread of its own.
 *
 * Events wait until none was told for RECORDER_DELAY_MS, at most RECORDER_DELAY_MAX_MS: the objects that
 * passes write next matter more to their user than the news of them. An event that was told before (same object, reason and text) becomes a higher count of the first
 * one, by a patch. Telling never blocks: beyond RECORDER_QUEUE_MAX waiting events the newest is
 * dropped and counted. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/json_tree.h"
#include "lib/kube/kube_client.h"

enum {
    RECORDER_QUEUE_MAX = 4096,
    RECORDER_MEMORY_MAX = 2048,
    RECORDER_TEXT_MAX = 1000,
    RECORDER_DELAY_MS = 250,
    RECORDER_DELAY_MAX_MS = 3000
};

struct recorder;

/* @component: who reports ("dynamo-operator"); @instance: which of its replicas. Copied. */
MUST_CHECK int recorder_new(struct recorder **ret, const struct kube_config *config,
                            const char *component, const char *instance, struct err *e);
/* Writes what is waiting, for at most 2 s. */
struct recorder *recorder_free(struct recorder *r);
DEFINE_CLEANUP(struct recorder *, recorder_free)

/* @object (metadata is enough) is copied. NULL recorder: nothing happens. */
void recorder_tell(struct recorder *r, const struct kube_kind *kind, const struct json *object,
                   bool warning, const char *reason, const char *message);
uint64_t recorder_dropped(struct recorder *r);
