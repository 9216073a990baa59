/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/model.h"

#include <errno.h>
#include <math.h>

#include "lib/base/digest.h"
#include "lib/base/log.h"
#include "router/discovery/model_text.h"
#include "router/frontend/card_objects.h"
#include "router/openai/openai.h"
#include "router/openai/reply.h"

static const struct log_target LG = {"commutator::frontend::model"};

enum {
    SPARE_MAX = 8,
    RETRY_MS = 5000,
    RETRY_MAX_MS = 300000,
};

/* --- loading, on a side thread -----------------------------------------------------------------
 */

/* What loading reads and gives; the model itself is not touched meanwhile. */
struct load {
    struct model *m; /* holds a reference */
    struct model_card *card;
    const struct model_places *places; /* outlive the side pool */
    struct buf *object_bytes;          /* n_objects: what has been read from NATS */
    struct model_bytes *objects;
    size_t n_objects;
    struct model_text text;
    int r;
    struct err e; /* why it failed */
};

/* Plain OpenAI servers apply templates themselves; caches are looked up by what they make of them. */
static enum chat_release release_of(const struct model *m)
{
    if (m->is_stock)
        return CHAT_AS_SENT;
    return model_is_of_1(m) && m->conf.template_style != TEMPLATE_DYNAMO_0_9 ? CHAT_OF_1
                                                                             : CHAT_OF_0_9;
}

static void load_work(void *arg)
{
    struct load *l = arg;

    if (l->m->takes_text) {
        l->r = 0; /* nothing is made of text here */
        return;
    }
    l->r = model_text_load(&l->text, l->card, l->places, l->objects, l->n_objects,
                           l->m->conf.template_style, release_of(l->m), &l->e);
}

/* A way of writing calls that is not read here leaves the answer as the model wrote it. */
static void check_parsers(const struct model *m)
{
    const char *calls = m->card->tool_call_parser, *thoughts = m->card->reasoning_parser;

    if (calls && !reply_find_calls(calls))
        log_warn(&LG, "tool_call_parser is not supported, calls of tools stay in the content",
                 LOG_STR("model", m->name), LOG_STR("parser", calls));
    if (thoughts && !reply_knows_thoughts(thoughts))
        log_warn(&LG,
                 "reasoning_parser is not known, thoughts are read between <think> and </think>",
                 LOG_STR("model", m->name), LOG_STR("parser", thoughts));
}

/* Its engines answer all the same; what is missing is what caches are looked up by. */
static void ready_without_tokenizer(struct model *m, const struct err *why)
{
    m->state = MODEL_READY;
    (void)err_set(&m->why, -ENOENT, "no tokenizer here (%s): %s", why->text,
                  pool_tokenizer(m->pool) ? "an engine tokenizes prompts, a round trip each"
                                          : "requests are routed by load, not by caches");
    log_warn(&LG, "model ready, without a tokenizer", LOG_STR("model", m->name),
             LOG_STR("why", m->why.text));
    model_configure(m);
}

static void take_loaded(struct model *m, struct load *l)
{
    m->tokenizer = TAKE(l->text.tokenizer);
    if (m->tokenizer && m->conf.prompt_cache_bytes)
        m->prompt_cache = prompt_cache_new(m->tokenizer, m->conf.prompt_cache_bytes, random_u64());
    m->chat = TAKE(l->text.chat);
    m->n_eos_ids = l->text.n_eos_ids;
    m->eos_ids = xreallocarray(NULL, MAX(m->n_eos_ids, (size_t)1), sizeof(*m->eos_ids));
    memcpy(m->eos_ids, l->text.eos_ids, m->n_eos_ids * sizeof(*m->eos_ids));
    m->vocabulary = l->text.vocabulary;
    m->images = l->text.images;
    m->n_fetched = l->text.n_fetched;
    m->n_differ = l->text.n_differ;
    m->hold = TAKE(l->text.hold);
    m->has_room = l->text.has_room;
    m->n_evicted = l->text.n_evicted;
    m->hub_bytes = l->text.hub_bytes;
    m->why = l->text.lacks;
    m->state = MODEL_READY;
    model_configure(m);
    if (!m->takes_text)
        check_parsers(m);
    if (m->why.text[0])
        log_warn(&LG, "chat template cannot be used", LOG_STR("model", m->name),
                 LOG_STR("why", m->why.text));
    log_info(&LG, "model ready", LOG_STR("model", m->name), LOG_STR("mdc_sum", m->card->mdc_sum),
             LOG_BOOL("chat", m->chat != NULL),
             LOG_U64("block_size", scheduler_block_size(m->pool->scheduler)),
             LOG_U64("context_length", m->card->context_length),
             LOG_U64("files_fetched", m->n_fetched), LOG_U64("files_differ", m->n_differ));
}

static void take_failure(struct model *m, struct load *l)
{
    uint64_t wait_ms = m->conf.retry_ms ? m->conf.retry_ms : RETRY_MS;

    for (unsigned i = 0; i < m->failures && wait_ms < RETRY_MAX_MS; i++)
        wait_ms *= 2;
    wait_ms = MIN(wait_ms, (uint64_t)RETRY_MAX_MS);
    m->failures++;
    m->why = l->e;
    m->state = MODEL_FAILED;
    log_error(&LG, "model cannot be served, trying again", LOG_STR("model", m->name),
              LOG_STR("why", l->e.text), LOG_U64("in_ms", wait_ms));
    timer_start(m->retry, wait_ms);
}

static void load_done(void *arg)
{
    struct load *l = arg;
    struct model *m = l->m;

    if (!m->dropped) {
        if (l->r == 0)
            take_loaded(m, l);
        else if (m->is_stock)
            ready_without_tokenizer(m, &l->e);
        else
            take_failure(m, l);
        m->conf.ready(m->conf.arg, m);
    }
    model_text_done(&l->text);
    for (size_t i = 0; i < l->n_objects; i++)
        buf_done(&l->object_bytes[i]);
    free(l->object_bytes);
    free(l->objects);
    model_card_unref(l->card); /* the paths of the objects are its own */
    model_unref(m);
    free(l);
}

static void on_objects(void *arg, int r, const struct model_bytes *files, size_t n,
                       const struct err *e)
{
    struct load *l = arg;

    if (r < 0) {
        l->r = r;
        l->e = *e;
        load_done(l);
        return;
    }
    l->object_bytes = xcalloc(n, sizeof(*l->object_bytes));
    l->objects = xcalloc(n, sizeof(*l->objects));
    for (; l->n_objects < n; l->n_objects++) {
        struct buf *b = &l->object_bytes[l->n_objects];

        buf_put_str(b, files[l->n_objects].bytes);
        l->objects[l->n_objects] = (struct model_bytes){files[l->n_objects].path, buf_str(b)};
    }
    side_pool_run(l->m->conf.side, load_work, load_done, l);
}

static void load(void *arg)
{
    struct model *m = arg;
    struct load *l = xcalloc(1, sizeof(*l));

    l->m = model_ref(m);
    l->card = model_card_ref(m->card);
    l->places = m->conf.places;
    /* What a thread that was never begun would leave behind. */
    l->r = err_set(&l->e, -ECANCELED, "stopped");
    if (card_has_objects(l->card) && !m->takes_text)
        card_objects_get(m->conf.objects, l->card, on_objects, l);
    else
        side_pool_run(m->conf.side, load_work, load_done, l);
}

/* --- the model ---------------------------------------------------------------------------------
 */

static char *lower(const char *name)
{
    char *copy = xstrdup(name);

    for (char *c = copy; *c; c++)
        if (*c >= 'A' && *c <= 'Z')
            *c = (char)(*c - 'A' + 'a');
    return copy;
}

static const struct chunk_style *chunks_of(const struct model_conf *conf,
                                           const struct model_card *card)
{
    if (conf->answer_style == ANSWERS_BY_CARD ? !card->is_of_1
                                              : conf->answer_style == ANSWERS_OF_0_9)
        return &CHUNKS_OF_0_9;
    return conf->reasoning_field == REASONING_SHORT ? &CHUNKS_OF_1_SHORT : &CHUNKS_OF_1;
}

struct model *model_new(const struct served_model *found, const struct model_conf *conf,
                        struct pool *pool)
{
    struct model *m = xcalloc(1, sizeof(*m));

    m->refs = 1;
    m->conf = *conf;
    m->name = xstrdup(found->name);
    m->label = lower(found->name);
    m->card = model_card_ref(found->card);
    m->chunks = chunks_of(conf, m->card);
    m->reads_special = reply_reads_special(m->card->reasoning_parser, m->card->tool_call_parser);
    m->is_stock = found->is_stock;
    m->takes_text = !m->is_stock && m->card->input == MODEL_INPUT_TEXT;
    m->busy_decode_blocks = m->busy_prefill_tokens = NAN;
    m->pool = pool ? pool_ref(pool) : pool_new(conf->loop, found, conf->block_size, conf->route);
    m->retry = timer_new(conf->loop, load, m);
    load(m);
    return m;
}

bool model_serves(const struct model *m, unsigned api)
{
    static const struct {
        enum api api;
        unsigned flag;
    } flags[] = {{API_CHAT, MODEL_CHAT},
                 {API_COMPLETIONS, MODEL_COMPLETIONS},
                 {API_EMBEDDINGS, MODEL_EMBEDDING}};

    for (size_t i = 0; i < ARRAY_LEN(flags); i++)
        if ((unsigned)flags[i].api == api)
            return m->is_stock ||
                   (m->card->flags & flags[i].flag) != 0; /* an engine knows itself */
    return false;
}

bool model_is_of_1(const struct model *m)
{
    return !m->is_stock && m->chunks->is_of_1;
}

struct str model_salt(const struct model *m, struct str salt)
{
    return m->is_stock || model_is_of_1(m) ? salt : STR_NULL;
}

struct model *model_ref(struct model *m)
{
    m->refs++;
    return m;
}

struct model *model_drop(struct model *m)
{
    if (!m)
        return NULL;
    m->dropped = true;
    timer_stop(m->retry);
    return model_unref(m);
}

struct model *model_unref(struct model *m)
{
    if (!m || --m->refs > 0)
        return NULL;
    for (size_t i = 0; i < m->n_spare; i++)
        tokenizer_scratch_free(m->spare[i]);
    free(m->spare);
    timer_free(m->retry);
    pool_unref(m->pool);
    chat_free(m->chat);
    prompt_cache_free(m->prompt_cache);
    tokenizer_free(m->tokenizer);
    hub_hold_free(m->hold);
    free(m->eos_ids);
    model_card_unref(m->card);
    free(m->name);
    free(m->label);
    free(m);
    return NULL;
}

static bool embeds_alone(const struct model *m)
{
    return (m->card->flags & (MODEL_CHAT | MODEL_COMPLETIONS | MODEL_EMBEDDING)) == MODEL_EMBEDDING;
}

void model_configure(struct model *m)
{
    struct route_conf c = *m->conf.route;

    if (!isnan(m->busy_decode_blocks))
        c.busy_decode_blocks = m->busy_decode_blocks;
    if (!isnan(m->busy_prefill_tokens))
        c.busy_prefill_tokens = m->busy_prefill_tokens;
    /* Where nothing is known of prompts, or none are kept, caches cannot be asked. */
    if (c.mode == ROUTE_KV && m->state == MODEL_READY &&
        (embeds_alone(m) || (!m->tokenizer && !pool_tokenizer(m->pool))))
        c.mode = ROUTE_LEAST_LOADED;
    pool_configure(m->pool, &c);
}

struct tokenizer_scratch *model_take_scratch(struct model *m)
{
    return m->n_spare ? m->spare[--m->n_spare] : tokenizer_scratch_new(m->tokenizer);
}

void model_give_scratch(struct model *m, struct tokenizer_scratch *take_scratch)
{
    if (m->n_spare == SPARE_MAX) {
        tokenizer_scratch_free(take_scratch);
        return;
    }
    if (!m->spare)
        m->spare = xcalloc(SPARE_MAX, sizeof(struct tokenizer_scratch *));
    m->spare[m->n_spare++] = take_scratch;
}
