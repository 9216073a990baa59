/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests by the names that their clients gave them (x-request-id): the last so many, the newest
 * first. Names longer than CLIENT_ID_MAX are not kept. Pure; one thread.
 */
#pragma once

#include <stddef.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

enum { CLIENT_ID_MAX = 128 };

struct client_ids;

struct client_ids *client_ids_new(size_t size); /* @size >= 1 */
struct client_ids *client_ids_free(struct client_ids *c);
DEFINE_CLEANUP(struct client_ids *, client_ids_free)
/* @id is the request's own, of DECISION_ID_SIZE at most. */
void client_ids_add(struct client_ids *c, struct str client, struct str id);
/* Of the newest with that name; empty when it is none, or forgotten. Valid until the next is added. */
struct str client_ids_find(const struct client_ids *c, struct str client);
