/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one place where libuv shows: for the modules of this folder that own libuv handles.
 */
#pragma once

#include <uv.h>

#include "lib/net/loop.h"

enum { LOOP_SCRATCH_BYTES = 65536 };

uv_loop_t *loop_uv(struct loop *l);
/* A read buffer of LOOP_SCRATCH_BYTES, lent to the one callback that runs. */
char *loop_scratch(struct loop *l);
