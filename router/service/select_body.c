/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/select_body.h"

#include "lib/base/json_pull.h"

#define AT(member) offsetof(struct select_body, member)
static const struct body_field BODY[] = {
    {"selection_id", BODY_STR, AT(selection_id), false},
    {"model_name", BODY_STR, AT(model_name), false},
    {"routing_group", BODY_STR, AT(routing_group), false},
    {"session_id", BODY_STR, AT(session_id), false},
    {"lora_name", BODY_STR, AT(lora_name), false},
    {"cache_salt", BODY_STR, AT(cache_salt), false},
    {"block_mm_infos", BODY_MEDIA, AT(block_mm_infos), false},
    {"mm_routing_info", BODY_OBJECT, AT(mm_routing_info), false},
    {"is_eagle", BODY_BOOL, AT(is_eagle), false},
    {"token_ids", BODY_TOKENS, AT(token_ids), false},
    {"block_hashes", BODY_HASHES, AT(block_hashes), false},
    {"sequence_hashes", BODY_HASHES, AT(sequence_hashes), false},
    {"allowed_worker_ids", BODY_HASHES, AT(allowed_worker_ids), false},
    {"isl_tokens", BODY_U32, AT(isl_tokens), false},
    {"worker_id", BODY_U64, AT(worker_id), false},
    {"dp_rank", BODY_U32, AT(dp_rank), false},
    {"effective_prefill_tokens", BODY_U32, AT(effective_prefill_tokens), false},
    {"strict_priority", BODY_U32, AT(strict_priority), false},
    {"expected_output_tokens", BODY_U32, AT(expected_output_tokens), false},
    {"priority_jump", BODY_F64, AT(priority_jump), false},
    {"pinned_worker", BODY_OBJECT, AT(pinned_worker), false},
    {"affinity_target", BODY_OBJECT, AT(affinity_target), false},
    {"routing_constraints", BODY_OBJECT, AT(routing_constraints), false},
    {"router_config_override", BODY_OBJECT, AT(router_config_override), false},
};

int select_body_read(struct rest_call *c, struct select_body *ret)
{
    return rest_body(c, BODY, ARRAY_LEN(BODY), ret);
}

static bool is_below_zero(struct opt_f64 v)
{
    return v.set && v.v < 0;
}

static int read_detail(struct rest_call *c, struct str json, const struct body_field *table,
                       size_t n, void *into)
{
    struct err e = {""};
    int r = json.ptr ? body_parse(c->arena, json, table, n, into, &e) : 0;

    return r ? rest_error(c, 422, "the body is not as expected: %s", e.text) : 0;
}

int select_tokens_read(struct rest_call *c, const struct select_body *b, struct u32_list *ret,
                       struct media_list *ret_media)
{
    struct routing_info {
        struct u32_list tokens;
        struct media_list media;
    } info = {.tokens = {NULL, 0}};
    static const struct body_field table[] = {
        {"routing_token_ids", BODY_TOKENS, offsetof(struct routing_info, tokens), true},
        {"block_mm_infos", BODY_MEDIA, offsetof(struct routing_info, media), false}};
    int status = read_detail(c, b->mm_routing_info, table, ARRAY_LEN(table), &info);

    if (status == 0 && str_is(json_pull_member(b->mm_routing_info, "block_mm_infos"), "null"))
        status = rest_error(c, 422, "the body is not as expected: block_mm_infos is null");
    *ret = info.tokens.len ? info.tokens : b->token_ids;
    *ret_media = info.tokens.len ? info.media : b->block_mm_infos;
    return status;
}

int select_details_read(struct rest_call *c, const struct select_body *b,
                        struct select_details *ret)
{
    static const struct body_field pins[] = {
        {"worker_id", BODY_U64, offsetof(struct select_target, worker_id), true},
        {"dp_rank", BODY_U32, offsetof(struct select_target, dp_rank), true}};
    static const struct body_field targets[] = {
        {"worker_id", BODY_U64, offsetof(struct select_target, worker_id), true},
        {"dp_rank", BODY_U32, offsetof(struct select_target, dp_rank), false}};
    static const struct body_field overrides[] = {
        {"overlap_score_weight", BODY_F64, offsetof(struct select_override, weight), false},
        {"overlap_score_credit", BODY_F64, offsetof(struct select_override, credit), false},
        {"prefill_load_scale", BODY_F64, offsetof(struct select_override, load_scale), false},
        {"router_temperature", BODY_F64, offsetof(struct select_override, temperature), false},
        {"assume_kv_reuse", BODY_BOOL, offsetof(struct select_override, assume_kv_reuse), false},
        {"track_prefill_tokens", BODY_BOOL, offsetof(struct select_override, track_prefill_tokens),
         false}};
    static const struct body_field taints[] = {
        {"required_taints", BODY_STRINGS, offsetof(struct select_constraints, required), false},
        {"preferred_taints", BODY_NUMBERS, offsetof(struct select_constraints, preferred), false}};
    const struct select_override *over = &ret->over;
    int status = read_detail(c, b->pinned_worker, pins, ARRAY_LEN(pins), &ret->pin);

    if (status == 0)
        status = read_detail(c, b->affinity_target, targets, ARRAY_LEN(targets), &ret->affinity);
    if (status == 0)
        status =
            read_detail(c, b->router_config_override, overrides, ARRAY_LEN(overrides), &ret->over);
    if (status == 0)
        status =
            read_detail(c, b->routing_constraints, taints, ARRAY_LEN(taints), &ret->constraints);
    if (status == 0 && (is_below_zero(over->weight) || is_below_zero(over->temperature) ||
                        is_below_zero(over->credit) || is_below_zero(over->load_scale)))
        status = rest_error(c, 422,
                            "the body is not as expected: router_config_override must not be "
                            "negative");
    return status;
}
