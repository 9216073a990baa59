/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads for work that may take minutes, such as downloads: loop_work()'s few threads serve
 * requests and must not be held by it. Work asks side_pool_stopping() and ends early when it is.
 *
 * Belongs to one loop; all calls but side_pool_stopping() are made on its thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/net/loop.h"

struct side_pool;

/* Threads are started with the first work, at most @n of them. */
struct side_pool *side_pool_new(struct loop *l, size_t n) __attribute__((returns_nonnull));
/*
 * Stops: what runs is waited for, what waits is not begun. @done of each that was not told yet is
 * called here.
 */
struct side_pool *side_pool_free(struct side_pool *p); /* NULL in, NULL out */
/* @work(@arg) on a thread of the pool, then @done(@arg) on the loop. First come, first served. */
void side_pool_run(struct side_pool *p, loop_fn work, loop_fn done, void *arg);
/* Any thread. @arg is the pool: fits struct model_stop and its kin. */
bool side_pool_stopping(void *arg);
