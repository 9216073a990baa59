/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of cards in NATS's object store: nats://<server>/<bucket>/<name>, as workers before 0.7 put
 * them there (0.9 and 1.x do not). The server is the one that we are told of (NATS_SERVER), whatever
 * the URL says, and is connected to when the first such card comes.
 *
 * One loop thread; one card at a time, the others wait. Bounded: 64 MiB a file.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/net/loop.h"
#include "lib/net/nats_link.h"
#include "router/discovery/card.h"

struct card_objects;

/* @r 0 or -errno with @e filled. @files are borrowed during the call. */
typedef void (*card_objects_fn)(void *arg, int r, const struct model_bytes *files, size_t n,
                                const struct err *e);

/* @nats: views that outlive it. */
struct card_objects *card_objects_new(struct loop *l, const struct nats_link_conf *nats)
    __attribute__((returns_nonnull));
/* Each that waits is told -ECANCELED. */
struct card_objects *card_objects_free(struct card_objects *o); /* NULL in, NULL out */
/* Whether a file of @c is one. */
bool card_has_objects(const struct model_card *c);
/* @fn comes later, never during the call. */
void card_objects_get(struct card_objects *o, const struct model_card *c, card_objects_fn fn,
                      void *arg);
/* "bucket" and "name" of a URL; false when it is none. Pure. */
bool card_object_parse(struct str url, struct str *ret_bucket, struct str *ret_name);
