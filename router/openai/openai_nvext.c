/* SPDX-License-Identifier: Apache-2.0 */
/* The member `nvext`: what Dynamo adds to the OpenAI API. */
#include <float.h>

#include "lib/base/arena.h"
#include "router/openai/openai_read.h"

enum {
    LIST_MAX = 1024,
    TAINTS_MAX = 64,
    TAINT_WEIGHT_MAX = 1000,
};

static bool nvext_u64(struct openai_reader *rd, struct str name, bool *ret_known)
{
    struct openai_request *r = rd->r;
    const struct {
        const char *name;
        uint64_t max;
        struct opt_u64 *at;
    } keys[] = {{"backend_instance_id", UINT64_MAX, &r->backend_instance_id},
                {"prefill_worker_id", UINT64_MAX, &r->prefill_worker_id},
                {"decode_worker_id", UINT64_MAX, &r->decode_worker_id},
                {"prefill_dp_rank", UINT32_MAX, &r->prefill_dp_rank},
                {"expected_output_tokens", UINT64_MAX, &r->expected_output_tokens},
                {"max_thinking_tokens", UINT64_MAX, &r->stop.max_thinking_tokens}};

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (str_is(name, keys[i].name)) {
            *ret_known = true;
            return json_pull_null(&rd->p) ||
                   openai_read_u64(rd, keys[i].name, keys[i].max, keys[i].at);
        }
    }
    *ret_known = false;
    return true;
}

static bool nvext_list(struct openai_reader *rd, struct str name)
{
    struct openai_request *r = rd->r;
    struct json_pull ahead = rd->p;
    struct str *fields;
    size_t n;

    if (!openai_expect(rd, str_is(name, "annotations") ? "annotations" : "extra_fields",
                       JSON_KIND_ARRAY, "an array of strings"))
        return false;
    if (str_is(name, "annotations")) {
        if (!openai_read_strings(rd, "annotations", LIST_MAX, &r->annotations, &r->n_annotations))
            return false;
        for (size_t i = 0; i < r->n_annotations; i++) {
            r->wants_worker |= str_is(r->annotations[i], "query_instance_id");
            r->wants_timing |= str_is(r->annotations[i], "query_instance_id");
            r->query_only |= str_starts(r->annotations[i], STR("query_instance_id:"));
            r->tell_id |= str_is(r->annotations[i], "request_id");
            r->tell_prompt |= str_is(r->annotations[i], "formatted_prompt");
            r->tell_tokens |= str_is(r->annotations[i], "token_ids");
        }
        return true;
    }
    if (!openai_read_strings(rd, "extra_fields", LIST_MAX, &fields, &n))
        return false;
    (void)json_pull_skip(&ahead, &r->extra_fields_json);
    for (size_t i = 0; i < n; i++) {
        r->wants_worker |= str_is(fields[i], "worker_id");
        r->wants_timing |= str_is(fields[i], "timing");
        r->wants_ids |= str_is(fields[i], "completion_token_ids");
        r->wants_prompt_ids |= str_is(fields[i], "prompt_token_ids");
    }
    return true;
}

static bool nvext_hints(struct openai_reader *rd, struct openai_request *r)
{
    struct openai_names seen = {.n = 0};
    struct str name;
    bool ok =
        openai_expect(rd, "agent_hints", JSON_KIND_OBJECT, "an object") && json_pull_object(&rd->p);

    while (ok && openai_next_key(rd, &seen, &name)) {
        if (json_pull_null(&rd->p))
            continue;
        if (str_is(name, "priority"))
            ok = openai_read_i64(rd, "priority", &r->priority);
        else if (str_is(name, "strict_priority"))
            ok = openai_read_u64(rd, "strict_priority", UINT32_MAX, &r->strict_priority);
        else if (str_is(name, "latency_sensitivity"))
            ok = openai_read_f64(rd, "latency_sensitivity", -1e9, 1e9, &r->latency_sensitivity);
        else if (str_is(name, "osl"))
            ok = openai_read_u64(rd, "osl", UINT32_MAX, &r->expected_output_tokens);
        else
            json_pull_skip(&rd->p, NULL);
    }
    return ok;
}

static bool nvext_targets(struct openai_reader *rd, struct openai_request *r)
{
    struct openai_names seen = {.n = 0};
    struct str name;
    bool ok =
        openai_expect(rd, "router", JSON_KIND_OBJECT, "an object") && json_pull_object(&rd->p);

    r->has_targets = ok;
    while (ok && openai_next_key(rd, &seen, &name)) {
        if (json_pull_null(&rd->p))
            continue;
        if (str_is(name, "ttft_target"))
            ok = openai_read_f64(rd, "ttft_target", -DBL_MAX, DBL_MAX, &r->ttft_target_ms);
        else if (str_is(name, "itl_target"))
            ok = openai_read_f64(rd, "itl_target", -DBL_MAX, DBL_MAX, &r->itl_target_ms);
        else
            json_pull_skip(&rd->p, NULL);
    }
    return ok;
}

/* {"taint": weight, …} */
static bool preferred_taints(struct openai_reader *rd)
{
    static const char key[] = "preferred_taints";
    struct openai_request *r = rd->r;
    struct opt_f64 weight;
    struct str name;

    if (!openai_expect(rd, key, JSON_KIND_OBJECT, "an object") || !json_pull_object(&rd->p))
        return false;
    r->preferred_taints = arena_alloc(rd->arena, TAINTS_MAX * sizeof(*r->preferred_taints));
    while (json_pull_key(&rd->p, &name)) {
        if (r->n_preferred_taints == TAINTS_MAX)
            return api_fail(rd->e, 400, key, "Validation: %s has more than %d entries", key,
                            TAINTS_MAX);
        if (!openai_read_f64(rd, key, -TAINT_WEIGHT_MAX, TAINT_WEIGHT_MAX, &weight))
            return false;
        r->preferred_taints[r->n_preferred_taints++] = (struct route_taint){name, weight.v};
    }
    return true;
}

static bool routing_constraints(struct openai_reader *rd)
{
    struct openai_request *r = rd->r;
    struct json_pull ahead = rd->p;
    struct openai_names seen = {.n = 0};
    struct str name;
    bool ok = true;

    (void)json_pull_skip(&ahead, &r->constraints_json);
    if (!openai_expect(rd, "routing_constraints", JSON_KIND_OBJECT, "an object") ||
        !json_pull_object(&rd->p))
        return false;
    while (ok && openai_next_key(rd, &seen, &name)) {
        if (json_pull_null(&rd->p))
            continue;
        if (str_is(name, "required_taints"))
            ok = openai_read_strings(rd, "required_taints", TAINTS_MAX, &r->required_taints,
                                     &r->n_required_taints);
        else if (str_is(name, "preferred_taints"))
            ok = preferred_taints(rd);
        else
            json_pull_skip(&rd->p, NULL);
    }
    return ok;
}

bool openai_read_nvext(struct openai_reader *rd, const char *key)
{
    struct openai_request *r = rd->r;
    struct openai_names seen = {.n = 0};
    struct str name;
    bool known, ok = true;

    if (!openai_expect(rd, key, JSON_KIND_OBJECT, "an object") || !json_pull_object(&rd->p))
        return false;
    r->has_nvext = true;
    while (ok && openai_next_key(rd, &seen, &name)) {
        ok = nvext_u64(rd, name, &known);
        if (known || json_pull_null(&rd->p))
            continue;
        if (str_is(name, "annotations") || str_is(name, "extra_fields")) {
            ok = nvext_list(rd, name);
        } else if (str_is(name, "agent_hints")) {
            ok = nvext_hints(rd, r);
        } else if (str_is(name, "router")) {
            ok = nvext_targets(rd, r);
        } else if (str_is(name, "routing_constraints")) {
            ok = routing_constraints(rd);
        } else if (str_is(name, "token_data")) {
            ok = openai_expect(rd, "token_data", JSON_KIND_ARRAY, "an array") &&
                 json_pull_array(&rd->p) &&
                 openai_read_ids(rd, "token_data", &r->token_data, &r->n_token_data);
        } else if (str_is(name, "cache_salt")) {
            rd->has_salt_of_nvext = true;
            ok = openai_read_string(rd, "cache_salt", &r->cache_salt);
        } else if (str_is(name, "greed_sampling")) {
            ok = openai_read_bool(rd, "greed_sampling", &r->greedy);
        } else if (str_is(name, "enable_local_updates")) {
            r->enable_local_updates.set = true;
            ok = openai_read_bool(rd, "enable_local_updates", &r->enable_local_updates.v);
        } else {
            json_pull_skip(&rd->p, NULL);
        }
    }
    return ok;
}
