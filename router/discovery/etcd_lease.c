/* SPDX-License-Identifier: Apache-2.0 */
#include "router/discovery/etcd_lease.h"

#include <errno.h>

#include "lib/base/log.h"
#include "lib/base/strmap.h"
#include "router/discovery/etcd_client.h"
#include "router/discovery/etcd_wire.h"

static const struct log_target LG = {"dynamo_runtime::transports::etcd::lease"};

enum { TTL_S = 10, RENEWS_PER_TTL = 3, RETRY_MIN_MS = 100, RETRY_MAX_MS = 3000 };

/* A key of ours. */
struct own {
    char *json; /* NULL = to be deleted */
    bool written;
};

enum step { STEP_NONE, STEP_GRANT, STEP_PUT, STEP_DELETE, STEP_REVOKE };

struct etcd_lease {
    struct loop *loop;
    struct etcd_client *client;
    uint64_t id, ttl_s;
    bool held;
    struct strmap *own; /* key → struct own */
    size_t n_wanted;    /* of them, those with content */
    enum step step;     /* under way with `call` */
    struct etcd_call *call;
    char *key;              /* of that step */
    bool changed_meanwhile; /* that key */
    struct etcd_call *renewal;
    size_t looked_at; /* own keys that were looked for, one with each renewal */
    struct timer *renew, *retry;
    uint64_t retry_ms, failures;
    void (*published)(void *arg, int r, const char *why);
    void *arg;
};

static void own_free(void *value)
{
    struct own *o = value;

    free(o->json);
    free(o);
}

static void next_step(struct etcd_lease *ls);

/* --- steps ------------------------------------------------------------------------------------ */

static void lease_lost(struct etcd_lease *ls, const char *why)
{
    struct str key;
    void *value;

    if (!ls->held)
        return;
    ls->held = false;
    timer_stop(ls->renew);
    log_warn(&LG, "lease lost, registering anew", LOG_U64("lease", ls->id), LOG_STR("why", why));
    for (size_t at = 0; strmap_next(ls->own, &at, &key, &value);)
        ((struct own *)value)->written = false;
    next_step(ls);
}

static void step_failed(struct etcd_lease *ls, int r, const char *why)
{
    ls->failures++;
    ls->retry_ms = MIN(MAX(2 * ls->retry_ms, (uint64_t)RETRY_MIN_MS), (uint64_t)RETRY_MAX_MS);
    timer_start(ls->retry, ls->retry_ms);
    if (r > 0)
        r = -EPROTO; /* refused in words */
    ls->published(ls->arg, r, why);
}

static void granted(struct etcd_lease *ls)
{
    ls->held = true;
    timer_start_repeat(ls->renew, ls->ttl_s * 1000 / RENEWS_PER_TTL);
}

static void key_done(struct etcd_lease *ls, enum step step)
{
    struct own *o = strmap_get(ls->own, str_from(ls->key));

    if (!o || ls->changed_meanwhile || !ls->held)
        return;
    o->written = true;
    if (!o->json && step == STEP_DELETE)
        own_free(strmap_remove(ls->own, str_from(ls->key)));
}

static void revoked(struct etcd_lease *ls)
{
    struct str key;
    void *value;

    ls->held = false;
    timer_stop(ls->renew);
    for (size_t at = 0; strmap_next(ls->own, &at, &key, &value);) {
        struct own *o = value;

        o->written = false;
        if (!o->json)
            own_free(strmap_remove(ls->own, key));
    }
}

static void step_done(struct etcd_lease *ls, enum step step)
{
    ls->retry_ms = 0;
    if (step == STEP_GRANT)
        granted(ls);
    else if (step == STEP_REVOKE)
        revoked(ls);
    else
        key_done(ls, step);
    if (step == STEP_PUT)
        ls->published(ls->arg, 0, "");
}

static void on_step(void *arg, int r, struct str body, const char *why)
{
    struct etcd_lease *ls = arg;
    enum step step = ls->step;

    (void)body;
    ls->call = NULL;
    ls->step = STEP_NONE;
    /* Granted by a call whose answer was lost; gone before it was revoked. */
    if ((step == STEP_GRANT && r == ETCD_FAILED_PRECONDITION) ||
        (step == STEP_REVOKE && r == ETCD_NOT_FOUND))
        r = 0;
    if (r == 0)
        step_done(ls, step);
    else if (step == STEP_PUT && r == ETCD_NOT_FOUND)
        lease_lost(ls, why);
    else
        step_failed(ls, r, why);
    ls->key = mem_free(ls->key);
    next_step(ls);
}

static void step_start(struct etcd_lease *ls, enum step step, const char *path, struct buf *body)
{
    ls->step = step;
    ls->changed_meanwhile = false;
    ls->call = etcd_call_start(
        ls->client,
        &(struct etcd_call_spec){.path = path, .body = buf_str(body), .done = on_step, .arg = ls});
}

static void key_step(struct etcd_lease *ls, struct str key, const struct own *o)
{
    AUTO(buf_done) struct buf body = BUF_NULL;

    ls->key = str_dup(key);
    if (o->json) {
        etcd_put_put(&body, key, str_from(o->json), ls->id);
        step_start(ls, STEP_PUT, "/v3/kv/put", &body);
    } else {
        etcd_put_delete(&body, key);
        step_start(ls, STEP_DELETE, "/v3/kv/deleterange", &body);
    }
}

static void next_step(struct etcd_lease *ls)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct str key;
    void *value;

    if (ls->step != STEP_NONE || timer_active(ls->retry))
        return;
    if (ls->n_wanted && !ls->held) {
        etcd_put_grant(&body, ls->id, ls->ttl_s);
        step_start(ls, STEP_GRANT, "/v3/lease/grant", &body);
    } else if (ls->held && !ls->n_wanted) {
        etcd_put_lease(&body, ls->id);
        step_start(ls, STEP_REVOKE, "/v3/lease/revoke", &body);
    } else if (ls->held) {
        for (size_t at = 0; strmap_next(ls->own, &at, &key, &value);)
            if (!((struct own *)value)->written) {
                key_step(ls, key, value);
                return;
            }
    }
}

static void on_retry(void *arg)
{
    next_step(arg);
}

/* At the end of the turn: several records are published, or withdrawn, at once. */
static void next_step_later(struct etcd_lease *ls)
{
    if (ls->step == STEP_NONE && !timer_active(ls->retry))
        timer_start(ls->retry, 0);
}

/* --- renewal ---------------------------------------------------------------------------------- */

static void on_looked(void *arg, int r, struct str body, const char *why)
{
    struct etcd_lease *ls = arg;
    uint64_t n;
    struct err e;

    (void)why;
    ls->renewal = NULL;
    if (r == 0 && etcd_count_parse(body, &n, &e) == 0 && n == 0)
        lease_lost(ls, "somebody deleted a record of ours");
}

/* One key that should be there, another one each time. */
static void look(struct etcd_lease *ls)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    size_t i = 0, which = ls->looked_at++ % MAX(strmap_len(ls->own), (size_t)1);
    struct str key;
    void *value;

    for (size_t at = 0; strmap_next(ls->own, &at, &key, &value); i++) {
        struct own *o = value;

        if (i != which || !o->written || !o->json)
            continue;
        etcd_put_range(&body, key, key, 0, 0);
        ls->renewal = etcd_call_start(ls->client, &(struct etcd_call_spec){.path = "/v3/kv/range",
                                                                           .body = buf_str(&body),
                                                                           .done = on_looked,
                                                                           .arg = ls});
        return;
    }
}

static void on_renewed(void *arg, int r, struct str body, const char *why)
{
    struct etcd_lease *ls = arg;
    struct err e;
    uint64_t ttl;

    ls->renewal = NULL;
    if (r == 0 && (r = etcd_keepalive_parse(body, &ttl, &e)) < 0)
        why = e.text;
    if (r != 0) {
        ls->failures++;
        log_warn(&LG, "lease not renewed, trying again", LOG_U64("lease", ls->id),
                 LOG_STR("why", why));
    } else if (ttl == 0) {
        lease_lost(ls, "etcd does not know it any more");
    } else {
        look(ls);
    }
}

static void on_renew(void *arg)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct etcd_lease *ls = arg;

    if (ls->renewal)
        return;
    etcd_put_lease(&body, ls->id);
    ls->renewal = etcd_call_start(
        ls->client,
        &(struct etcd_call_spec){
            .path = "/v3/lease/keepalive", .body = buf_str(&body), .done = on_renewed, .arg = ls});
}

/* --- records ---------------------------------------------------------------------------------- */

static void key_put(struct buf *out, const struct record *rec)
{
    buf_printf(out, "%s/", record_bucket(rec->kind));
    record_key_put(out, rec);
}

static void key_changed(struct etcd_lease *ls, struct str key)
{
    if (ls->key && str_is(key, ls->key))
        ls->changed_meanwhile = true;
    next_step_later(ls);
}

int etcd_lease_publish(struct etcd_lease *ls, const struct record *rec, struct err *e)
{
    AUTO(buf_done) struct buf key = BUF_NULL;
    AUTO(buf_done) struct buf json = BUF_NULL;
    struct own *o;

    record_put(&json, rec, true);
    if (json.len > RECORD_BYTES_MAX)
        return err_set(e, -EMSGSIZE, "record of %zu bytes", json.len);
    key_put(&key, rec);
    o = strmap_get(ls->own, buf_str(&key));
    if (!o) {
        o = xcalloc(1, sizeof(*o));
        (void)strmap_set(ls->own, buf_str(&key), o);
    }
    ls->n_wanted += !o->json;
    free(o->json);
    o->json = buf_take_cstr(&json);
    o->written = false;
    key_changed(ls, buf_str(&key));
    return 0;
}

void etcd_lease_withdraw(struct etcd_lease *ls, const struct record *rec)
{
    AUTO(buf_done) struct buf key = BUF_NULL;
    struct own *o;

    key_put(&key, rec);
    o = strmap_get(ls->own, buf_str(&key));
    if (!o || !o->json)
        return;
    o->json = mem_free(o->json);
    o->written = false;
    ls->n_wanted--;
    key_changed(ls, buf_str(&key));
}

uint64_t etcd_lease_failures(const struct etcd_lease *ls)
{
    return ls->failures;
}

/* --- life ------------------------------------------------------------------------------------- */

struct etcd_lease *etcd_lease_new(struct loop *l, struct etcd_client *client, uint64_t id,
                                  uint64_t ttl_s,
                                  void (*published)(void *arg, int r, const char *why), void *arg)
{
    struct etcd_lease *ls = xcalloc(1, sizeof(*ls));

    ls->loop = l;
    ls->client = client;
    ls->id = id;
    ls->ttl_s = ttl_s ? ttl_s : TTL_S;
    ls->own = strmap_new();
    ls->renew = timer_new(l, on_renew, ls);
    ls->retry = timer_new(l, on_retry, ls);
    ls->published = published;
    ls->arg = arg;
    return ls;
}

struct etcd_lease *etcd_lease_free(struct etcd_lease *ls)
{
    AUTO(buf_done) struct buf body = BUF_NULL;

    if (!ls)
        return NULL;
    if (ls->held || ls->step == STEP_GRANT) {
        etcd_put_lease(&body, ls->id);
        etcd_client_last_call(ls->client, "/v3/lease/revoke", buf_str(&body));
    }
    (void)etcd_call_cancel(ls->call);
    (void)etcd_call_cancel(ls->renewal);
    ls->renew = timer_free(ls->renew);
    ls->retry = timer_free(ls->retry);
    (void)strmap_free_with(ls->own, own_free);
    free(ls->key);
    free(ls);
    return NULL;
}
