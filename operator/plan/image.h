/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which pull secrets an image needs, by the host of its registry. Pure.
 * Source: operator.md §2.6.15.
 */
#pragma once

#include "lib/base/json_tree.h"

/* The host of "host:port/path:tag"; "docker.io" for an image that names none. */
struct str image_registry(const char *image);
/*
 * The host of an auths key, which may be a URL. Docker Hub's own key, https://index.docker.io/v1/,
 * gives "docker.io".
 */
struct str image_auth_host(const char *key);
/*
 * Appends {"name": secret} for every secret that holds a login for the image's registry and is not
 * listed yet, by name. @secrets is {"secret": ["auths key", ...]} and may be NULL.
 */
void image_add_pull_secrets(struct json *list, const struct json *secrets, const char *image);
