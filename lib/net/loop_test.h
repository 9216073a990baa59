/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: turns a loop until something has come true.
 */
#pragma once

#include "lib/base/test.h"
#include "lib/net/loop.h"

/* So long nothing takes on a machine that is busy with all other tests; only a failure waits for it. */
enum { LOOP_UNTIL_MS = 90000 };

#define LOOP_UNTIL(loop, condition)                                                                \
    do {                                                                                           \
        uint64_t give_up_ = clock_now_ns() + LOOP_UNTIL_MS * UINT64_C(1000000);                    \
        while (!(condition)) {                                                                     \
            if (clock_now_ns() > give_up_)                                                         \
                fail_msg("waited in vain for: %s", #condition);                                    \
            loop_run_once((loop), 20);                                                             \
        }                                                                                          \
    } while (0)
