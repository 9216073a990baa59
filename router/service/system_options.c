/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/system_options.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "lib/base/str.h"

const char *const SYSTEM_STARTING_WORDS[] = {"notready", "ready", NULL};

/* Those that are always there. */
static bool is_taken(const char *path)
{
    static const char *const paths[] = {"/metrics", "/metadata", "/decisions"};

    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        if (strcmp(path, paths[i]) == 0)
            return true;
    return str_starts(str_from(path), STR("/v1/metadata/")) ||
           str_starts(str_from(path), STR("/explain/"));
}

static int check_path(const char *variable, const char *path, struct err *e)
{
    if (!path || path[0] != '/' || strpbrk(path, "*?#{} "))
        return err_set(e, -EINVAL, "%s '%s' is no path", variable, path ? path : "");
    if (is_taken(path))
        return err_set(e, -EINVAL, "%s '%s' is taken", variable, path);
    return 0;
}

static int derive_port(struct system_options *o, int max, struct err *e)
{
    int64_t port;

    if (!str_parse_i64(str_from(o->port_text), &port) || port < -1 || port > max)
        return err_set(e, -EINVAL, "DYN_SYSTEM_PORT '%s' is not between -1 and %d", o->port_text,
                       max);
    o->port = (int)port;
    return 0;
}

int system_options_derive(struct system_options *o, int port_max, struct err *e)
{
    int r = derive_port(o, port_max, e);

    if (r == 0)
        r = check_path("DYN_SYSTEM_HEALTH_PATH", o->health_path, e);
    if (r == 0)
        r = check_path("DYN_SYSTEM_LIVE_PATH", o->live_path, e);
    if (r == 0 && strcmp(o->health_path, o->live_path) == 0)
        return err_set(e, -EINVAL, "DYN_SYSTEM_HEALTH_PATH and DYN_SYSTEM_LIVE_PATH are both '%s'",
                       o->live_path);
    return r;
}
