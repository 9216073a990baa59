/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mocker process: one plane server, one NATS link and one system server for its workers.
 *
 * One loop; all calls on its thread.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/net/loop.h"

struct mocker;
struct mocker_conf;

/*
 * Reads the model's files (blocks) and starts; registers after the start-up time. NATS and the API
 * server may be away: both are tried for ever. @conf is borrowed until mocker_free().
 */
MUST_CHECK int mocker_start(struct mocker **ret, struct loop *l, const struct mocker_conf *conf,
                            struct err *e);
/*
 * Takes no requests any more, lets running streams finish within the grace time, then calls @done
 * once. A second call cuts the streams at once.
 */
void mocker_stop(struct mocker *m, loop_fn done, void *arg);
struct mocker *mocker_free(struct mocker *m);
DEFINE_CLEANUP(struct mocker *, mocker_free)
/* -1 when there is none. */
int mocker_system_port(const struct mocker *m);
