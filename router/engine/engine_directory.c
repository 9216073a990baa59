/* SPDX-License-Identifier: Apache-2.0 */
#include "router/engine/engine_directory.h"

#include <string.h>

#include "lib/base/json_tree.h"
#include "lib/base/list.h"
#include "lib/base/log.h"
#include "lib/base/strmap.h"
#include "lib/kube/kube_kinds.h"
#include "lib/kube/kube_watch.h"
#include "router/discovery/records.h"
#include "router/engine/engine_card.h"
#include "router/engine/engine_probe.h"
#include "router/engine/engine_slice.h"
#include "router/engine/stock_engine.h"

static const struct log_target LG = {"commutator::engine"};

enum { BLOCK_SIZE = 16 }; /* of an engine that does not say: vLLM's own */
#define COMPONENT "engine"
#define ENDPOINT "openai"

/* A model, while an engine serves it. */
struct served {
    struct served_model m; /* without its workers */
    size_t n_members;
};

/* A model on an engine. */
struct member {
    struct list link;
    struct served *model;
    struct worker worker;
    struct stock_engine facts;
};

struct engine {
    struct list link;
    struct engine_directory *directory;
    char *name;
    uint64_t id;
    struct engine_spec spec;
    struct engine_probe *probe;
    struct join *joining; /* cards are being made */
    struct list members;
    bool up, shares_host;
    uint32_t learned_block_size; /* 0 = none */
};

struct engine_directory {
    struct engine_directory_conf conf;
    struct list engines;
    size_t n_engines;
    struct strmap *models;      /* name -> struct served */
    struct engine_wants listed; /* of the configuration */
    struct strmap *of_slices;   /* slice name -> struct engine_wants */
    struct kube_watcher *watcher;
    struct kube_watch *slices;
};

/* What a pool thread makes cards of: all models of an engine. */
struct join {
    struct engine *engine; /* NULL: gone meanwhile, or another than it was */
    char *model_path, *model_root, *name;
    struct engine_models models;
    struct engine_found found; /* strings, models and sample are not its own */
    uint32_t sample[ENGINE_SAMPLE_MAX];
    char *events, *replay;
    struct model_card *cards[ENGINE_MODELS_MAX];
    struct err why[ENGINE_MODELS_MAX];
};

static char *dup_or_null(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

/* What it is shown; NULL = what the client sent. */
static const char *key_of(const struct engine *en)
{
    const char *name = en->spec.key_env;
    const char *key = name ? getenv(name) : en->directory->conf.api_key;

    return key && *key ? key : NULL;
}

/* --- models and workers ----------------------------------------------------------------------- */

static void tell(struct engine_directory *d, enum instances_change change, const struct served *s,
                 const struct worker *w)
{
    d->conf.event(d->conf.arg,
                  &(struct instances_event){.change = change, .model = &s->m, .worker = w});
}

static struct served *served_need(struct engine_directory *d, const char *name,
                                  const struct model_card *card)
{
    struct served *s = strmap_get(d->models, str_from(name));

    if (s)
        return s;
    s = xcalloc(1, sizeof(*s));
    s->m = (struct served_model){.name = xstrdup(name),
                                 .is_stock = true,
                                 .card = model_card_ref(card),
                                 .ns = xstrdup(d->conf.ns ? d->conf.ns : "dynamo"),
                                 .component = xstrdup(COMPONENT),
                                 .endpoint = xstrdup(ENDPOINT)};
    (void)strmap_set(d->models, str_from(name), s);
    tell(d, MODEL_ADDED, s, NULL);
    return s;
}

static void served_free(void *value)
{
    struct served *s = value;

    model_card_unref(s->m.card);
    free(s->m.name);
    free(s->m.ns);
    free(s->m.component);
    free(s->m.endpoint);
    free(s);
}

static void served_drop(struct engine_directory *d, struct served *s)
{
    if (--s->n_members)
        return;
    (void)strmap_remove(d->models, str_from(s->m.name));
    tell(d, MODEL_REMOVED, s, NULL);
    served_free(s);
}

static void member_free(struct member *m)
{
    list_remove(&m->link);
    model_card_unref(m->worker.card);
    free(m->worker.address);
    free(m->worker.queries);
    free(m->facts.model);
    free(m->facts.api_key);
    free(m->facts.events);
    free(m->facts.replay);
    free(m);
}

static void member_add(struct engine *en, struct join *j, size_t i)
{
    const struct engine_model_name *of = &j->models.at[i];
    const char *name = i == 0 && j->name ? j->name : of->id;
    struct member *m = xcalloc(1, sizeof(*m));

    m->facts = (struct stock_engine){.model = xstrdup(of->id),
                                     .api_key = dup_or_null(key_of(en)),
                                     .events = dup_or_null(j->events),
                                     .replay = dup_or_null(j->replay),
                                     .block_size = j->found.block_size,
                                     .tokenizes = j->found.tokenizes,
                                     .n_sample = j->found.n_sample};
    memcpy(m->facts.sample, j->sample, sizeof(m->facts.sample));
    m->worker = (struct worker){.id = en->id,
                                .address = xstrdup(en->spec.url),
                                .queries = xstrdup(""),
                                .card = TAKE(j->cards[i]),
                                .has_own_card = true,
                                .engine = &m->facts};
    list_append(&en->members, &m->link);
    m->model = served_need(en->directory, name, m->worker.card);
    m->model->n_members++;
    if (j->why[i].text[0])
        log_warn(&LG, "model files are not used", LOG_STR("model", name),
                 LOG_STR("why", j->why[i].text));
    log_info(&LG, "engine serves a model", LOG_STR("url", en->spec.url), LOG_STR("model", name),
             LOG_STR("engine_model", of->id), LOG_U64("worker_id", en->id),
             LOG_U64("block_size", j->found.block_size),
             LOG_STR("kv_events", m->facts.events ? m->facts.events : "none, caches are predicted"),
             LOG_STR("kv_replay", m->facts.replay ? m->facts.replay : "none"));
    tell(en->directory, WORKER_ADDED, m->model, &m->worker);
}

static void leave_all(struct engine *en)
{
    LIST_FOREACH (m, &en->members, struct member, link) {
        struct served *s = m->model;

        tell(en->directory, WORKER_REMOVED, s, &m->worker);
        member_free(m);
        served_drop(en->directory, s);
    }
}

/* --- cards ------------------------------------------------------------------------------------ */

static void join_free(struct join *j)
{
    for (size_t i = 0; i < j->models.n; i++)
        model_card_unref(j->cards[i]);
    engine_models_done(&j->models);
    free(j->model_path);
    free(j->model_root);
    free(j->name);
    free(j->events);
    free(j->replay);
    free(j);
}

static void join_work(void *arg)
{
    struct join *j = arg;

    for (size_t i = 0; i < j->models.n; i++) {
        const struct engine_model_name *m = &j->models.at[i];
        const struct engine_card_spec spec = {
            .name = i == 0 && j->name ? j->name : m->id,
            .engine_id = m->id,
            .model_path = j->model_path,
            .is_lora = m->is_lora,
            .root = m->is_lora ? j->models.at[0].root : m->root,
            .model_root = j->model_root,
            .block_size = j->found.block_size ? j->found.block_size : BLOCK_SIZE,
            .context_length = m->is_lora && !m->max_len ? j->models.at[0].max_len : m->max_len,
            .dp_size = j->found.dp_size,
            .total_blocks = j->found.total_blocks};

        j->cards[i] = engine_card_build(&spec, &j->why[i]);
    }
}

static void join_done(void *arg)
{
    struct join *j = arg;
    struct engine *en = j->engine;

    if (en) {
        en->joining = NULL;
        en->up = true;
        for (size_t i = 0; i < j->models.n; i++)
            member_add(en, j, i);
    }
    join_free(j);
}

static void join_abandon(struct engine *en)
{
    if (en->joining)
        en->joining->engine = NULL;
    en->joining = NULL;
}

static void models_copy(struct engine_models *to, const struct engine_models *from)
{
    to->n = from->n;
    for (size_t i = 0; i < from->n; i++) {
        to->at[i] = from->at[i];
        to->at[i].id = xstrdup(from->at[i].id);
        to->at[i].root = dup_or_null(from->at[i].root);
    }
}

/* --- what probes say -------------------------------------------------------------------------- */

static void on_found(void *arg, const struct engine_found *f)
{
    struct engine *en = arg;
    struct join *j = xcalloc(1, sizeof(*j));

    join_abandon(en);
    leave_all(en);
    j->engine = en;
    j->found = *f;
    if (!f->block_size)
        j->found.block_size = en->learned_block_size;
    j->model_path = dup_or_null(en->spec.model_path);
    j->model_root = dup_or_null(en->directory->conf.model_root);
    j->name = dup_or_null(en->spec.model);
    j->events = dup_or_null(f->events);
    j->replay = dup_or_null(f->replay);
    models_copy(&j->models, f->models);
    memcpy(j->sample, f->sample, f->n_sample * sizeof(j->sample[0]));
    en->joining = j;
    loop_work(en->directory->conf.loop, join_work, join_done, j);
}

static void on_lost(void *arg, const char *why)
{
    struct engine *en = arg;

    log_warn(&LG, "engine is lost", LOG_STR("url", en->spec.url), LOG_STR("why", why));
    join_abandon(en);
    en->up = false;
    leave_all(en);
}

static void on_load(void *arg, const struct engine_load_report *r)
{
    struct engine *en = arg;
    const struct engine_directory_conf *c = &en->directory->conf;

    LIST_FOREACH (m, &en->members, struct member, link)
        for (uint32_t i = 0; i < r->n_ranks && i < m->worker.card->dp_size && c->load; i++)
            c->load(c->arg, &m->model->m, &m->worker, i, &r->ranks[i]);
}

/* --- engines ---------------------------------------------------------------------------------- */

/* Ports are tried only where it is clear whose they are. */
static void probe(struct engine *en, bool shares_host)
{
    const struct engine_directory_conf *c = &en->directory->conf;

    en->shares_host = shares_host;
    en->probe = engine_probe_start(&(struct engine_probe_conf){.loop = c->loop,
                                                               .http = c->http,
                                                               .zmq = shares_host ? NULL : c->zmq,
                                                               .spec = &en->spec,
                                                               .api_key = key_of(en),
                                                               .period_ms = c->period_ms,
                                                               .found = on_found,
                                                               .lost = on_lost,
                                                               .load = on_load,
                                                               .arg = en});
}

static void engine_add(struct engine_directory *d, const struct engine_wanted *w, bool shares_host)
{
    struct engine *en;

    if (d->n_engines == ENGINES_MAX) {
        log_warn(&LG, "too many engines, ignoring", LOG_STR("url", w->spec.url));
        return;
    }
    en = xcalloc(1, sizeof(*en));
    en->directory = d;
    en->name = xstrdup(w->name);
    en->id = instance_id_of_pod(str_from(en->name));
    engine_spec_copy(&en->spec, &w->spec);
    list_init(&en->members);
    list_append(&d->engines, &en->link);
    d->n_engines++;
    probe(en, shares_host);
}

static void engine_free(struct engine *en)
{
    engine_probe_free(en->probe);
    join_abandon(en);
    list_remove(&en->link);
    en->directory->n_engines--;
    LIST_FOREACH (m, &en->members, struct member, link)
        member_free(m);
    engine_spec_done(&en->spec);
    free(en->name);
    free(en);
}

/* Everything that is wanted now, in the order of its finding. */
struct wanted_list {
    const struct engine_wanted **at;
    size_t n;
};

static const struct engine_wanted *find_wanted(const struct wanted_list *l, const char *name)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->at[i]->name, name) == 0)
            return l->at[i];
    return NULL;
}

/* A pod may stand in two slices for a moment. */
static void want(struct wanted_list *l, const struct engine_wants *w)
{
    l->at = xreallocarray(l->at, l->n + w->n + 1, sizeof(*l->at));
    for (size_t i = 0; i < w->n; i++)
        if (!find_wanted(l, w->at[i].name))
            l->at[l->n++] = &w->at[i];
}

static bool shares_host(const struct wanted_list *l, const struct engine_wanted *w)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->at[i] != w && strcmp(l->at[i]->spec.host, w->spec.host) == 0)
            return true;
    return false;
}

static struct engine *find_engine(const struct engine_directory *d, const char *name)
{
    LIST_FOREACH (en, &d->engines, struct engine, link)
        if (strcmp(en->name, name) == 0)
            return en;
    return NULL;
}

/* Ends what is no longer wanted, or wanted otherwise, and begins what is new. */
static void reconcile(struct engine_directory *d)
{
    struct wanted_list l = {.at = NULL};
    struct str slice;
    void *wants;

    want(&l, &d->listed);
    for (size_t at = 0; strmap_next(d->of_slices, &at, &slice, &wants);)
        want(&l, wants);
    LIST_FOREACH (en, &d->engines, struct engine, link) {
        const struct engine_wanted *w = find_wanted(&l, en->name);

        if (w && engine_spec_equal(&w->spec, &en->spec))
            continue;
        leave_all(en);
        engine_free(en);
    }
    for (size_t i = 0; i < l.n; i++)
        if (!find_engine(d, l.at[i]->name))
            engine_add(d, l.at[i], shares_host(&l, l.at[i]));
    free(l.at);
}

static int read_urls(struct engine_directory *d, struct err *e)
{
    struct str rest = str_from(d->conf.urls), one;

    for (bool more = rest.len > 0; more;) {
        struct engine_spec spec;
        int r;

        more = str_cut(&rest, ' ', &one);
        one = str_trim(one);
        if (!one.len)
            continue;
        r = engine_spec_parse(&spec, one, e);
        if (r < 0)
            return r;
        engine_wants_add(&d->listed, spec.url, &spec);
    }
    reconcile(d);
    return 0;
}

/* --- Kubernetes ------------------------------------------------------------------------------- */

static void wants_free(void *value)
{
    struct engine_wants *w = value;

    if (w)
        engine_wants_done(w);
    free(w);
}

static void on_slice(void *arg, enum kube_change what, const struct json *object, struct str raw)
{
    struct engine_directory *d = arg;
    struct str name = str_from(json_get_cstr(json_get(object, "metadata"), "name"));
    struct engine_wants *w = NULL;

    (void)raw;
    if (what != KUBE_DELETED && engine_slice_is_of(object, d->conf.ns)) {
        w = xcalloc(1, sizeof(*w));
        engine_slice_read(object, w);
    }
    wants_free(w ? strmap_set(d->of_slices, name, w) : strmap_remove(d->of_slices, name));
    reconcile(d);
}

static void on_slices_state(void *arg, bool up, const char *why)
{
    (void)arg;
    if (!up)
        log_warn(&LG, "EndpointSlices are not seen, engines stay as they are", LOG_STR("why", why));
}

static int watch_slices(struct engine_directory *d, struct err *e)
{
    const struct kube_watch_spec spec = {.kind = &KIND_ENDPOINT_SLICE,
                                         .ns = d->conf.kube_ns,
                                         .label_selector = ENGINE_LABEL,
                                         .change = on_slice,
                                         .state = on_slices_state,
                                         .arg = d};
    int r;

    if (!d->conf.kube)
        return 0;
    r = kube_watcher_new(&d->watcher, d->conf.loop, d->conf.kube, e);
    if (r == 0)
        d->slices = kube_watch_start(d->watcher, &spec);
    return r;
}

/* --- life ------------------------------------------------------------------------------------- */

int engine_directory_start(struct engine_directory **ret, const struct engine_directory_conf *conf,
                           struct err *e)
{
    AUTO(engine_directory_free) struct engine_directory *d = xcalloc(1, sizeof(*d));
    int r;

    d->conf = *conf;
    if (conf->ns && (!*conf->ns || strcmp(conf->ns, "dynamo") == 0))
        d->conf.ns = NULL; /* as for discovery: of all */
    list_init(&d->engines);
    d->models = strmap_new();
    d->of_slices = strmap_new();
    r = read_urls(d, e);
    if (r == 0)
        r = watch_slices(d, e);
    if (r < 0)
        return r;
    *ret = TAKE(d);
    return 0;
}

struct engine_directory *engine_directory_free(struct engine_directory *d)
{
    if (!d)
        return NULL;
    kube_watcher_free(d->watcher);
    LIST_FOREACH (en, &d->engines, struct engine, link)
        engine_free(en);
    strmap_free_with(d->models, served_free);
    strmap_free_with(d->of_slices, wants_free);
    engine_wants_done(&d->listed);
    free(d);
    return NULL;
}

void engine_directory_learn_block_size(struct engine_directory *d, uint64_t worker_id,
                                       uint32_t block_size)
{
    LIST_FOREACH (en, &d->engines, struct engine, link) {
        const struct member *first =
            list_empty(&en->members) ? NULL : LIST_ENTRY(en->members.next, struct member, link);

        if (en->id != worker_id || !first || first->facts.block_size)
            continue;
        log_info(&LG, "engine's events show its block size", LOG_STR("url", en->spec.url),
                 LOG_U64("block_size", block_size));
        en->learned_block_size = block_size;
        join_abandon(en);
        leave_all(en);
        engine_probe_free(en->probe);
        probe(en, en->shares_host);
    }
}

void engine_directory_count(const struct engine_directory *d, size_t *ret_all, size_t *ret_up)
{
    *ret_all = d->n_engines;
    *ret_up = 0;
    LIST_FOREACH (en, &d->engines, struct engine, link)
        *ret_up += en->up;
}
