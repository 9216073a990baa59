/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the store reports is kept as parsed entries; changes of one turn are answered by one rebuild
 * of the table (instances_build.c) at its end, and by the difference of old and new
 * (instances_diff.c). A table of 1,000 workers takes well under a millisecond.
 */
#include "router/discovery/instances.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "lib/base/digest.h"
#include "lib/base/log.h"
#include "lib/base/strmap.h"
#include "router/discovery/instances_inner.h"
#include "router/wire/plane_address.h"

static const struct log_target LG = {"dynamo_llm::discovery::watcher"};

struct instances {
    struct loop *loop;
    struct store *store;
    struct instances_conf conf;
    char *ns_filter;        /* NULL = all */
    bool ns_is_prefix;      /* what begins with ns_filter */
    struct strmap *entries; /* store key → struct entry */
    uint64_t next_seq;
    bool dirty, synced, up, freed;
    bool was_down;    /* at least once */
    uint64_t down_ms; /* since when */
    uint64_t up_ms;   /* back since */
    size_t n_lost;    /* entries that are kept */
    bool kept_told, stranger_told;
    struct timer *keep; /* until the next of them is given up */
    struct timer *down; /* until all are, as the store stays away */
    char *why;          /* it is down */
    struct instances_stats stats;
    pthread_mutex_t lock; /* of `table`, which other threads take references from */
    struct model_table *table;
};

/* --- entries ---------------------------------------------------------------------------------- */

static void entry_clear(struct entry *en)
{
    free(en->ns);
    free(en->component);
    free(en->endpoint);
    free(en->topic);
    free(en->address);
    en->card = model_card_unref(en->card);
}

static void entry_free(void *value)
{
    struct entry *en = value;

    entry_clear(en);
    free(en);
}

static void rebuild(void *arg);

static void mark_dirty(struct instances *ix)
{
    if (ix->dirty)
        return;
    ix->dirty = true;
    loop_defer(ix->loop, rebuild, ix);
}

/* Of an endpoint, the text that says how to reach it too. */
static char *address_of(const struct record *rec)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    enum plane_kind kind = rec->transport == TRANSPORT_NATS   ? PLANE_NATS
                           : rec->transport == TRANSPORT_HTTP ? PLANE_HTTP
                                                              : PLANE_TCP;

    if (rec->kind != RECORD_ENDPOINT)
        return str_dup(rec->address);
    plane_address_put(&text, kind, rec->address, rec->endpoint);
    return str_dup(buf_str(&text));
}

/* Where 1.x tells that a rank's missed events may be asked for. Others' metadata say nothing to us. */
static void source_fill(struct entry *en, const struct record *rec)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct source_metadata md;
    struct err e;

    if (source_metadata_parse(rec->metadata_json, &scratch, &md, &e) < 0 || !md.has_recovery)
        return;
    free(en->address);
    en->id = md.worker_id;
    en->dp_rank = md.dp_rank;
    en->transport = md.recovery.transport;
    en->address = address_of(&md.recovery);
}

static void entry_fill(struct entry *en, const struct record *rec, struct model_card *take_card)
{
    entry_clear(en);
    en->good = true;
    en->bad_logged = false;
    en->kind = rec->kind;
    en->transport = rec->transport;
    en->id = rec->instance_id;
    en->on_cpu = rec->on_cpu;
    en->ns = str_dup(rec->ns);
    en->component = str_dup(rec->component);
    en->endpoint = str_dup(rec->endpoint);
    en->topic = str_dup(rec->topic);
    en->address = address_of(rec);
    en->card = take_card;
    if (rec->kind == RECORD_EVENT_SOURCE)
        source_fill(en, rec);
}

static struct entry *entry_need(struct instances *ix, struct str key)
{
    struct entry *en = strmap_get(ix->entries, key);

    if (en)
        return en;
    en = xcalloc(1, sizeof(*en));
    en->seq = ix->next_seq++;
    (void)strmap_set(ix->entries, key, en);
    return en;
}

static bool ns_is_served(const struct instances *ix, const char *ns)
{
    if (!ix->ns_filter)
        return true;
    return ix->ns_is_prefix ? str_starts(str_from(ns), str_from(ix->ns_filter))
                            : strcmp(ns, ix->ns_filter) == 0;
}

/* 0, RECORD_UNKNOWN or what is wrong. */
static int entry_parse(struct instances *ix, struct entry *en, struct str json, struct err *e)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    AUTO(model_card_unref) struct model_card *card = NULL;
    struct record rec;
    int r;

    r = record_parse(json, &scratch, &rec, e);
    if (r == 0 && rec.kind == RECORD_MODEL)
        r = model_card_parse(&card, rec.card_json, e);
    if (r != 0)
        return r;
    entry_fill(en, &rec, TAKE(card));
    en->ignored = !ns_is_served(ix, en->ns);
    return 0;
}

static void on_put(void *arg, struct str key, struct str json)
{
    struct instances *ix = arg;
    struct entry *en = entry_need(ix, key);
    uint64_t text = digest_siphash13(json);
    struct err e;
    int r;

    if (en->lost) {
        en->lost = false;
        ix->n_lost--;
        ix->stats.restored++;
        mark_dirty(ix);
    }
    if (en->good && en->text == text)
        return;
    r = entry_parse(ix, en, json, &e);
    if (r == 0) {
        en->text = text;
        mark_dirty(ix);
    } else if (r == RECORD_UNKNOWN) {
        ix->stats.unknown_records++;
    } else {
        ix->stats.bad_records++;
        if (!en->bad_logged)
            log_warn(&LG, "bad discovery record", LOG_VIEW("key", key), LOG_STR("why", e.text),
                     LOG_BOOL("last_good_kept", en->good));
        en->bad_logged = true;
    }
}

/* --- last known good -------------------------------------------------------------------------- */

static uint64_t deadline_of(const struct instances *ix, const struct entry *en)
{
    return MAX(en->lost_ms, ix->up_ms) + ix->conf.keep_ms;
}

/* Gives up what has been kept for long enough, and waits for the next. */
static void keep_check(void *arg)
{
    struct instances *ix = arg;
    uint64_t now = loop_now_ms(ix->loop), next = UINT64_MAX;
    struct str key;
    void *value;

    timer_stop(ix->keep);
    if (!ix->up || !ix->n_lost)
        return; /* it goes on when the store is back */
    for (size_t at = 0; strmap_next(ix->entries, &at, &key, &value);) {
        struct entry *en = value;

        if (!en->lost)
            continue;
        if (deadline_of(ix, en) > now) {
            next = MIN(next, deadline_of(ix, en));
            continue;
        }
        entry_free(strmap_remove(ix->entries, key));
        ix->n_lost--;
        ix->stats.dropped++;
        mark_dirty(ix);
    }
    if (ix->n_lost)
        timer_start(ix->keep, next - now);
}

static bool is_doubtful(const struct instances *ix, enum store_end how)
{
    if (how == STORE_END_TOLD || !ix->conf.keep_ms)
        return false;
    return how == STORE_END_DOUBTFUL || !ix->up ||
           (ix->was_down && loop_now_ms(ix->loop) < ix->up_ms + ix->conf.keep_ms);
}

static void on_gone(void *arg, struct str key, enum store_end how)
{
    struct instances *ix = arg;
    struct entry *en = strmap_get(ix->entries, key);

    if (!en)
        return;
    if (en->good && is_doubtful(ix, how)) {
        ix->n_lost += !en->lost;
        en->lost = true;
        en->lost_ms = loop_now_ms(ix->loop);
        if (ix->up && !timer_active(ix->keep))
            timer_start(ix->keep, ix->conf.keep_ms);
    } else {
        ix->n_lost -= en->lost;
        entry_free(strmap_remove(ix->entries, key));
    }
    mark_dirty(ix);
}

/* One line when workers begin to be kept, and one when none is any more. */
static void kept_tell(struct instances *ix)
{
    if (ix->stats.kept && !ix->kept_told)
        log_warn(&LG, "the store lost workers that may be healthy, keeping them",
                 LOG_U64("kept", ix->stats.kept), LOG_U64("workers", ix->stats.workers),
                 LOG_U64("keep_s", ix->conf.keep_ms / 1000));
    else if (!ix->stats.kept && ix->kept_told)
        log_info(&LG, "no worker is kept any more", LOG_U64("workers", ix->stats.workers),
                 LOG_U64("records_restored", ix->stats.restored),
                 LOG_U64("records_dropped", ix->stats.dropped));
    ix->kept_told = ix->stats.kept > 0;
}

static void on_synced(void *arg)
{
    struct instances *ix = arg;

    ix->synced = true;
    mark_dirty(ix);
}

/* The store has been away for too long: nobody is served, and all is as it was when it is back. */
static void on_down(void *arg)
{
    struct instances *ix = arg;

    ix->stats.given_up = true;
    log_warn(&LG, "discovery is down for too long, giving its workers up",
             LOG_U64("workers", ix->stats.workers), LOG_U64("after_ms", ix->conf.keep_down_ms));
    mark_dirty(ix);
}

static void down_watch(struct instances *ix, bool up)
{
    if (!up && ix->up && ix->conf.keep_down_ms)
        timer_start(ix->down, ix->conf.keep_down_ms);
    if (!up)
        return;
    timer_stop(ix->down);
    if (ix->stats.given_up)
        mark_dirty(ix);
    ix->stats.given_up = false;
}

static void on_state(void *arg, bool up, const char *why)
{
    struct instances *ix = arg;

    if (ix->up != up)
        log_at_(up ? LOG_INFO : LOG_WARN, &LG,
                up ? "discovery is up" : "discovery is down, keeping what is known",
                LOG_STR("why", why ? why : ""));
    if (ix->up && !up) {
        ix->was_down = ix->synced; /* before that there is nothing to lose */
        ix->down_ms = loop_now_ms(ix->loop);
        free(ix->why);
        ix->why = xstrdup(why ? why : "");
    } else if (!ix->up && up) {
        ix->up_ms = loop_now_ms(ix->loop);
    }
    down_watch(ix, up);
    ix->up = up;
    keep_check(ix);
}

/* --- the table in force ----------------------------------------------------------------------- */

static struct model_table *table_swap(struct instances *ix, struct model_table *take_table)
{
    struct model_table *old;

    (void)pthread_mutex_lock(&ix->lock);
    old = ix->table;
    ix->table = take_table;
    (void)pthread_mutex_unlock(&ix->lock);
    return old;
}

static void refusals_log(struct instances *ix)
{
    struct str key;
    void *value;

    for (size_t at = 0; strmap_next(ix->entries, &at, &key, &value);) {
        struct entry *en = value;

        if (!en->refused || en->refused_logged)
            continue;
        en->refused_logged = true;
        ix->stats.refused_cards++;
        log_error(&LG, "model card differs from that of the served model, ignored",
                  LOG_STR("model", en->card->display_name), LOG_U64("instance_id", en->id),
                  LOG_STR("mdc_sum", en->card->mdc_sum));
    }
}

static void stats_count(struct instances *ix, const struct model_table *t)
{
    ix->stats.records = strmap_len(ix->entries);
    ix->stats.models = t->n_models;
    ix->stats.workers = ix->stats.kept = 0;
    for (size_t i = 0; i < t->n_models; i++) {
        ix->stats.workers += t->models[i].n_workers;
        for (size_t k = 0; k < t->models[i].n_workers; k++)
            ix->stats.kept += t->models[i].workers[k].kept;
    }
}

/* --- notes ------------------------------------------------------------------------------------ */

/* Another namespace's card, when there is none of ours: somebody has set the wrong one. */
static const struct entry *stranger(const struct instances *ix)
{
    struct str key;
    void *value;

    if (!ix->synced || ix->stats.models)
        return NULL;
    for (size_t at = 0; strmap_next(ix->entries, &at, &key, &value);) {
        const struct entry *en = value;

        if (en->good && en->ignored && en->kind == RECORD_MODEL)
            return en;
    }
    return NULL;
}

static void stranger_tell(struct instances *ix)
{
    const struct entry *en = stranger(ix);

    if (en && !ix->stranger_told)
        log_warn(&LG, "workers are there, but of another namespace: is DYN_NAMESPACE the same?",
                 LOG_STR("theirs", en->ns), LOG_STR("served", ix->ns_filter),
                 LOG_BOOL("served_is_prefix", ix->ns_is_prefix));
    ix->stranger_told = en != NULL;
}

void instances_notes(const struct instances *ix, void (*note)(void *arg, const char *text),
                     void *arg)
{
    const struct entry *other = stranger(ix);
    struct instances_stats st = instances_stats(ix);

    if (!ix->up) {
        AUTO(mem_free)
        char *text = xasprintf(
            "discovery: the store is not reachable; %s the workers that were known %llu s ago (%s)",
            st.given_up ? "no longer serving" : "serving",
            (unsigned long long)(st.view_age_ms / 1000), ix->why);

        note(arg, text);
    }
    if (ix->stats.kept) {
        AUTO(mem_free)
        char *text = xasprintf(
            "discovery: the store lost %zu of %zu workers; they are kept for up to %llu s", st.kept,
            st.workers, (unsigned long long)(ix->conf.keep_ms / 1000));

        note(arg, text);
    }
    if (other) {
        AUTO(mem_free)
        char *text =
            xasprintf("discovery: workers are registered in namespace %s, but %s%s is served: is "
                      "DYN_NAMESPACE the same?",
                      other->ns, ix->ns_filter, ix->ns_is_prefix ? "*" : "");

        note(arg, text);
    }
    store_notes(ix->store, note, arg);
}

static void rebuild(void *arg)
{
    struct instances *ix = arg;
    AUTO(model_table_unref) struct model_table *old = NULL;
    AUTO(model_table_unref) struct model_table *now = NULL;
    struct strmap *none;

    if (ix->freed)
        return;
    ix->dirty = false;
    none = strmap_new();
    now = model_table_build(ix->stats.given_up ? none : ix->entries, ix->table->version + 1);
    (void)strmap_free(none);
    refusals_log(ix);
    stats_count(ix, now);
    kept_tell(ix);
    stranger_tell(ix);
    old = table_swap(ix, model_table_ref(now));
    if (ix->conf.event)
        model_table_diff(old, now, ix->conf.event, ix->conf.arg);
    if (ix->conf.changed)
        ix->conf.changed(ix->conf.arg, now);
}

struct model_table *instances_table(const struct instances *ix)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&ix->lock;
    struct model_table *t;

    (void)pthread_mutex_lock(lock);
    t = model_table_ref(ix->table);
    (void)pthread_mutex_unlock(lock);
    return t;
}

/* --- life ------------------------------------------------------------------------------------- */

int instances_new(struct instances **ret, struct loop *l, struct store *store,
                  const struct instances_conf *conf, struct err *e)
{
    static const struct store_watcher watcher = {on_put, on_gone, on_synced, on_state};
    AUTO(instances_free) struct instances *ix = xcalloc(1, sizeof(*ix));
    const char *filter;
    int r;

    ix->loop = l;
    ix->store = store;
    ix->conf = *conf;
    ix->up = true;
    ix->ns_is_prefix = conf->ns_prefix && *conf->ns_prefix;
    filter = ix->ns_is_prefix ? conf->ns_prefix : conf->ns_filter;
    /* The global namespace as a filter means every namespace. */
    if (filter && *filter && strcmp(filter, "dynamo") != 0)
        ix->ns_filter = xstrdup(filter);
    ix->conf.ns_filter = ix->conf.ns_prefix = NULL;
    ix->keep = timer_new(l, keep_check, ix);
    ix->down = timer_new(l, on_down, ix);
    ix->entries = strmap_new();
    ix->table = model_table_build(ix->entries, 0);
    (void)pthread_mutex_init(&ix->lock, NULL);
    r = store_watch(store, &watcher, ix, e);
    if (r < 0)
        return r;
    *ret = TAKE(ix);
    return 0;
}

static void instances_drop(void *arg)
{
    struct instances *ix = arg;

    (void)strmap_free_with(ix->entries, entry_free);
    (void)model_table_unref(ix->table);
    (void)pthread_mutex_destroy(&ix->lock);
    free(ix->ns_filter);
    free(ix->why);
    free(ix);
}

struct instances *instances_free(struct instances *ix)
{
    if (!ix)
        return NULL;
    ix->freed = true;
    ix->keep = timer_free(ix->keep);
    ix->down = timer_free(ix->down);
    store_unwatch(ix->store);
    /* Behind a rebuild that may be due this turn. */
    loop_defer(ix->loop, instances_drop, ix);
    return NULL;
}

bool instances_synced(const struct instances *ix)
{
    return ix->synced;
}

bool instances_store_up(const struct instances *ix)
{
    return ix->up;
}

struct instances_stats instances_stats(const struct instances *ix)
{
    struct store_stats store = store_stats(ix->store);
    struct instances_stats st = ix->stats;

    st.beyond_limit = store.dropped;
    st.publish_failures = store.publish_failures;
    if (!ix->up) {
        st.kept = st.workers;
        st.view_age_ms = loop_now_ms(ix->loop) - ix->down_ms;
    }
    return st;
}
