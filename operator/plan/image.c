/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/plan/image.h"

#include <string.h>

#include "operator/plan/merge.h"

struct str image_registry(const char *image)
{
    struct str rest = str_from(image), host;

    if (!str_cut(&rest, '/', &host))
        return STR("docker.io");
    if (str_index(host, '.') == host.len && str_index(host, ':') == host.len &&
        !str_is(host, "localhost"))
        return STR("docker.io");
    return host;
}

struct str image_auth_host(const char *key)
{
    struct str rest = str_from(key), host;

    if (str_starts(rest, STR("https://")))
        rest = str_skip(rest, strlen("https://"));
    else if (str_starts(rest, STR("http://")))
        rest = str_skip(rest, strlen("http://"));
    (void)str_cut(&rest, '/', &host);
    return str_is(host, "index.docker.io") ? STR("docker.io") : host;
}

static bool has_login(const struct json *keys, struct str registry)
{
    JSON_FOREACH (key, keys) {
        if (json_cstr(key) && str_eq(image_auth_host(json_cstr(key)), registry))
            return true;
    }
    return false;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void image_add_pull_secrets(struct json *list, const struct json *secrets, const char *image)
{
    struct str registry = image_registry(image);
    AUTO(mem_free) const char **names = xcalloc(json_len(secrets) + 1, sizeof(*names));
    size_t n = 0;

    JSON_FOREACH (secret, secrets) {
        if (has_login(secret, registry))
            names[n++] = json_key(secret);
    }
    qsort(names, n, sizeof(*names), by_text);
    for (size_t i = 0; i < n; i++) {
        if (!env_find(list, names[i]))
            json_set_cstr(json_add(list, json_new_object()), "name", names[i]);
    }
}
