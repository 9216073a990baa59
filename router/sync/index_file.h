/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Index images in files. Blocks: for start-up, pool threads and the end.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "router/kv/index_image.h"

/* A file that is read, mapped. */
struct index_file {
    void *bytes;
    size_t n;
    struct index_image image; /* borrows from them */
};

/* -ENOENT when there is none, -EBADMSG when it is no image. */
MUST_CHECK int index_file_open(struct index_file *ret, const char *path, struct err *e);
void index_file_close(struct index_file *f);

/* A file that is being written, in two steps: the nodes, then the workers. */
struct index_draft {
    char *path, *other_path; /* where it will be, and is until then */
    int fd;
    struct index_image_writer writer;
};

MUST_CHECK int index_draft_begin(struct index_draft *ret, const char *path,
                                 const struct index_image_head *head, struct err *e);
/* All nodes; -ECANCELED when *stop becomes true meanwhile. */
MUST_CHECK int index_draft_nodes(struct index_draft *d, struct prefix_index *ix,
                                 const atomic_bool *stop, struct err *e);
/* The file takes the place of the one before, and is on disk. */
MUST_CHECK int index_draft_end(struct index_draft *d, const struct index_image_worker *workers,
                               size_t n, struct err *e);
/* Removes what did not come to its end. */
void index_draft_done(struct index_draft *d);
