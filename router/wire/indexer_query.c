/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/indexer_query.h"

#include <errno.h>

#include "lib/base/err.h"
#include "lib/base/json_pull.h"
#include "lib/base/json_put.h"

static const char TOO_MANY[] = "too many of them";

void indexer_reader_done(struct indexer_reader *r)
{
    buf_done(&r->scratch);
    free(r->local);
    free(r->sequence);
    free(r->hits);
    *r = (struct indexer_reader){.n_hits = 0};
}

/* --- parts ------------------------------------------------------------------------------------ */

static void pull_hashes(struct json_pull *p, uint64_t **hashes, size_t *n, size_t *cap)
{
    if (!json_pull_array(p))
        return;
    while (json_pull_element(p)) {
        if (*n == INDEXER_BLOCKS_MAX) {
            json_pull_fail(p, TOO_MANY);
            return;
        }
        if (*n == *cap) {
            *cap = MAX(*cap * 2, (size_t)64);
            *hashes = xreallocarray(*hashes, *cap, sizeof(**hashes));
        }
        (*hashes)[*n] = 0;
        json_pull_u64(p, &(*hashes)[(*n)++]);
    }
}

static void pull_u32(struct json_pull *p, uint32_t *ret)
{
    uint64_t v = 0;

    if (json_pull_u64(p, &v) && v > UINT32_MAX)
        json_pull_fail(p, "a number is too large");
    *ret = (uint32_t)v;
}

static void pull_worker(struct json_pull *p, uint64_t *ret_id, uint32_t *ret_rank)
{
    bool has_id = false;
    struct str key;

    if (!json_pull_object(p)) {
        json_pull_fail(p, "no worker");
        return;
    }
    while (json_pull_key(p, &key)) {
        if (str_is(key, "worker_id"))
            has_id = json_pull_u64(p, ret_id);
        else if (str_is(key, "dp_rank"))
            pull_u32(p, ret_rank);
        else
            (void)json_pull_skip(p, NULL);
    }
    if (!has_id)
        json_pull_fail(p, "a worker has no worker_id");
}

/* The parser's error says which of its bounds was hit. */
static int end(struct json_pull *p, const char *what, struct err *e)
{
    int r = json_pull_end(p, e);

    if (r < 0)
        return err_wrap(e, p->error == TOO_MANY ? -EMSGSIZE : r, "%s", what);
    return 0;
}

/* Texts are decoded into scratch, which must not move under them. */
static void begin(struct indexer_reader *r, struct json_pull *p, struct str json)
{
    buf_clear(&r->scratch);
    (void)buf_reserve(&r->scratch, json.len);
    r->n_local = r->n_sequence = r->n_hits = 0;
    json_pull_init(p, json);
}

/* --- questions -------------------------------------------------------------------------------- */

int indexer_query_parse(struct indexer_reader *r, struct str json, struct indexer_query *ret,
                        struct err *e)
{
    struct indexer_query q = {.n_blocks = 0};
    bool has_model = false, has_blocks = false;
    struct json_pull p;
    struct str key;
    int x;

    begin(r, &p, json);
    if (json_pull_object(&p)) {
        while (json_pull_key(&p, &key)) {
            if (str_is(key, "model_name")) {
                has_model = json_pull_string(&p, &r->scratch, &q.model);
            } else if (str_is(key, "block_hashes") && !has_blocks) {
                pull_hashes(&p, &r->local, &r->n_local, &r->cap_local);
                has_blocks = true;
            } else if (str_is(key, "device_only")) {
                json_pull_bool(&p, &q.device_only);
            } else {
                (void)json_pull_skip(&p, NULL);
            }
        }
    }
    x = end(&p, "question to the index", e);
    if (x == 0 && (!has_model || !has_blocks))
        return err_set(e, -EINVAL, "question to the index: model_name or block_hashes is missing");
    if (x < 0)
        return x;
    q.local = r->local;
    q.n_blocks = r->n_local;
    *ret = q;
    return 0;
}

int indexer_decision_parse(struct indexer_reader *r, struct str json, struct indexer_decision *ret,
                           struct err *e)
{
    struct indexer_decision d = {.n_blocks = 0};
    bool has_model = false, has_worker = false;
    struct json_pull p;
    struct str key;
    int x;

    begin(r, &p, json);
    if (json_pull_object(&p)) {
        while (json_pull_key(&p, &key)) {
            if (str_is(key, "model_name")) {
                has_model = json_pull_string(&p, &r->scratch, &d.model);
            } else if (str_is(key, "worker")) {
                pull_worker(&p, &d.worker_id, &d.dp_rank);
                has_worker = true;
            } else if (str_is(key, "local_hashes")) {
                r->n_local = 0;
                pull_hashes(&p, &r->local, &r->n_local, &r->cap_local);
            } else if (str_is(key, "sequence_hashes")) {
                r->n_sequence = 0;
                pull_hashes(&p, &r->sequence, &r->n_sequence, &r->cap_sequence);
            } else {
                (void)json_pull_skip(&p, NULL);
            }
        }
    }
    x = end(&p, "routing decision", e);
    if (x == 0 && (!has_model || !has_worker))
        return err_set(e, -EINVAL, "routing decision: model_name or worker is missing");
    if (x == 0 && r->n_local != r->n_sequence)
        return err_set(e, -EINVAL, "routing decision: %zu local hashes, %zu of the sequence",
                       r->n_local, r->n_sequence);
    if (x < 0)
        return x;
    d.local = r->local;
    d.sequence = r->sequence;
    d.n_blocks = r->n_local;
    *ret = d;
    return 0;
}

/* --- answers ---------------------------------------------------------------------------------- */

/* [WORKER, blocks] */
static void pull_hit(struct json_pull *p, struct indexer_hit *h)
{
    size_t n = 0;

    if (!json_pull_array(p)) {
        json_pull_fail(p, "a hit is no pair");
        return;
    }
    for (; json_pull_element(p); n++) {
        if (n == 0)
            pull_worker(p, &h->worker_id, &h->dp_rank);
        else if (n == 1)
            pull_u32(p, &h->blocks);
        else
            (void)json_pull_skip(p, NULL);
    }
    if (n < 2)
        json_pull_fail(p, "a hit is no pair");
}

static void pull_hits(struct json_pull *p, struct indexer_reader *r, enum kv_tier tier)
{
    if (!json_pull_array(p))
        return;
    while (json_pull_element(p)) {
        struct indexer_hit hit = {.tier = tier};

        if (r->n_hits == INDEXER_HITS_MAX) {
            json_pull_fail(p, TOO_MANY);
            return;
        }
        pull_hit(p, &hit);
        if (r->n_hits == r->cap_hits) {
            r->cap_hits = MAX(r->cap_hits * 2, (size_t)16);
            r->hits = xreallocarray(r->hits, r->cap_hits, sizeof(*r->hits));
        }
        if (tier != KV_TIER_UNKNOWN)
            r->hits[r->n_hits++] = hit;
    }
}

/* The hits of an object that has them as @name. */
static void pull_member(struct json_pull *p, struct indexer_reader *r, const char *name,
                        enum kv_tier tier)
{
    struct str key;

    if (!json_pull_object(p))
        return;
    while (json_pull_key(p, &key)) {
        if (str_is(key, name))
            pull_hits(p, r, tier);
        else
            (void)json_pull_skip(p, NULL);
    }
}

/* [[TIER, {"hits": …}], …] */
static void pull_lower(struct json_pull *p, struct indexer_reader *r)
{
    if (!json_pull_array(p))
        return;
    while (json_pull_element(p)) {
        enum kv_tier tier = KV_TIER_UNKNOWN;
        struct str word;

        if (!json_pull_array(p)) {
            json_pull_fail(p, "a tier is no pair");
            return;
        }
        for (size_t n = 0; json_pull_element(p); n++) {
            if (n == 0 && json_pull_raw_string(p, &word))
                tier = kv_tier_of(word);
            else
                pull_member(p, r, "hits", tier);
        }
    }
}

static void pull_tiers(struct json_pull *p, struct indexer_reader *r)
{
    struct str key;

    if (!json_pull_object(p)) {
        json_pull_fail(p, "no scores");
        return;
    }
    while (json_pull_key(p, &key)) {
        if (str_is(key, "device"))
            pull_member(p, r, "scores", KV_TIER_DEVICE);
        else if (str_is(key, "lower_tier"))
            pull_lower(p, r);
        else
            (void)json_pull_skip(p, NULL);
    }
}

static void pull_variant(struct json_pull *p, struct indexer_reader *r, struct str name,
                         struct indexer_answer *a)
{
    if (str_is(name, "TieredScores")) {
        a->kind = INDEXER_ANSWER_HITS;
        pull_tiers(p, r);
    } else if (str_is(name, "Error")) {
        json_pull_string(p, &r->scratch, &a->error);
    } else {
        json_pull_fail(p, "an answer that is not known here");
    }
}

int indexer_answer_parse(struct indexer_reader *r, struct str json, struct indexer_answer *ret,
                         struct err *e)
{
    struct indexer_answer a = {.kind = INDEXER_ANSWER_ERROR};
    unsigned variants = 0;
    struct json_pull p;
    struct str name;
    int x;

    begin(r, &p, json);
    if (json_pull_peek(&p) == JSON_KIND_STRING) {
        variants = json_pull_raw_string(&p, &name);
        a.kind = INDEXER_ANSWER_RECORDED;
        if (variants && !str_is(name, "Recorded"))
            json_pull_fail(&p, "an answer that is not known here");
    } else if (json_pull_object(&p)) {
        for (; json_pull_key(&p, &name); variants++)
            pull_variant(&p, r, name, &a);
    }
    x = end(&p, "answer of the index", e);
    if (x == 0 && variants != 1)
        return err_set(e, -EINVAL, "answer of the index: %u variants instead of one", variants);
    if (x < 0)
        return x;
    a.hits = r->hits;
    a.n_hits = a.kind == INDEXER_ANSWER_HITS ? r->n_hits : 0;
    *ret = a;
    return 0;
}

/* --- writing ---------------------------------------------------------------------------------- */

static void put_model(struct json_put *j, struct str model)
{
    json_put_key(j, "model_name");
    json_put_str(j, model);
}

static void put_hashes(struct json_put *j, const char *key, const uint64_t *hashes, size_t n)
{
    json_put_key(j, key);
    json_put_array(j);
    for (size_t i = 0; i < n; i++)
        json_put_u64(j, hashes[i]);
    json_put_array_end(j);
}

static void put_worker(struct json_put *j, uint64_t worker_id, uint32_t dp_rank)
{
    json_put_object(j);
    json_put_key(j, "worker_id");
    json_put_u64(j, worker_id);
    json_put_key(j, "dp_rank");
    json_put_u64(j, dp_rank);
    json_put_object_end(j);
}

void indexer_query_put(struct buf *out, const struct indexer_query *q)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    put_model(&j, q->model);
    put_hashes(&j, "block_hashes", q->local, q->n_blocks);
    json_put_key(&j, "device_only");
    json_put_bool(&j, q->device_only);
    json_put_object_end(&j);
}

void indexer_decision_put(struct buf *out, const struct indexer_decision *d)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    put_model(&j, d->model);
    json_put_key(&j, "worker");
    put_worker(&j, d->worker_id, d->dp_rank);
    put_hashes(&j, "local_hashes", d->local, d->n_blocks);
    put_hashes(&j, "sequence_hashes", d->sequence, d->n_blocks);
    json_put_object_end(&j);
}

/* Those of the tier of hits[at], which stand together; returns where the next tier begins. */
static size_t put_hits(struct json_put *j, const struct indexer_answer *a, size_t at)
{
    enum kv_tier tier = at < a->n_hits ? a->hits[at].tier : KV_TIER_UNKNOWN;

    json_put_array(j);
    for (; at < a->n_hits && a->hits[at].tier == tier; at++) {
        json_put_array(j);
        put_worker(j, a->hits[at].worker_id, a->hits[at].dp_rank);
        json_put_u64(j, a->hits[at].blocks);
        json_put_array_end(j);
    }
    json_put_array_end(j);
    return at;
}

static void put_tiers(struct json_put *j, const struct indexer_answer *a)
{
    bool has_device = a->n_hits && a->hits[0].tier == KV_TIER_DEVICE;
    size_t at;

    json_put_object(j);
    json_put_key(j, "device");
    json_put_object(j);
    json_put_key(j, "scores");
    at = put_hits(j, a, has_device ? 0 : a->n_hits);
    json_put_key(j, "frequencies");
    json_put_raw(j, STR("[]"));
    json_put_object_end(j);
    json_put_key(j, "lower_tier");
    json_put_array(j);
    for (at = has_device ? at : 0; at < a->n_hits;) {
        json_put_array(j);
        json_put_cstr(j, kv_tier_word(a->hits[at].tier));
        json_put_object(j);
        json_put_key(j, "hits");
        at = put_hits(j, a, at);
        json_put_object_end(j);
        json_put_array_end(j);
    }
    json_put_array_end(j);
    json_put_object_end(j);
}

void indexer_answer_put(struct buf *out, const struct indexer_answer *a)
{
    struct json_put j = json_put_on(out);

    if (a->kind == INDEXER_ANSWER_RECORDED) {
        json_put_cstr(&j, "Recorded");
        return;
    }
    json_put_object(&j);
    if (a->kind == INDEXER_ANSWER_HITS) {
        json_put_key(&j, "TieredScores");
        put_tiers(&j, a);
    } else {
        json_put_key(&j, "Error");
        json_put_str(&j, a->error);
    }
    json_put_object_end(&j);
}
