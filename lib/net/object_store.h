/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects in a bucket of JetStream's object store: a stream OBJ_<bucket> with pieces of an object
 * under $O.<bucket>.C.<nuid> and its description, which a newer one replaces, under
 * $O.<bucket>.M.<name> (ADR-20 of the NATS project).
 *
 * One operation at a time for each object_store; a new one takes the place of one under way. Sizes
 * and digests are checked. One loop thread; nothing blocks.
 */
#pragma once

#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

struct nats_js;
struct object_store;

enum { OBJECT_BYTES_MAX = 1 << 30 };

/* @code: 0, JS_NOT_FOUND, or JS_LOST; @bytes are borrowed during the call. */
typedef void (*object_got_fn)(void *arg, int code, struct str bytes);
typedef void (*object_put_fn)(void *arg, int code);

/* @js is borrowed, @bucket copied. */
struct object_store *object_store_new(struct nats_js *js, const char *bucket)
    __attribute__((returns_nonnull));
struct object_store *object_store_free(struct object_store *o);
/* Of what is read; OBJECT_BYTES_MAX unless said. A larger object is JS_NOT_FOUND. */
void object_store_limit(struct object_store *o, uint64_t bytes);
void object_store_get(struct object_store *o, const char *name, object_got_fn fn, void *arg);
/* Copies. Makes the bucket when there is none, and drops the pieces of the object that was there. */
void object_store_put(struct object_store *o, const char *name, struct str bytes, object_put_fn fn,
                      void *arg);
/* Forgets the operation under way: its callback does not come. */
void object_store_forget(struct object_store *o);
