/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building Kubernetes objects: identity, metadata, owner, and constant parts from JSON text. Pure.
 */
#pragma once

#include "lib/base/json_tree.h"
#include "lib/kube/kube_kinds.h"

/* {apiVersion, kind, metadata: {name, namespace}}. Owned. */
struct json *object_new(const struct kube_kind *kind, const char *ns, const char *name)
    __attribute__((returns_nonnull));
/* NULL values are skipped. */
void object_put_label(struct json *object, const char *key, const char *value);
void object_put_annotation(struct json *object, const char *key, const char *value);
/* Adds copies of all members; @map may be NULL. */
void object_add_labels(struct json *object, const struct json *map);
void object_add_annotations(struct json *object, const struct json *map);
/* One controller owner reference to @owner, with its uid when it has one. */
void object_put_owner(struct json *object, const struct kube_kind *kind, const struct json *owner);
/* A constant of ours as a tree; text that does not parse is our bug. Owned. */
struct json *json_constant(const char *text) __attribute__((returns_nonnull));
