/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request whose worker is lost goes on at another one, with what was said so far as part of its
 * prompt. For the files of a request only.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct request;

/* Keeps what is to be replayed if the worker is lost. */
void request_remember(struct request *rq, const uint32_t *ids, size_t n);
bool request_can_migrate(const struct request *rq);
/* For the metric of how long that takes: a worker failed; @outcome came of it, if one had. */
void request_note_loss(struct request *rq, bool early);
void request_note_loss_over(struct request *rq, const char *outcome);
/* Goes on at another worker. The stream has ended, or is cut now. */
void request_migrate(struct request *rq, const char *reason);
