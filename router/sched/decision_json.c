/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/decision_json.h"

#include <errno.h>
#include <string.h>

#include "lib/base/err.h"
#include "lib/base/json_pull.h"
#include "lib/base/json_put.h"

enum { FORMAT_VERSION = 1 };

/* --- members that are plain numbers or texts: one table per struct, for both directions --------
 */

enum field_type { FIELD_U32, FIELD_U64, FIELD_KNOWN, FIELD_F64, FIELD_BOOL, FIELD_TEXT };

struct field {
    const char *name;
    enum field_type type;
    size_t offset, size;
};

/* KNOWN is a U64 whose DECISION_UNKNOWN stands for null, as NAN does in F64. */
#define FIELD(type, owner, member)                                                                 \
    {                                                                                              \
#member, FIELD_##type, offsetof(struct owner, member), sizeof(((struct owner *)0)->member) \
    }

static const struct field HEAD[] = {
    FIELD(U64, decision_record, seq),          FIELD(U64, decision_record, time_ms),
    FIELD(TEXT, decision_record, request_id),  FIELD(TEXT, decision_record, model),
    FIELD(TEXT, decision_record, worker_type), FIELD(U32, decision_record, attempt),
};
static const struct field CHOICE[] = {
    FIELD(BOOL, decision_record, pinned),
    FIELD(BOOL, decision_record, query_only),
    {"tied", FIELD_BOOL, offsetof(struct decision_record, pick.tied), sizeof(bool)},
    FIELD(U32, decision_record, isl_blocks),
    FIELD(F64, decision_record, margin),
    FIELD(KNOWN, decision_record, index_age_ms),
    FIELD(U64, decision_record, predicted_cached_tokens),
    FIELD(U32, decision_record, more_candidates),
    FIELD(U32, decision_record, more_rejected),
};
static const struct field PICK[] = {
    FIELD(U32, policy_pick, n),     FIELD(U32, policy_pick, at),
    FIELD(U32, policy_pick, other), FIELD(U32, policy_pick, pool),
    FIELD(U32, policy_pick, nth),   FIELD(F64, policy_pick, highest),
    FIELD(F64, policy_pick, sum),   FIELD(F64, policy_pick, before),
};
static const struct field INPUTS[] = {
    FIELD(U32, policy_inputs, block_size),
    FIELD(U32, policy_inputs, isl),
    FIELD(U64, policy_inputs, random),
    FIELD(U64, policy_inputs, turn),
    FIELD(F64, policy_inputs, mean_requests),
    FIELD(U64, policy_inputs, min_prefill_tokens),
    FIELD(U32, policy_inputs, min_requests),
    FIELD(U32, policy_inputs, max_requests),
    FIELD(F64, policy_inputs, most_cached),
    FIELD(U32, policy_inputs, cpus),
    FIELD(U32, policy_inputs, accelerators),
    FIELD(U64, policy_inputs, cpu_requests),
    FIELD(U64, policy_inputs, accelerator_requests),
    FIELD(U64, policy_inputs, accelerator_ratio),
    FIELD(F64, policy_inputs, seconds_per_token),
    FIELD(F64, policy_inputs, temperature),
    FIELD(F64, policy_inputs, overlap_weight),
    FIELD(F64, policy_inputs, overlap_credit),
    FIELD(F64, policy_inputs, credit_decay),
    FIELD(F64, policy_inputs, host_weight),
    FIELD(F64, policy_inputs, disk_weight),
    FIELD(F64, policy_inputs, shared_weight),
    FIELD(F64, policy_inputs, prefill_load_scale),
    FIELD(F64, policy_inputs, active_request_weight),
    {"cache_threshold", FIELD_F64, offsetof(struct policy_inputs, two_tier.cache_threshold),
     sizeof(double)},
    {"balance_abs_threshold", FIELD_U64,
     offsetof(struct policy_inputs, two_tier.balance_abs_threshold), sizeof(uint64_t)},
    {"balance_rel_threshold", FIELD_F64,
     offsetof(struct policy_inputs, two_tier.balance_rel_threshold), sizeof(double)},
    FIELD(BOOL, policy_inputs, track_prefill_tokens),
};
static const struct field SEEN[] = {
    FIELD(U32, route_candidate, overlap_blocks), FIELD(U32, route_candidate, host_blocks),
    FIELD(U32, route_candidate, disk_blocks),    FIELD(U32, route_candidate, new_blocks),
    FIELD(U32, route_candidate, requests),       FIELD(U64, route_candidate, tree_size),
    FIELD(U64, route_candidate, prefill_tokens), FIELD(U64, route_candidate, active_blocks),
    FIELD(U64, route_candidate, max_num_seqs),   FIELD(U64, route_candidate, total_kv_blocks),
    FIELD(U64, route_candidate, queued_tokens),  FIELD(F64, route_candidate, preference),
    FIELD(F64, route_candidate, confidence),     FIELD(F64, route_candidate, slowness),
    FIELD(F64, route_candidate, lifetime),       FIELD(BOOL, route_candidate, on_cpu),
    FIELD(U32, route_candidate, shared_blocks),
};
static const struct field WORKER[] = {
    FIELD(U64, worker_rank, worker_id),
    FIELD(U32, worker_rank, dp_rank),
};
static const struct field OUTCOME[] = {
    FIELD(KNOWN, decision_outcome, cached_tokens),
    FIELD(U64, decision_outcome, output_tokens),
    FIELD(F64, decision_outcome, ttft_ms),
    FIELD(F64, decision_outcome, duration_ms),
};
static const struct field SHADOW[] = {
    FIELD(F64, decision_shadow, pick_logit),
    FIELD(F64, decision_shadow, chosen_logit),
};

/* Whoever adds a member that a policy looks at has to add it above: replays would differ. */
_Static_assert(sizeof(struct policy_pick) == 48, "PICK names every member but tied");
_Static_assert(sizeof(struct policy_inputs) == 200, "INPUTS names every member");
_Static_assert(sizeof(struct route_candidate) == 128,
               "SEEN names every member but worker and slot");

static void put_field(struct json_put *j, const struct field *f, const void *owner)
{
    const void *at = (const char *)owner + f->offset;

    json_put_key(j, f->name);
    switch (f->type) {
    case FIELD_U32:
        json_put_u64(j, *(const uint32_t *)at);
        break;
    case FIELD_KNOWN:
        if (*(const uint64_t *)at == DECISION_UNKNOWN) {
            json_put_null(j);
            break;
        }
        __attribute__((fallthrough));
    case FIELD_U64:
        json_put_u64(j, *(const uint64_t *)at);
        break;
    case FIELD_F64:
        json_put_f64(j, *(const double *)at);
        break;
    case FIELD_BOOL:
        json_put_bool(j, *(const bool *)at);
        break;
    case FIELD_TEXT:
        json_put_cstr(j, at);
        break;
    }
}

static void put_fields(struct json_put *j, const struct field *fields, size_t n, const void *owner)
{
    for (size_t i = 0; i < n; i++)
        put_field(j, &fields[i], owner);
}
#define PUT_FIELDS(j, fields, owner) put_fields((j), (fields), ARRAY_LEN(fields), (owner))

static void pull_text(struct json_pull *p, char *out, size_t size)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct str text;

    if (!json_pull_string(p, &scratch, &text))
        return;
    if (text.len >= size) {
        json_pull_fail(p, "a text is too long");
        return;
    }
    if (text.len)
        memcpy(out, text.ptr, text.len);
    out[text.len] = '\0';
}

static void pull_field(struct json_pull *p, const struct field *f, void *owner)
{
    void *at = (char *)owner + f->offset;
    uint64_t u = 0;

    switch (f->type) {
    case FIELD_U32:
        if (json_pull_u64(p, &u) && u > UINT32_MAX)
            json_pull_fail(p, "a number is too large");
        *(uint32_t *)at = (uint32_t)u;
        break;
    case FIELD_KNOWN:
        if (json_pull_null(p)) {
            *(uint64_t *)at = DECISION_UNKNOWN;
            break;
        }
        __attribute__((fallthrough));
    case FIELD_U64:
        (void)json_pull_u64(p, at);
        break;
    case FIELD_F64:
        if (json_pull_null(p))
            *(double *)at = NAN;
        else
            (void)json_pull_f64(p, at);
        break;
    case FIELD_BOOL:
        (void)json_pull_bool(p, at);
        break;
    case FIELD_TEXT:
        pull_text(p, at, f->size);
        break;
    }
}

/* Whether @key is in the table; its value is then consumed. */
static bool pull_one(struct json_pull *p, struct str key, const struct field *fields, size_t n,
                     void *owner)
{
    for (size_t i = 0; i < n; i++) {
        if (str_is(key, fields[i].name)) {
            pull_field(p, &fields[i], owner);
            return true;
        }
    }
    return false;
}
#define PULL_ONE(p, key, fields, owner) pull_one((p), (key), (fields), ARRAY_LEN(fields), (owner))

/* --- writing -----------------------------------------------------------------------------------
 */

static void put_position(struct json_put *j, const char *key, const struct decision_record *r,
                         uint32_t at)
{
    json_put_key(j, key);
    if (at == DECISION_NONE) {
        json_put_null(j);
        return;
    }
    json_put_object(j);
    PUT_FIELDS(j, WORKER, &r->candidates[at].seen.worker);
    json_put_key(j, "at");
    json_put_u64(j, at);
    json_put_object_end(j);
}

static void put_candidate(struct json_put *j, const struct policy *policy,
                          const struct decision_candidate *c)
{
    json_put_object(j);
    PUT_FIELDS(j, WORKER, &c->seen.worker);
    PUT_FIELDS(j, SEEN, &c->seen);
    json_put_key(j, "logit");
    json_put_f64(j, c->score.logit);
    json_put_key(j, "terms");
    json_put_object(j);
    for (size_t i = 0; i < POLICY_TERMS_MAX && policy->terms[i]; i++) {
        json_put_key(j, policy->terms[i]);
        json_put_f64(j, c->score.terms[i]);
    }
    json_put_object_end(j);
    json_put_object_end(j);
}

static void put_rejection(struct json_put *j, const struct route_rejection *rejection)
{
    json_put_object(j);
    PUT_FIELDS(j, WORKER, &rejection->worker);
    json_put_key(j, "why");
    json_put_cstr(j, route_reject_word(rejection->why));
    json_put_object_end(j);
}

static void put_shadow(struct json_put *j, const struct decision_record *r,
                       const struct decision_shadow *s)
{
    const struct decision_candidate *chosen = decision_chosen(r);

    json_put_object(j);
    json_put_key(j, "policy");
    json_put_cstr(j, s->policy->name);
    PUT_FIELDS(j, WORKER, &s->pick);
    PUT_FIELDS(j, SHADOW, s);
    json_put_key(j, "agrees");
    json_put_bool(j, chosen && worker_rank_eq(chosen->seen.worker, s->pick));
    json_put_key(j, "regret");
    json_put_f64(j, s->chosen_logit - s->pick_logit);
    json_put_object_end(j);
}

static void put_outcome(struct json_put *j, const struct decision_outcome *o)
{
    json_put_key(j, "outcome");
    json_put_object(j);
    json_put_key(j, "ended");
    json_put_cstr(j, decision_end_word(o->ended));
    PUT_FIELDS(j, OUTCOME, o);
    json_put_object_end(j);
}

/* What it takes to check the pick where not all candidates are there. */
static void put_pick(struct json_put *j, const struct decision_record *r)
{
    put_position(j, "compared_to", r, r->other == r->chosen ? DECISION_NONE : r->other);
    json_put_key(j, "pick");
    json_put_object(j);
    PUT_FIELDS(j, PICK, &r->pick);
    json_put_object_end(j);
}

void decision_record_put_json(struct buf *out, const struct decision_record *r)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    json_put_key(&j, "v");
    json_put_u64(&j, FORMAT_VERSION);
    PUT_FIELDS(&j, HEAD, r);
    json_put_key(&j, "result");
    json_put_cstr(&j, decision_result_word(r->result));
    json_put_key(&j, "mode");
    json_put_cstr(&j, ROUTE_MODE_WORDS[r->mode]);
    json_put_key(&j, "policy");
    json_put_cstr(&j, r->policy->name);
    json_put_key(&j, "inputs");
    json_put_object(&j);
    PUT_FIELDS(&j, INPUTS, &r->inputs);
    json_put_object_end(&j);
    put_position(&j, "chosen", r, r->chosen);
    put_position(&j, "runner_up", r, r->runner_up);
    if (r->more_candidates)
        put_pick(&j, r);
    PUT_FIELDS(&j, CHOICE, r);
    if (r->index != DECISION_INDEX_OWN) {
        json_put_key(&j, "index");
        json_put_cstr(&j, decision_index_word(r->index));
    }
    put_outcome(&j, &r->outcome);
    json_put_key(&j, "candidates");
    json_put_array(&j);
    for (uint32_t i = 0; i < r->n_candidates; i++)
        put_candidate(&j, r->policy, &r->candidates[i]);
    json_put_array_end(&j);
    json_put_key(&j, "rejected");
    json_put_array(&j);
    for (uint32_t i = 0; i < r->n_rejected; i++)
        put_rejection(&j, &r->rejected[i]);
    json_put_array_end(&j);
    json_put_key(&j, "shadows");
    json_put_array(&j);
    for (uint32_t i = 0; i < r->n_shadows; i++)
        put_shadow(&j, r, &r->shadows[i]);
    json_put_array_end(&j);
    json_put_object_end(&j);
}

/* --- reading -----------------------------------------------------------------------------------
 */

/* Index of the next string in a list of @n words (@word(i) gives them), or an error. */
static size_t pull_word(struct json_pull *p, const char *(*word)(size_t), size_t n,
                        const char *what)
{
    struct str text;

    if (!json_pull_raw_string(p, &text))
        return 0;
    for (size_t i = 0; i < n; i++)
        if (str_is(text, word(i)))
            return i;
    json_pull_fail(p, what);
    return 0;
}

static const char *mode_word(size_t i)
{
    return ROUTE_MODE_WORDS[i];
}

static const char *result_word(size_t i)
{
    return decision_result_word((int)i);
}

static const char *end_word(size_t i)
{
    return decision_end_word((enum decision_end)i);
}

static const char *index_word(size_t i)
{
    return decision_index_word((enum decision_index)i);
}

static const char *reject_word(size_t i)
{
    return route_reject_word((enum route_reject)i);
}

static const struct policy *pull_policy(struct json_pull *p)
{
    const struct policy *policy = NULL;
    struct str name;

    if (json_pull_raw_string(p, &name)) {
        policy = policy_find(name);
        if (!policy)
            json_pull_fail(p, "no policy of this name is known");
    }
    return policy;
}

static uint32_t pull_position(struct json_pull *p)
{
    uint64_t at = DECISION_NONE;
    struct str key;

    if (json_pull_null(p) || !json_pull_object(p))
        return DECISION_NONE;
    while (json_pull_key(p, &key)) {
        if (str_is(key, "at"))
            (void)json_pull_u64(p, &at);
        else
            (void)json_pull_skip(p, NULL);
    }
    if (at >= DECISION_CANDIDATES_MAX)
        json_pull_fail(p, "no such candidate");
    return (uint32_t)at;
}

/* A member that is not in the table; false when it is not known at all. */
typedef bool (*pull_more_fn)(struct json_pull *p, struct str key, void *arg);

static void pull_object(struct json_pull *p, const struct field *fields, size_t n, void *owner,
                        pull_more_fn more, void *arg)
{
    struct str key;

    if (!json_pull_object(p))
        return;
    while (json_pull_key(p, &key))
        if (!pull_one(p, key, fields, n, owner) && !(more && more(p, key, arg)))
            (void)json_pull_skip(p, NULL);
}
#define PULL_OBJECT(p, fields, owner, more, arg)                                                   \
    pull_object((p), (fields), ARRAY_LEN(fields), (owner), (more), (arg))

static bool more_of_outcome(struct json_pull *p, struct str key, void *arg)
{
    struct decision_outcome *o = arg;

    if (!str_is(key, "ended"))
        return false;
    o->ended = (enum decision_end)pull_word(p, end_word, DECISION_NOT_SENT + 1,
                                            "no such end of a request");
    return true;
}

/* The names of terms belong to the policy, which may come later in the line: kept in order. */
static void pull_terms(struct json_pull *p, struct route_score *score)
{
    struct str key;
    size_t n = 0;

    if (!json_pull_object(p))
        return;
    while (json_pull_key(p, &key)) {
        if (n == POLICY_TERMS_MAX) {
            json_pull_fail(p, "too many terms");
            return;
        }
        (void)json_pull_f64(p, &score->terms[n++]);
    }
}

static bool more_of_candidate(struct json_pull *p, struct str key, void *arg)
{
    struct decision_candidate *c = arg;

    if (str_is(key, "logit"))
        (void)json_pull_f64(p, &c->score.logit);
    else if (str_is(key, "terms"))
        pull_terms(p, &c->score);
    else
        return PULL_ONE(p, key, WORKER, &c->seen.worker);
    return true;
}

static void pull_candidate(struct json_pull *p, struct decision_candidate *c, uint32_t at)
{
    *c = (struct decision_candidate){.seen.slot = at};
    PULL_OBJECT(p, SEEN, &c->seen, more_of_candidate, c);
}

static bool more_of_rejection(struct json_pull *p, struct str key, void *arg)
{
    struct route_rejection *rejection = arg;

    if (!str_is(key, "why"))
        return false;
    rejection->why = (enum route_reject)pull_word(p, reject_word, ROUTE_REJECT_SESSION + 1,
                                                  "no such reason of a rejection");
    return true;
}

static void pull_rejection(struct json_pull *p, struct route_rejection *rejection)
{
    *rejection = (struct route_rejection){.why = ROUTE_REJECT_FAILED};
    PULL_OBJECT(p, WORKER, &rejection->worker, more_of_rejection, rejection);
}

static bool more_of_shadow(struct json_pull *p, struct str key, void *arg)
{
    struct decision_shadow *s = arg;

    if (!str_is(key, "policy"))
        return PULL_ONE(p, key, WORKER, &s->pick);
    s->policy = pull_policy(p);
    return true;
}

static void pull_shadow(struct json_pull *p, struct decision_shadow *s)
{
    *s = (struct decision_shadow){.policy = NULL};
    PULL_OBJECT(p, SHADOW, s, more_of_shadow, s);
    if (!s->policy)
        json_pull_fail(p, "a shadow without policy");
}

/* Enters the array's next element while there is room for it. */
static bool next_of(struct json_pull *p, uint32_t n, uint32_t max)
{
    if (!json_pull_element(p))
        return false;
    if (n == max)
        json_pull_fail(p, "an array is too long");
    return n < max;
}

static void pull_arrays(struct json_pull *p, struct str key, struct decision_record *r)
{
    if (str_is(key, "candidates")) {
        if (json_pull_array(p))
            for (r->n_candidates = 0; next_of(p, r->n_candidates, DECISION_CANDIDATES_MAX);
                 r->n_candidates++)
                pull_candidate(p, &r->candidates[r->n_candidates], r->n_candidates);
    } else if (str_is(key, "rejected")) {
        if (json_pull_array(p))
            for (r->n_rejected = 0; next_of(p, r->n_rejected, DECISION_REJECTED_MAX);
                 r->n_rejected++)
                pull_rejection(p, &r->rejected[r->n_rejected]);
    } else if (str_is(key, "shadows")) {
        if (json_pull_array(p))
            for (r->n_shadows = 0; next_of(p, r->n_shadows, DECISION_SHADOWS_MAX); r->n_shadows++)
                pull_shadow(p, &r->shadows[r->n_shadows]);
    } else {
        (void)json_pull_skip(p, NULL);
    }
}

static void pull_member(struct json_pull *p, struct str key, struct decision_record *r,
                        uint64_t *version)
{
    if (PULL_ONE(p, key, HEAD, r) || PULL_ONE(p, key, CHOICE, r))
        return;
    if (str_is(key, "v"))
        (void)json_pull_u64(p, version);
    else if (str_is(key, "result"))
        r->result = (int)pull_word(p, result_word, ROUTE_RESULTS, "no such result");
    else if (str_is(key, "mode"))
        r->mode = (enum route_mode)pull_word(p, mode_word, ROUTE_KV + 1, "no such mode");
    else if (str_is(key, "index"))
        r->index =
            (enum decision_index)pull_word(p, index_word, DECISION_INDEX_LOST + 1, "no such index");
    else if (str_is(key, "policy"))
        r->policy = pull_policy(p);
    else if (str_is(key, "inputs"))
        PULL_OBJECT(p, INPUTS, &r->inputs, NULL, NULL);
    else if (str_is(key, "pick"))
        PULL_OBJECT(p, PICK, &r->pick, NULL, NULL);
    else if (str_is(key, "chosen"))
        r->chosen = pull_position(p);
    else if (str_is(key, "runner_up"))
        r->runner_up = pull_position(p);
    else if (str_is(key, "compared_to"))
        r->other = pull_position(p);
    else if (str_is(key, "outcome"))
        PULL_OBJECT(p, OUTCOME, &r->outcome, more_of_outcome, &r->outcome);
    else
        pull_arrays(p, key, r);
}

static int check(const struct decision_record *r, uint64_t version, struct err *e)
{
    if (version != FORMAT_VERSION)
        return err_set(e, -EINVAL, "no decision record of version %d", FORMAT_VERSION);
    if (!r->policy)
        return err_set(e, -EINVAL, "the policy is missing");
    if (r->inputs.block_size == 0 || r->inputs.isl == 0)
        return err_set(e, -EINVAL, "inputs.block_size and inputs.isl must be 1 or more");
    if ((r->result == 0) != (r->chosen != DECISION_NONE))
        return err_set(e, -EINVAL, "result and chosen contradict each other");
    if (r->chosen != DECISION_NONE && r->chosen >= r->n_candidates)
        return err_set(e, -EINVAL, "chosen is none of the candidates");
    if (r->runner_up != DECISION_NONE &&
        (r->runner_up >= r->n_candidates || r->runner_up == r->chosen))
        return err_set(e, -EINVAL, "runner_up is none of the other candidates");
    if (r->other != DECISION_NONE && r->other >= r->n_candidates)
        return err_set(e, -EINVAL, "compared_to is none of the candidates");
    return 0;
}

int decision_record_parse(struct str line, struct decision_record *ret, struct err *e)
{
    struct json_pull p;
    struct str key;
    uint64_t version = 0;
    int r;

    if (line.len > DECISION_LINE_MAX)
        return err_set(e, -EINVAL, "a line of %zu bytes", line.len);
    *ret = (struct decision_record){
        .chosen = DECISION_NONE,
        .other = DECISION_NONE,
        .runner_up = DECISION_NONE,
        .margin = NAN,
        .index_age_ms = DECISION_UNKNOWN,
        .outcome = {.cached_tokens = DECISION_UNKNOWN, .ttft_ms = NAN, .duration_ms = NAN}};
    json_pull_init(&p, line);
    if (json_pull_object(&p))
        while (json_pull_key(&p, &key))
            pull_member(&p, key, ret, &version);
    r = json_pull_end(&p, e);
    if (r == 0)
        r = check(ret, version, e);
    if (r == 0 && ret->other == DECISION_NONE)
        ret->other = ret->chosen;
    return r;
}
