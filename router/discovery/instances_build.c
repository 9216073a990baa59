/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "lib/base/map64.h"
#include "router/discovery/instances_inner.h"
#include "router/wire/indexer_query.h"

/* --- life of a table -------------------------------------------------------------------------- */

static void served_done(struct served_model *m)
{
    for (size_t i = 0; i < m->n_workers; i++) {
        free(m->workers[i].address);
        free(m->workers[i].queries);
        (void)model_card_unref(m->workers[i].card);
    }
    free(m->workers);
    free(m->name);
    free(m->set);
    free(m->ns);
    free(m->component);
    free(m->endpoint);
    (void)model_card_unref(m->card);
}

static void channel_done(struct event_channel *c)
{
    free(c->ns);
    free(c->component);
    free(c->endpoint);
    free(c->topic);
    free(c->address);
}

static void index_done(struct served_index *x)
{
    free(x->ns);
    free(x->component);
    free(x->endpoint);
    free(x->address);
}

struct model_table *model_table_ref(const struct model_table *t)
{
    /* The count is the one thing that changes in a table. */
    struct model_table *counted = (struct model_table *)(uintptr_t)t;

    ref_take(&counted->ref);
    return counted;
}

struct model_table *model_table_unref(struct model_table *t)
{
    if (!t || !ref_drop(&t->ref))
        return NULL;
    for (size_t i = 0; i < t->n_models; i++)
        served_done(&t->models[i]);
    for (size_t i = 0; i < t->n_channels; i++)
        channel_done(&t->channels[i]);
    for (size_t i = 0; i < t->n_indexes; i++)
        index_done(&t->indexes[i]);
    free(t->models);
    free(t->channels);
    free(t->indexes);
    free(t);
    return NULL;
}

const struct served_model *model_table_find(const struct model_table *t, struct str name,
                                            bool is_prefill)
{
    for (size_t i = 0; i < t->n_models; i++)
        if (t->models[i].is_prefill == is_prefill && str_is(name, t->models[i].name))
            return &t->models[i];
    return NULL;
}

const struct worker *served_model_worker(const struct served_model *m, uint64_t id)
{
    size_t low = 0, high = m->n_workers;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (m->workers[mid].id < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low < m->n_workers && m->workers[low].id == id ? &m->workers[low] : NULL;
}

/* --- models ----------------------------------------------------------------------------------- */

/* The good entries of one kind, oldest first. */
struct picks {
    struct entry **at;
    size_t n;
};

static int by_seq(const void *a, const void *b)
{
    uint64_t x = (*(struct entry *const *)a)->seq, y = (*(struct entry *const *)b)->seq;

    return x < y ? -1 : x > y;
}

static struct picks pick(struct strmap *entries, enum record_kind kind)
{
    struct picks p = {.at = xcalloc(strmap_len(entries) + 1, sizeof(*p.at))};
    struct str key;
    void *value;

    for (size_t at = 0; strmap_next(entries, &at, &key, &value);) {
        struct entry *en = value;

        if (en->good && !en->ignored && en->kind == kind)
            p.at[p.n++] = en;
    }
    qsort(p.at, p.n, sizeof(struct entry *), by_seq);
    return p;
}

static bool is_of(const struct entry *en, const struct served_model *m)
{
    return strcmp(en->endpoint, m->endpoint) == 0 && strcmp(en->component, m->component) == 0 &&
           strcmp(en->ns, m->ns) == 0;
}

static struct served_model *model_find(struct model_table *t, const struct entry *card)
{
    for (size_t i = 0; i < t->n_models; i++)
        if (t->models[i].is_prefill == card->card->is_prefill && is_of(card, &t->models[i]) &&
            strcmp(t->models[i].name, card->card->display_name) == 0)
            return &t->models[i];
    return NULL;
}

static void models_collect(struct model_table *t, const struct picks *cards)
{
    t->models = xcalloc(cards->n + 1, sizeof(*t->models));
    for (size_t i = 0; i < cards->n; i++) {
        struct entry *en = cards->at[i];
        struct served_model *m = model_find(t, en);

        en->refused = m && !model_card_fits(m->card, en->card);
        if (m)
            continue;
        m = &t->models[t->n_models++];
        m->name = xstrdup(en->card->display_name);
        m->set = xasprintf("%s@%s/%s/%s", m->name, en->ns, en->component, en->endpoint);
        m->is_prefill = en->card->is_prefill;
        m->card = model_card_ref(en->card);
        m->ns = xstrdup(en->ns);
        m->component = xstrdup(en->component);
        m->endpoint = xstrdup(en->endpoint);
    }
}

/* --- workers ---------------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
    uint64_t x = ((const struct worker *)a)->id, y = ((const struct worker *)b)->id;

    return x < y ? -1 : x > y;
}

/* Cards of the endpoint's base model by instance: of an adapter's workers, too, they say how they run. */
static void base_cards_index(struct map64 *by_instance, const struct served_model *m,
                             const struct picks *cards)
{
    for (size_t i = 0; i < cards->n; i++) {
        const struct entry *en = cards->at[i];

        if (!en->card->lora_name && en->card->is_prefill == m->is_prefill && is_of(en, m))
            map64_put_ptr(by_instance, en->id, en->card);
    }
}

/* Cards of the model's own endpoint by instance. */
static void cards_index(struct map64 *by_instance, const struct served_model *m,
                        const struct picks *cards)
{
    for (size_t i = 0; i < cards->n; i++) {
        const struct entry *en = cards->at[i];

        if (!en->refused && en->card->is_prefill == m->is_prefill && is_of(en, m) &&
            strcmp(en->card->display_name, m->name) == 0)
            map64_put_ptr(by_instance, en->id, en->card);
    }
}

static bool is_reachable(const struct entry *en)
{
    return en->transport == TRANSPORT_TCP || en->transport == TRANSPORT_NATS ||
           en->transport == TRANSPORT_HTTP;
}

static void workers_collect(struct served_model *m, const struct picks *cards,
                            const struct picks *endpoints)
{
    AUTO(map64_done) struct map64 own = {0}, base = {0};

    cards_index(&own, m, cards);
    if (m->card->lora_name)
        base_cards_index(&base, m, cards);
    m->workers = xcalloc(endpoints->n + 1, sizeof(*m->workers));
    for (size_t i = 0; i < endpoints->n; i++) {
        const struct entry *en = endpoints->at[i];
        const struct model_card *card;

        if (!is_reachable(en) || !is_of(en, m))
            continue;
        card = map64_find_ptr(&own, en->id);
        /* All workers of an endpoint serve its model, but not all have loaded each adapter. */
        if (m->card->lora_name && !card)
            continue;
        if (m->card->lora_name && map64_find_ptr(&base, en->id))
            card = map64_find_ptr(&base, en->id);
        m->workers[m->n_workers++] = (struct worker){
            .id = en->id,
            .address = xstrdup(en->address),
            .queries = xstrdup(""),
            .card = model_card_ref(card ? card : m->card),
            .has_own_card = card != NULL,
            .on_cpu = en->on_cpu,
            .kept = en->lost,
        };
    }
    qsort(m->workers, m->n_workers, sizeof(*m->workers), by_id);
}

/* Two records of one instance, as may be while a pod is replaced: the later one counts. */
static void workers_unique(struct served_model *m)
{
    size_t n = 0;

    for (size_t i = 0; i < m->n_workers; i++) {
        if (n && m->workers[n - 1].id == m->workers[i].id) {
            free(m->workers[n - 1].address);
            free(m->workers[n - 1].queries);
            (void)model_card_unref(m->workers[--n].card);
        }
        m->workers[n++] = m->workers[i];
    }
    m->n_workers = n;
}

static bool tells_what_is_held(const struct entry *en, const struct served_model *m)
{
    return is_reachable(en) && strcmp(en->component, m->component) == 0 &&
           strcmp(en->ns, m->ns) == 0 &&
           (en->kind == RECORD_EVENT_SOURCE ||
            str_starts(str_from(en->endpoint), STR("worker_kv_")));
}

/*
 * Where workers tell what they hold: an endpoint per worker in 0.9, per rank in 1.0, per publisher
 * later on, whose sources of events name the rank (router.md §2.6, wire.md §15.7).
 */
static void queries_collect(struct served_model *m, const struct picks *records)
{
    for (size_t i = 0; i < records->n; i++) {
        const struct entry *en = records->at[i];
        const struct worker *found =
            tells_what_is_held(en, m) ? served_model_worker(m, en->id) : NULL;
        AUTO(mem_free) char *rank = NULL;
        struct worker *w;
        char *longer;

        if (!found)
            continue;
        rank = en->kind == RECORD_EVENT_SOURCE ? xasprintf("#%" PRIu32, en->dp_rank) : xstrdup("");
        w = &m->workers[found - m->workers];
        longer = xasprintf("%s%s%s%s", w->queries, w->queries[0] ? "," : "", en->address, rank);
        free(w->queries);
        w->queries = longer;
    }
}

/* --- channels, indexes and the whole ------------------------------------------------------------------- */

static void channels_collect(struct model_table *t, const struct picks *channels)
{
    t->channels = xcalloc(channels->n + 1, sizeof(*t->channels));
    for (size_t i = 0; i < channels->n; i++) {
        const struct entry *en = channels->at[i];

        t->channels[t->n_channels++] = (struct event_channel){
            .ns = xstrdup(en->ns),
            .component = xstrdup(en->component),
            .endpoint = xstrdup(en->endpoint),
            .topic = xstrdup(en->topic),
            .publisher_id = en->id,
            .transport = en->transport,
            .address = xstrdup(en->address),
        };
    }
}

static bool is_index(const struct entry *en)
{
    return is_reachable(en) && (strcmp(en->endpoint, INDEXER_QUERY_ENDPOINT) == 0 ||
                                strcmp(en->endpoint, INDEXER_RECORD_ENDPOINT) == 0);
}

static void indexes_collect(struct model_table *t, const struct picks *endpoints)
{
    t->indexes = xcalloc(endpoints->n + 1, sizeof(*t->indexes));
    for (size_t i = 0; i < endpoints->n; i++) {
        const struct entry *en = endpoints->at[i];

        if (is_index(en))
            t->indexes[t->n_indexes++] = (struct served_index){
                .ns = xstrdup(en->ns),
                .component = xstrdup(en->component),
                .endpoint = xstrdup(en->endpoint),
                .instance_id = en->id,
                .address = xstrdup(en->address),
            };
    }
}

static int by_name(const void *a, const void *b)
{
    const struct served_model *x = a, *y = b;
    int r = strcmp(x->name, y->name);

    if (r == 0)
        r = (int)x->is_prefill - (int)y->is_prefill;
    return r ? r : strcmp(x->set, y->set);
}

struct model_table *model_table_build(struct strmap *entries, uint64_t version)
{
    struct model_table *t = xcalloc(1, sizeof(*t));
    struct picks cards = pick(entries, RECORD_MODEL);
    struct picks endpoints = pick(entries, RECORD_ENDPOINT);
    struct picks channels = pick(entries, RECORD_EVENT_CHANNEL);
    struct picks sources = pick(entries, RECORD_EVENT_SOURCE);

    ref_init(&t->ref);
    t->version = version;
    models_collect(t, &cards);
    for (size_t i = 0; i < t->n_models; i++) {
        workers_collect(&t->models[i], &cards, &endpoints);
        workers_unique(&t->models[i]);
        queries_collect(&t->models[i], &endpoints);
        queries_collect(&t->models[i], &sources);
    }
    qsort(t->models, t->n_models, sizeof(*t->models), by_name);
    channels_collect(t, &channels);
    indexes_collect(t, &endpoints);
    free(cards.at);
    free(endpoints.at);
    free(channels.at);
    free(sources.at);
    return t;
}
