/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Percent-encoding for request targets: whatever a name holds, it stays one segment or one value.
 * Pure. (kube_path() of kube_client.h is defined here too.)
 */
#pragma once

#include "lib/base/buf.h"

/* "/<segment>" */
void kube_url_segment(struct buf *out, const char *segment);
/* "?key=value", or "&key=value" when a query has begun. Nothing when @value is NULL. */
void kube_url_param(struct buf *out, const char *key, const char *value);
