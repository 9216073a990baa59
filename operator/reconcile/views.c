/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/reconcile/views.h"

#include <string.h>

#include "lib/base/digest.h"
#include "lib/kube/kube_kinds.h"
#include "operator/plan/plan.h"
#include "operator/reconcile/pod_state.h"

/* Keys of "auths" of a dockerconfigjson; the credentials behind them never enter the cache. */
static void put_registries(struct buf *out, const struct json *secret)
{
    AUTO(json_free) struct json *config = NULL;
    AUTO(json_free) struct json *names = json_new_array();
    AUTO(buf_done) struct buf plain = BUF_NULL;
    const char *data = json_cstr(json_path(secret, "data", ".dockerconfigjson", NULL));

    if (data && base64_decode(&plain, str_from(data)) &&
        json_parse(&config, buf_str(&plain), NULL) == 0)
        JSON_FOREACH (registry, json_get(config, "auths"))
            (void)json_add(names, json_new_cstr(json_key(registry)));
    if (plain.base)
        explicit_bzero(plain.base, plain.cap);
    buf_put_cstr(out, ",\"registries\":");
    json_print(names, out);
}

static void put_waiting(struct buf *out, const struct json *pod)
{
    AUTO(mem_free) char *why = pod_waiting(pod);
    AUTO(json_free) struct json *text = json_new_cstr(why ? why : "");

    buf_put_cstr(out, ",\"waiting\":");
    json_print(text, out);
}

static void put_deployment(struct buf *out, const struct json *deployment)
{
    static const char *const kept[] = {"replicas", "paused"};
    AUTO(json_free) struct json *spec = json_new_object();

    for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
        const struct json *value = json_path(deployment, "spec", kept[i], NULL);

        if (value)
            (void)json_set(spec, kept[i], json_dup(value));
    }
    buf_put_cstr(out, ",\"spec\":");
    json_print(spec, out);
    if (json_get(deployment, "status")) {
        buf_put_cstr(out, ",\"status\":");
        json_print(json_get(deployment, "status"), out);
    }
}

static bool is_in_trouble(const struct json *pod)
{
    AUTO(mem_free) char *why = pod_waiting(pod);

    return why != NULL;
}

static bool says_its_routing(const struct json *metadata_record)
{
    return json_path(metadata_record, "metadata", "annotations", PLAN_ROUTING_GENERATION, NULL);
}

static bool is_of_a_component(const struct json *ingress)
{
    bool controls;

    JSON_FOREACH (owner, json_path(ingress, "metadata", "ownerReferences", NULL)) {
        const char *kind = json_get_cstr(owner, "kind");

        if (json_get_bool(owner, "controller", &controls) && controls && kind)
            return strcmp(kind, KIND_DCD.kind) == 0;
    }
    return false;
}

const struct cache_view views[] = {
    {.kind = &KIND_DEPLOYMENT, .trim = true, .put = put_deployment},
    {.kind = &KIND_SECRET, .trim = true, .put = put_registries},
    {.kind = &KIND_POD, .trim = true, .put = put_waiting, .keep = is_in_trouble},
    {.kind = &KIND_DWM, .trim = true, .keep = says_its_routing},
    {.kind = &KIND_PVC, .trim = true},
    {.kind = &KIND_INGRESS, .keep = is_of_a_component},
};
const size_t views_len = ARRAY_LEN(views);
