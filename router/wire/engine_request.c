/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/engine_request.h"

#include <errno.h>
#include <string.h>

#include "lib/base/arena.h"
#include "lib/base/err.h"
#include "router/wire/fields.h"

#define STOP(member) offsetof(struct engine_stop, member)
#define SAMPLING(member) offsetof(struct engine_sampling, member)
#define OUTPUT(member) offsetof(struct engine_output_options, member)
#define ROUTING(member) offsetof(struct engine_routing, member)
#define OVERRIDE(member) offsetof(struct engine_request, member)

/* In the order in which the reference writes them; the two arrays stand between. */
static const struct field stop_head[] = {{"max_tokens", FIELD_U32, STOP(max_tokens)}};
static const struct field stop_tail[] = {
    {"min_tokens", FIELD_U32, STOP(min_tokens)},
    {"ignore_eos", FIELD_BOOL, STOP(ignore_eos)},
    {"max_thinking_tokens", FIELD_U32, STOP(max_thinking_tokens)},
};
static const struct field sampling_fields[] = {
    {"n", FIELD_U32, SAMPLING(n)},
    {"best_of", FIELD_U32, SAMPLING(best_of)},
    {"presence_penalty", FIELD_F64, SAMPLING(presence_penalty)},
    {"frequency_penalty", FIELD_F64, SAMPLING(frequency_penalty)},
    {"repetition_penalty", FIELD_F64, SAMPLING(repetition_penalty)},
    {"temperature", FIELD_F64, SAMPLING(temperature)},
    {"top_p", FIELD_F64, SAMPLING(top_p)},
    {"top_k", FIELD_I64, SAMPLING(top_k)},
    {"min_p", FIELD_F64, SAMPLING(min_p)},
    {"use_beam_search", FIELD_BOOL, SAMPLING(use_beam_search)},
    {"length_penalty", FIELD_F64, SAMPLING(length_penalty)},
    {"seed", FIELD_I64, SAMPLING(seed)},
    {"include_stop_str_in_output", FIELD_BOOL, SAMPLING(include_stop_str_in_output)},
};
static const struct field output_fields[] = {
    {"logprobs", FIELD_U32, OUTPUT(logprobs)},
    {"prompt_logprobs", FIELD_U32, OUTPUT(prompt_logprobs)},
    {"skip_special_tokens", FIELD_BOOL, OUTPUT(skip_special_tokens)},
    {"formatted_prompt", FIELD_BOOL, OUTPUT(formatted_prompt)},
};
static const struct field routing_fields[] = {
    {"backend_instance_id", FIELD_U64, ROUTING(backend_instance_id)},
    {"prefill_worker_id", FIELD_U64, ROUTING(prefill_worker_id)},
    {"decode_worker_id", FIELD_U64, ROUTING(decode_worker_id)},
    {"dp_rank", FIELD_U32, ROUTING(dp_rank)},
    {"prefill_dp_rank", FIELD_U32, ROUTING(prefill_dp_rank)},
    {"enable_local_updates", FIELD_BOOL, ROUTING(enable_local_updates)},
    {"expected_output_tokens", FIELD_U32, ROUTING(expected_output_tokens)},
    {"priority_jump", FIELD_F64, ROUTING(priority_jump)},
    {"strict_priority", FIELD_U32, ROUTING(strict_priority)},
    {"priority", FIELD_I64, ROUTING(priority)},
};
static const struct field target_fields[] = {
    {"ttft_target", FIELD_F64, offsetof(struct engine_targets, ttft_ms)},
    {"itl_target", FIELD_F64, offsetof(struct engine_targets, itl_ms)},
};
static const struct field override_fields[] = {
    {"overlap_score_weight", FIELD_F64, OVERRIDE(overlap_score_weight)},
    {"router_temperature", FIELD_F64, OVERRIDE(router_temperature)},
};
static const struct field override_fields_of_1[] = {
    {"overlap_score_credit", FIELD_F64, OVERRIDE(overlap_score_credit)},
    {"router_temperature", FIELD_F64, OVERRIDE(router_temperature)},
    {"assume_kv_reuse", FIELD_BOOL, OVERRIDE(assume_kv_reuse)},
    {"track_prefill_tokens", FIELD_BOOL, OVERRIDE(track_prefill_tokens)},
};

/* --- writing ---------------------------------------------------------------------------------- */

static void texts_put(struct json_put *j, const struct str *texts, size_t n)
{
    json_put_array(j);
    for (size_t i = 0; i < n; i++)
        json_put_str(j, texts[i]);
    json_put_array_end(j);
}

static void stop_put(struct json_put *j, const struct engine_stop *s)
{
    json_put_key(j, "stop_conditions");
    json_put_object(j);
    fields_put(j, stop_head, ARRAY_LEN(stop_head), s, false);
    json_put_key(j, "stop");
    if (s->stop)
        texts_put(j, s->stop, s->n_stop);
    else
        json_put_null(j);
    if (s->ids) {
        json_put_key(j, "stop_token_ids");
        json_put_u32_array(j, s->ids, s->n_ids);
    }
    json_put_key(j, "stop_token_ids_hidden");
    if (s->hidden_ids)
        json_put_u32_array(j, s->hidden_ids, s->n_hidden_ids);
    else
        json_put_null(j);
    fields_put(j, stop_tail, ARRAY_LEN(stop_tail), s, false);
    json_put_object_end(j);
}

static void raw_or_null_put(struct json_put *j, const char *key, struct str json)
{
    json_put_key(j, key);
    if (json.len)
        json_put_raw(j, json);
    else
        json_put_null(j);
}

static void raw_put(struct json_put *j, const char *key, struct str json)
{
    if (!json.len)
        return;
    json_put_key(j, key);
    json_put_raw(j, json);
}

static void options_put(struct json_put *j, const struct engine_request *rq)
{
    stop_put(j, &rq->stop);
    json_put_key(j, "sampling_options");
    json_put_object(j);
    fields_put(j, sampling_fields, ARRAY_LEN(sampling_fields), &rq->sampling, false);
    raw_or_null_put(j, "guided_decoding", rq->sampling.guided_decoding_json);
    json_put_object_end(j);
    json_put_key(j, "output_options");
    json_put_object(j);
    fields_put(j, output_fields, ARRAY_LEN(output_fields), &rq->output, false);
    json_put_object_end(j);
}

static void override_put(struct json_put *j, const struct engine_request *rq)
{
    json_put_object(j);
    if (rq->overlap_score_credit.set)
        fields_put(j, override_fields_of_1, ARRAY_LEN(override_fields_of_1), rq, true);
    else
        fields_put(j, override_fields, ARRAY_LEN(override_fields), rq, false);
    json_put_object_end(j);
}

/* An absent routing object is left out: workers call .get on it and trip over null. */
static void routing_put(struct json_put *j, const struct engine_request *rq)
{
    if (rq->has_routing) {
        json_put_key(j, "routing");
        json_put_object(j);
        fields_put(j, routing_fields, ARRAY_LEN(routing_fields), &rq->routing, true);
        if (rq->routing.lora_name.len) {
            json_put_key(j, "lora_name");
            json_put_str(j, rq->routing.lora_name);
        }
        if (rq->routing.cache_salt.len) {
            json_put_key(j, "cache_salt");
            json_put_str(j, rq->routing.cache_salt);
        }
        raw_put(j, "routing_constraints", rq->routing.constraints_json);
        json_put_object_end(j);
    }
    json_put_key(j, "router_config_override");
    if (rq->has_override) {
        override_put(j, rq);
    } else {
        json_put_null(j);
    }
    if (rq->has_targets) {
        json_put_key(j, "router");
        json_put_object(j);
        fields_put(j, target_fields, ARRAY_LEN(target_fields), &rq->targets, true);
        json_put_object_end(j);
    }
}

static void bootstrap_put(struct json_put *j, const struct engine_bootstrap *b)
{
    json_put_key(j, "bootstrap_info");
    json_put_object(j);
    json_put_key(j, "bootstrap_host");
    json_put_str(j, b->host);
    json_put_key(j, "bootstrap_port");
    json_put_u64(j, b->port);
    json_put_key(j, "bootstrap_room");
    json_put_u64(j, b->room);
    if (b->handoff_id.len) {
        json_put_key(j, "handoff_id");
        json_put_str(j, b->handoff_id);
    }
    json_put_object_end(j);
}

static void mm_routing_put(struct json_put *j, const struct engine_request *rq)
{
    json_put_key(j, "mm_routing_info");
    json_put_object(j);
    json_put_key(j, "routing_token_ids");
    json_put_u32_array(j, rq->routing_token_ids, rq->n_routing_token_ids);
    json_put_key(j, "block_mm_infos");
    json_put_raw(j, STR("[]"));
    json_put_member_u64(j, "expanded_prompt_len", rq->n_routing_prompt);
    json_put_object_end(j);
}

void engine_request_put(struct buf *out, const struct engine_request *rq)
{
    struct json_put j = json_put_on(out);

    /* Six bytes for most ids: a long prompt shall not be moved at each doubling. */
    (void)buf_reserve(out, 2048 + rq->n_token_ids * 6);
    json_put_object(&j);
    json_put_key(&j, "model");
    json_put_str(&j, rq->model);
    json_put_key(&j, "token_ids");
    json_put_u32_array(&j, rq->token_ids, rq->n_token_ids);
    if (rq->prompt_embeds.len) {
        json_put_key(&j, "prompt_embeds");
        json_put_str(&j, rq->prompt_embeds);
    }
    raw_put(&j, "multi_modal_data", rq->multi_modal_data_json);
    raw_put(&j, "multi_modal_uuids", rq->multi_modal_uuids_json);
    if (rq->n_routing_token_ids)
        mm_routing_put(&j, rq);
    options_put(&j, rq);
    json_put_key(&j, "eos_token_ids");
    json_put_u32_array(&j, rq->eos_token_ids, rq->n_eos_token_ids);
    json_put_key(&j, "mdc_sum");
    if (rq->mdc_sum.len)
        json_put_str(&j, rq->mdc_sum);
    else
        json_put_null(&j);
    json_put_key(&j, "annotations");
    texts_put(&j, rq->annotations, rq->n_annotations);
    routing_put(&j, rq);
    raw_put(&j, "prefill_result", rq->prefill_result_json);
    if (rq->has_bootstrap)
        bootstrap_put(&j, &rq->bootstrap);
    raw_put(&j, "extra_args", rq->extra_args_json);
    raw_put(&j, "mm_processor_kwargs", rq->mm_processor_kwargs_json);
    json_put_object_end(&j);
}

/* --- reading ---------------------------------------------------------------------------------- */

struct reading {
    struct json_pull p;
    struct arena *a;
    struct buf scratch; /* strings with escapes, before they go to the arena */
};

static void text_read(struct reading *rd, struct str *ret)
{
    struct str s = STR_NULL;

    buf_clear(&rd->scratch);
    text_pull(&rd->p, &rd->scratch, &s);
    if (rd->scratch.len && s.ptr == buf_data(&rd->scratch))
        s = str_slice(arena_strdup(rd->a, s), s.len);
    *ret = s;
}

/* Elements of the array that comes next, without consuming it; a bound, not a count of values. */
static size_t array_bound(const struct reading *rd)
{
    struct json_pull ahead = rd->p;
    struct str text;
    size_t n = 1;

    if (!json_pull_skip(&ahead, &text))
        return 0;
    for (size_t i = 0; i < text.len; i++)
        n += text.ptr[i] == ',';
    return n;
}

static void ids_read(struct reading *rd, const uint32_t **ret, size_t *ret_n)
{
    size_t n = 0, bound = array_bound(rd);
    uint32_t *ids;
    uint64_t id;

    if (!json_pull_array(&rd->p))
        return;
    ids = arena_alloc(rd->a, bound * sizeof(*ids));
    while (json_pull_element(&rd->p) && json_pull_u64(&rd->p, &id)) {
        if (id > UINT32_MAX)
            json_pull_fail(&rd->p, "token id out of range");
        else if (n < bound)
            ids[n++] = (uint32_t)id;
    }
    *ret = ids;
    *ret_n = n;
}

static void texts_read(struct reading *rd, const struct str **ret, size_t *ret_n)
{
    size_t n = 0, bound = array_bound(rd);
    struct str *texts;

    if (!json_pull_array(&rd->p))
        return;
    texts = arena_alloc(rd->a, bound * sizeof(*texts));
    while (json_pull_element(&rd->p) && n < bound)
        text_read(rd, &texts[n++]);
    *ret = texts;
    *ret_n = n;
}

static void stop_read(struct reading *rd, struct engine_stop *s)
{
    struct str key;

    if (!json_pull_object(&rd->p))
        return;
    while (json_pull_key(&rd->p, &key)) {
        if (str_is(key, "stop"))
            texts_read(rd, &s->stop, &s->n_stop);
        else if (str_is(key, "stop_token_ids"))
            ids_read(rd, &s->ids, &s->n_ids);
        else if (str_is(key, "stop_token_ids_hidden"))
            ids_read(rd, &s->hidden_ids, &s->n_hidden_ids);
        else if (!fields_pull(&rd->p, key, stop_head, ARRAY_LEN(stop_head), s) &&
                 !fields_pull(&rd->p, key, stop_tail, ARRAY_LEN(stop_tail), s))
            skip_pull(&rd->p);
    }
}

/* An object of optionals; @json_key names one member that is passed through, or is NULL. */
static void fields_read(struct reading *rd, const struct field *table, size_t n, void *base,
                        const char *json_key, struct str *ret_json)
{
    struct str key;

    if (!json_pull_object(&rd->p))
        return;
    while (json_pull_key(&rd->p, &key)) {
        if (json_key && str_is(key, json_key))
            json_text_pull(&rd->p, ret_json);
        else if (!fields_pull(&rd->p, key, table, n, base))
            skip_pull(&rd->p);
    }
}

static void routing_read(struct reading *rd, struct engine_routing *ret)
{
    struct str key;

    if (!json_pull_object(&rd->p))
        return;
    while (json_pull_key(&rd->p, &key)) {
        if (str_is(key, "lora_name"))
            text_read(rd, &ret->lora_name);
        else if (str_is(key, "cache_salt"))
            text_read(rd, &ret->cache_salt);
        else if (str_is(key, "routing_constraints"))
            json_text_pull(&rd->p, &ret->constraints_json);
        else if (!fields_pull(&rd->p, key, routing_fields, ARRAY_LEN(routing_fields), ret))
            skip_pull(&rd->p);
    }
}

static void override_read(struct reading *rd, struct engine_request *rq)
{
    struct str key;

    if (!json_pull_object(&rd->p))
        return;
    while (json_pull_key(&rd->p, &key))
        if (!fields_pull(&rd->p, key, override_fields, ARRAY_LEN(override_fields), rq) &&
            !fields_pull(&rd->p, key, override_fields_of_1, ARRAY_LEN(override_fields_of_1), rq))
            skip_pull(&rd->p);
}

static void bootstrap_read(struct reading *rd, struct engine_request *rq)
{
    uint64_t port = 0;
    struct str key;

    if (!json_pull_object(&rd->p))
        return;
    rq->has_bootstrap = true;
    while (json_pull_key(&rd->p, &key)) {
        if (str_is(key, "bootstrap_host"))
            text_read(rd, &rq->bootstrap.host);
        else if (str_is(key, "handoff_id"))
            text_read(rd, &rq->bootstrap.handoff_id);
        else if (str_is(key, "bootstrap_port") && !json_pull_u64(&rd->p, &port))
            return;
        else if (str_is(key, "bootstrap_room") && !json_pull_u64(&rd->p, &rq->bootstrap.room))
            return;
        else if (!str_is(key, "bootstrap_port") && !str_is(key, "bootstrap_room") &&
                 !str_is(key, "handoff_id"))
            skip_pull(&rd->p);
    }
    if (port > UINT16_MAX)
        json_pull_fail(&rd->p, "bootstrap_port out of range");
    rq->bootstrap.port = (uint16_t)port;
}

enum { HAS_MODEL = 1, HAS_TOKENS = 2, HAS_STOP = 4, HAS_SAMPLING = 8, HAS_OUTPUT = 16 };

/* Whether @key was one of the members that options consist of. */
static bool options_read(struct reading *rd, struct str key, struct engine_request *rq,
                         unsigned *seen)
{
    bool is_object = json_pull_peek(&rd->p) == JSON_KIND_OBJECT;

    if (str_is(key, "stop_conditions")) {
        stop_read(rd, &rq->stop);
        *seen |= is_object ? HAS_STOP : 0;
    } else if (str_is(key, "sampling_options")) {
        fields_read(rd, sampling_fields, ARRAY_LEN(sampling_fields), &rq->sampling,
                    "guided_decoding", &rq->sampling.guided_decoding_json);
        *seen |= is_object ? HAS_SAMPLING : 0;
    } else if (str_is(key, "output_options")) {
        fields_read(rd, output_fields, ARRAY_LEN(output_fields), &rq->output, NULL, NULL);
        *seen |= is_object ? HAS_OUTPUT : 0;
    } else if (str_is(key, "routing")) {
        rq->has_routing = is_object;
        routing_read(rd, &rq->routing);
    } else if (str_is(key, "router_config_override")) {
        rq->has_override = is_object;
        override_read(rd, rq);
    } else if (str_is(key, "router")) {
        rq->has_targets = is_object;
        fields_read(rd, target_fields, ARRAY_LEN(target_fields), &rq->targets, NULL, NULL);
    } else {
        return false;
    }
    return true;
}

static void member_read(struct reading *rd, struct str key, struct engine_request *rq,
                        unsigned *seen)
{
    if (str_is(key, "model")) {
        text_read(rd, &rq->model);
        *seen |= HAS_MODEL;
    } else if (str_is(key, "token_ids")) {
        ids_read(rd, &rq->token_ids, &rq->n_token_ids);
        *seen |= rq->token_ids ? HAS_TOKENS : 0;
    } else if (str_is(key, "eos_token_ids")) {
        ids_read(rd, &rq->eos_token_ids, &rq->n_eos_token_ids);
    } else if (str_is(key, "mdc_sum")) {
        text_read(rd, &rq->mdc_sum);
    } else if (str_is(key, "annotations")) {
        texts_read(rd, &rq->annotations, &rq->n_annotations);
    } else if (str_is(key, "prompt_embeds")) {
        text_read(rd, &rq->prompt_embeds);
    } else if (str_is(key, "bootstrap_info")) {
        bootstrap_read(rd, rq);
    } else if (str_is(key, "multi_modal_data")) {
        json_text_pull(&rd->p, &rq->multi_modal_data_json);
    } else if (str_is(key, "multi_modal_uuids")) {
        json_text_pull(&rd->p, &rq->multi_modal_uuids_json);
    } else if (str_is(key, "prefill_result")) {
        json_text_pull(&rd->p, &rq->prefill_result_json);
    } else if (str_is(key, "extra_args")) {
        json_text_pull(&rd->p, &rq->extra_args_json);
    } else if (str_is(key, "mm_processor_kwargs")) {
        json_text_pull(&rd->p, &rq->mm_processor_kwargs_json);
    } else if (!options_read(rd, key, rq, seen)) {
        skip_pull(&rd->p);
    }
}

static int required_check(unsigned seen, struct err *e)
{
    static const char *const names[] = {"model", "token_ids", "stop_conditions", "sampling_options",
                                        "output_options"};

    for (unsigned i = 0; i < ARRAY_LEN(names); i++)
        if (!(seen & 1u << i))
            return err_set(e, -EINVAL, "request: missing field `%s`", names[i]);
    return 0;
}

int engine_request_parse(struct arena *a, struct str json, struct engine_request *ret,
                         struct err *e)
{
    struct reading rd = {.a = a};
    struct engine_request rq = {0};
    unsigned seen = 0;
    struct str key;
    int r;

    json_pull_init(&rd.p, json);
    if (json_pull_object(&rd.p))
        while (json_pull_key(&rd.p, &key))
            member_read(&rd, key, &rq, &seen);
    r = json_pull_end(&rd.p, e);
    buf_done(&rd.scratch);
    if (r < 0)
        return err_wrap(e, r, "request");
    r = required_check(seen, e);
    if (r < 0)
        return r;
    *ret = rq;
    return 0;
}
