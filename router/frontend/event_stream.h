/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stream of events that an answer is given in: its head, and a sign of life where there is nothing
 * to tell yet (wire.md §8.5). Used by the exchange's thread.
 */
#pragma once

#include <stdint.h>

struct http_exchange;

/* Sends the head with the next bytes, unless it is on its way. */
void event_stream_open(struct http_exchange *x);
/*
 * From now on the client gets a comment, at first behind the head, each @ms in which it got nothing:
 * proxies between would take a long prefill for a dead server. 0 = never.
 */
void event_stream_keep_alive(struct http_exchange *x, uint64_t ms);
