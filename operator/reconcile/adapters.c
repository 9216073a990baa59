/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/reconcile/adapters.h"

#include <errno.h>

#include "lib/net/loop.h"
#include "operator/api/graph.h"
#include "operator/ctrl/stamp.h"
#include "operator/plan/adapter.h"

static int tell_status(struct apply *a, const struct json *adapter, bool scaled, struct err *e)
{
    struct apply self = {.rc = a->rc, .kind = &KIND_DGDSA, .owner = adapter};
    char now[STAMP_SIZE];
    int r;

    stamp_format(clock_wall_ms(), now);
    r = apply_status(&self, adapter_status(adapter, scaled ? now : NULL), e);
    a->n_written += self.n_written;
    return r;
}

static void tell_scaled(struct apply *a, const struct json *adapter)
{
    int64_t replicas = 0;
    AUTO(mem_free) char *message = NULL;

    (void)json_get_i64(json_get(adapter, "spec"), "replicas", &replicas);
    message = xasprintf("Scaled %s to %jd replicas",
                        json_get_cstr(json_path(adapter, "spec", "dgdRef", NULL), "serviceName"),
                        (intmax_t)replicas);
    recorder_tell(a->rc->recorder, &KIND_DGDSA, adapter, false, "Scaled", message);
}

static int follow(struct apply *a, const struct json *adapter, bool *scaled, struct err *e)
{
    AUTO(json_free) struct json *patch = adapter_graph_patch(adapter, a->owner);
    AUTO(json_free) struct json *stored = NULL;
    int r;

    if (!patch)
        return 0;
    r = kube_patch(a->rc->kube, &KIND_DGD, object_namespace(a->owner), object_name(a->owner), NULL,
                   patch, &stored, e);
    if (r == KUBE_NOT_FOUND)
        return 0; /* deleted meanwhile */
    if (r != 0)
        return err_wrap(e, r < 0 ? r : -EINVAL, "scale to what %s says", object_name(adapter));
    cache_wrote(a->rc->cache, &KIND_DGD, stored);
    a->n_written++;
    tell_scaled(a, adapter);
    *scaled = true;
    return 0;
}

int adapters_follow(struct apply *a, struct err *e)
{
    AUTO(json_free)
    struct json *adapters = cache_get_owned(a->rc->cache, &KIND_DGDSA, object_uid(a->owner));
    bool any = false;

    JSON_FOREACH (adapter, adapters) {
        bool scaled = false;
        int r;

        if (object_is_deleted(adapter))
            continue;
        r = follow(a, adapter, &scaled, e);
        if (r == 0)
            r = tell_status(a, adapter, scaled, e);
        if (r != 0)
            return r;
        any |= scaled;
    }
    return any ? CONTROLLER_AGAIN : 0;
}
