/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One answer of an HTTP server, byte by byte as it comes: for downloads that are too long for a
 * buffer. Blocks: for a thread of its own, never on a loop's.
 *
 * A bearer token goes to the host of @url only, not to where that redirects to. It never shows in
 * errors.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/str.h"

struct http_fetch_spec {
    const char *url;
    const char *bearer;           /* NULL = none */
    bool head_only;               /* HEAD; redirects are not followed */
    uint64_t from;                /* asks for what follows these bytes; 0 = for all */
    uint64_t connect_ms, idle_ms; /* 0 = 5 s; no byte for so long ends it, 0 = 30 s */
    /* Each header of each answer on the way; name lower case. A new answer begins with name "". */
    void (*header)(void *arg, struct str name, struct str value);
    /* Bytes of the last answer. False ends the transfer with -ECANCELED. May be NULL. */
    bool (*data)(void *arg, int status, struct str bytes);
    /* Asked several times a second; true ends the transfer with -ECANCELED. May be NULL. */
    bool (*cancelled)(void *arg);
    void *arg;
};

/* 0 when there was a complete answer, whatever its status; else -errno. */
MUST_CHECK int http_fetch(const struct http_fetch_spec *spec, int *ret_status, struct err *e);
