/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/reconcile/pod_state.h"

#include <string.h>

enum { REASON_TEXT_MAX = 400 };

static bool is(const struct json *object, const char *key, const char *value)
{
    const char *text = json_get_cstr(object, key);

    return text && strcmp(text, value) == 0;
}

static char *sentence(const char *reason, const char *message)
{
    if (!message || !*message)
        return xstrdup(reason);
    return xasprintf("%s: %.*s", reason, REASON_TEXT_MAX, message);
}

static char *waiting_container(const struct json *statuses)
{
    JSON_FOREACH (status, statuses) {
        const struct json *waiting = json_path(status, "state", "waiting", NULL);
        const char *reason = json_get_cstr(waiting, "reason");

        if (!reason || strcmp(reason, "ContainerCreating") == 0 ||
            strcmp(reason, "PodInitializing") == 0)
            continue;
        return sentence(reason, json_get_cstr(waiting, "message"));
    }
    return NULL;
}

char *pod_waiting(const struct json *pod)
{
    const struct json *status = json_get(pod, "status");
    char *why;

    JSON_FOREACH (condition, json_get(status, "conditions")) {
        const char *reason = json_get_cstr(condition, "reason");

        if (is(condition, "type", "PodScheduled") && is(condition, "status", "False"))
            return sentence(reason ? reason : "Unschedulable", json_get_cstr(condition, "message"));
    }
    why = waiting_container(json_get(status, "initContainerStatuses"));
    return why ? why : waiting_container(json_get(status, "containerStatuses"));
}
