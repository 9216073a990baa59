/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One URL becomes one file: resumed where an earlier attempt ended, tried again, checked, and there
 * under its name only when it is complete. Of all processes of a node that want the file one
 * downloads it, and the others wait for it: the one that holds the lock file (flock, so that the
 * lock ends with its process).
 *
 * Blocks, for hours if need be: on a thread of its own. Tells its progress in the log.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/str.h"

/* The one who waits may have to go. */
struct model_stop {
    bool (*asked)(void *arg); /* any time, on the downloading thread; NULL = never */
    void *arg;
};

/* Waits; false when told to stop meanwhile. */
bool model_stop_pause(const struct model_stop *s, uint64_t ms);

struct model_download {
    const char *url;
    const char *bearer; /* NULL = none */
    const char *path;   /* where it is to be; its folder exists */
    const char *lock;   /* its folder exists */
    uint64_t size;      /* expected; UINT64_MAX = not known */
    uint64_t max_bytes;
    uint64_t backoff_ms; /* before the second attempt, doubled for each further one; 0 = 500 */
    /* Whether the complete file at @path is the wanted one. */
    bool (*check)(const void *arg, const char *path);
    const void *check_arg;
    struct model_stop stop;
};

enum { MODEL_DOWNLOAD_ATTEMPTS = 6 };

/*
 * 0: it is at @path, downloaded now or by somebody else. -EACCES 401 or 403, -ENOENT 404, -EFBIG,
 * -EBADMSG when it fails the check twice, -ECANCELED, else what the last attempt met.
 */
MUST_CHECK int model_download(const struct model_download *d, struct err *e);
/* mkdir -p */
MUST_CHECK int model_folder_make(const char *path, struct err *e);
