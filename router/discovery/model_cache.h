/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of models on this node, in the layout that Hugging Face's own clients share:
 *
 *     <hub>/models--org--name/refs/main                     a revision
 *     <hub>/models--org--name/snapshots/<revision>/<file>   -> ../../blobs/<etag>
 *     <hub>/models--org--name/blobs/<etag>[.incomplete]
 *     <hub>/.locks/models--org--name/<etag>.lock            held by who downloads
 *     <hub>/.commutator/<blake3>                            what workers serve themselves
 *     <hub>/.commutator/hub/models--org--name               what came from a hub: hub_ledger.h
 *
 * <hub> may be a volume that several pods mount. Everything blocks: see model_download.h.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/str.h"
#include "router/discovery/hub_ledger.h"
#include "router/discovery/model_download.h"

/* Where a program may get model files from; views. */
struct model_places {
    const char *model_root; /* <root>/<name or slug>/<file>; NULL = none */
    const char *hub_cache;  /* as model_hub_cache() gives it; NULL = none */
    const char *endpoint;   /* HF_ENDPOINT; NULL = nothing is downloaded from a hub */
    const char *token;      /* HF_TOKEN */
    bool offline;           /* HF_HUB_OFFLINE */
    uint64_t max_bytes;     /* of one file; 0 = 512 MiB */
    uint64_t kept_bytes;    /* of all that workers served, and of all that came from hubs: what was
                               unused for the longest time goes; 0 = 4 GiB each */
    uint64_t backoff_ms;    /* of model_download */
    struct model_stop stop;
};

/*
 * HF_HUB_CACHE, else HF_HOME/hub, else MODEL_EXPRESS_CACHE_PATH, else HOME/.cache/huggingface/hub;
 * owned, NULL when nothing of that is set (wire.md §3.3).
 */
char *model_hub_cache(const char *(*env)(const char *name));

/* "blake3:<hex>" of the file at @path is @checksum; false too when it cannot be read. */
bool model_file_is(const char *path, const char *checksum);

/*
 * A file of the repository @name that is in the cache already: of the snapshot that refs/main
 * names, else of any. With @checksum only one that it fits. Owned; NULL = there is none.
 */
char *model_cache_find(const char *hub_cache, const char *name, const char *file,
                       const char *checksum);

/* What is in the cache of repository @name stays there until the hold ends; NULL = nothing would go. */
MUST_CHECK int model_hub_hold(const struct model_places *p, const char *name, struct hub_hold **ret,
                              struct err *e);
/*
 * Downloads one file of a repository into the cache, unless its current form is there; *ret_path is
 * owned. -ENOENT when no hub is configured, offline, or when the hub does not have it. *hold is made
 * where it is NULL.
 */
MUST_CHECK int model_hub_get(const struct model_places *p, const char *name, const char *file,
                             struct hub_hold **hold, char **ret_path, struct err *e);
/* Makes room after downloads. */
void model_hub_trim(const struct model_places *p, struct hub_room *ret);

/*
 * The folder of a model for a worker: @name itself when it is one, else the snapshot of that
 * repository in the cache, else one that is downloaded (without weights). *ret_dir is owned;
 * it stays while *ret_hold is held, which may be NULL.
 */
MUST_CHECK int model_folder_get(const struct model_places *p, const char *name, char **ret_dir,
                                struct hub_hold **ret_hold, struct err *e);

/* What a worker serves at @url itself; @size UINT64_MAX = not known. *ret_path is owned. */
MUST_CHECK int model_worker_get(const struct model_places *p, const char *url, const char *checksum,
                                uint64_t size, char **ret_path, struct err *e);
/* Keeps @bytes as model_worker_get() does. -EBADMSG when @checksum is not theirs. */
MUST_CHECK int model_bytes_keep(const struct model_places *p, struct str bytes,
                                const char *checksum, char **ret_path, struct err *e);
