/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every generation of the C interface asks of a picker: choosing for a chat, and the account.
 *
 * Any thread, several at a time; a call blocks for what the work takes. Codes are those of llm_capi.h.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "router/epp/picker.h"

enum call_for {
    CALL_PREFILL,
    CALL_DECODE,
    CALL_DECODE_ONLY, /* the prompt will have been computed elsewhere */
    CALL_PAIR,        /* picker_choose_pair() */
};

struct call_answer {
    uint32_t *tokens; /* the prompt */
    size_t n_tokens;
    char *salt; /* keeps its blocks apart from others', a NUL behind it; NULL = none */
    size_t salt_len;
    struct worker_rank worker;
    struct opt_u64 prefill; /* of CALL_PAIR */
};

/* @pods_json may be NULL. *@ret is written on QUERY_ROUTER_OK only; then its owner frees it. */
query_router_result_t call_route(struct picker *p, enum call_for what, const char *request_json,
                                 const char *pods_json, struct call_answer *ret);
void call_answer_done(struct call_answer *a);
DEFINE_CLEANUP_EMBEDDED(struct call_answer, call_answer_done)

struct call_booking {
    const uint32_t *tokens; /* may be NULL */
    size_t n_tokens;
    struct str salt;
    struct worker_rank worker;
};

/* QUERY_ROUTER_ERR_TIMEOUT when the loop has not come to it within @patience_ms: it will later. */
query_router_result_t call_book(struct picker *p, const char *id, const struct call_booking *b,
                                uint64_t patience_ms);
query_router_result_t call_prefilled(struct picker *p, const char *id, uint64_t patience_ms);
query_router_result_t call_end(struct picker *p, const char *id, uint64_t patience_ms);
