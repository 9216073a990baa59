/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one publisher of the process. Who tells holds `lock` for reading, who makes and ends it for writing;
 * `making` keeps two inits apart, of which one may wait for ever.
 */
#include "router/epp/llm_engine.h"

#include <pthread.h>

#include "lib/base/log.h"
#include "router/epp/engine_events.h"
#include "router/epp/export.h"

static const struct log_target LG = {"commutator::epp::events"};

static struct {
    pthread_mutex_t making;
    pthread_rwlock_t lock;
    struct engine_events *events, *coming; /* at most one of them */
    bool given_up;                         /* what was coming, by a shutdown */
    bool was_there;
} engine = {.making = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_RWLOCK_INITIALIZER};

bool llm_engine_is_up(void)
{
    bool up;

    (void)pthread_rwlock_rdlock(&engine.lock);
    up = engine.events != NULL;
    (void)pthread_rwlock_unlock(&engine.lock);
    return up;
}

/* --- life -------------------------------------------------------------------------------------- */

/* From then on a shutdown cancels it. */
static int begin(struct engine_events **ret, const struct engine_events_conf *conf, struct err *e)
{
    int r;

    (void)pthread_rwlock_wrlock(&engine.lock);
    r = engine_events_new(ret, conf, e);
    engine.coming = r == 0 ? *ret : NULL;
    engine.given_up = false;
    (void)pthread_rwlock_unlock(&engine.lock);
    return r;
}

/* From then on nobody cancels it. False when somebody has, however late. */
static bool settle(struct engine_events *up)
{
    bool kept;

    (void)pthread_rwlock_wrlock(&engine.lock);
    kept = up && !engine.given_up;
    engine.coming = NULL;
    engine.events = kept ? up : NULL;
    engine.was_there = engine.was_there || kept;
    (void)pthread_rwlock_unlock(&engine.lock);
    return kept;
}

static dynamo_llm_result_t make(const struct engine_events_conf *conf)
{
    struct engine_events *v;
    struct err e;
    int r = begin(&v, conf, &e);

    if (r == 0) {
        r = engine_events_wait(v, &e);
        if (settle(r == 0 ? v : NULL))
            return DYNAMO_LLM_OK;
        engine_events_free(v);
    }
    log_error(&LG, "KV events cannot be told",
              LOG_STR("why", r < 0 ? e.text : "dynamo_llm_shutdown()"));
    return DYNAMO_LLM_ERR;
}

/* Of a second init. */
static dynamo_llm_result_t keep(const struct engine_events_conf *conf)
{
    if (engine_events_is_of(engine.events, conf))
        return DYNAMO_LLM_OK;
    log_warn(&LG, "dynamo_llm_init() again, and for another: the first one stays",
             LOG_STR("namespace", conf->ns), LOG_STR("component", conf->component));
    return LLM_CAPI_GENERATION >= LLM_CAPI_NAMESPACES ? DYNAMO_LLM_ERR : DYNAMO_LLM_OK;
}

static dynamo_llm_result_t init(const char *ns, const char *component, const char *endpoint,
                                uint32_t block_size)
{
    const struct engine_events_conf conf = {.ns = ns,
                                            .component = export_component(component),
                                            .endpoint = endpoint,
                                            .block_size = block_size,
                                            .env = export_env};
    dynamo_llm_result_t result;
    bool there;

    if (!ns || !*ns || !block_size || (endpoint && !*endpoint)) {
        log_error(&LG, "dynamo_llm_init() without a namespace, an endpoint or a block size");
        return DYNAMO_LLM_ERR;
    }
    (void)pthread_mutex_lock(&engine.making);
    (void)pthread_rwlock_rdlock(&engine.lock);
    there = engine.events != NULL;
    result = there ? keep(&conf) : DYNAMO_LLM_ERR;
    (void)pthread_rwlock_unlock(&engine.lock);
    if (!there)
        result = make(&conf);
    (void)pthread_mutex_unlock(&engine.making);
    return result;
}

#if LLM_CAPI_GENERATION >= LLM_CAPI_NAMESPACES
EXPORT dynamo_llm_result_t dynamo_llm_init(const char *namespace_c_str, const char *component_c_str,
                                           const char *endpoint_c_str, uint32_t kv_block_size)
{
    return init(namespace_c_str, component_c_str, endpoint_c_str ? endpoint_c_str : "",
                kv_block_size);
}
#else
EXPORT dynamo_llm_result_t dynamo_llm_init(const char *namespace_c_str, const char *component_c_str,
                                           uint32_t kv_block_size)
{
    return init(namespace_c_str, component_c_str, NULL, kv_block_size);
}
#endif

EXPORT dynamo_llm_result_t dynamo_llm_shutdown(void)
{
    struct engine_events *ended;
    bool known;

    (void)pthread_rwlock_wrlock(&engine.lock);
    ended = engine.events;
    engine.events = NULL;
    known = ended || engine.coming || engine.was_there;
    if (engine.coming) {
        engine.given_up = true;
        engine_events_cancel(engine.coming);
    }
    (void)pthread_rwlock_unlock(&engine.lock);
    engine_events_free(ended);
    return known ? DYNAMO_LLM_OK : DYNAMO_LLM_ERR;
}

EXPORT dynamo_llm_result_t dynamo_llm_load_publisher_create(void)
{
    return DYNAMO_LLM_OK;
}

/* --- events ------------------------------------------------------------------------------------ */

static dynamo_llm_result_t told(int r, const struct err *e)
{
    if (r == 0)
        return DYNAMO_LLM_OK;
    log_warn(&LG, "an event was not told", LOG_STR("why", e->text));
    return DYNAMO_LLM_ERR;
}

static dynamo_llm_result_t tell_stored(const struct engine_stored *s)
{
    dynamo_llm_result_t result = DYNAMO_LLM_ERR;
    struct err e;

    if (s->n_blocks && (!s->tokens || !s->block_tokens || !s->block_hashes))
        return DYNAMO_LLM_ERR;
    (void)pthread_rwlock_rdlock(&engine.lock);
    if (engine.events)
        result = told(engine_events_stored(engine.events, s, &e), &e);
    (void)pthread_rwlock_unlock(&engine.lock);
    return result;
}

EXPORT dynamo_llm_result_t dynamo_kv_event_publish_stored(
    uint64_t event_id, const uint32_t *token_ids, const size_t *num_block_tokens,
    const uint64_t *block_ids, size_t num_blocks, const uint64_t *parent_hash,
#if LLM_CAPI_GENERATION >= LLM_CAPI_RANKS
    const char *lora_name
#else
    uint64_t lora_id
#endif
)
{
    struct engine_stored s = {.event_id = event_id,
                              .tokens = token_ids,
                              .block_tokens = num_block_tokens,
                              .block_hashes = block_ids,
                              .n_blocks = num_blocks};

    if (parent_hash)
        s.parent_hash = OPT_U64(*parent_hash);
#if LLM_CAPI_GENERATION >= LLM_CAPI_RANKS
    if (lora_name)
        s.lora_name = str_from(lora_name);
#else
    (void)lora_id;
#endif
    return tell_stored(&s);
}

EXPORT dynamo_llm_result_t dynamo_kv_event_publish_removed(uint64_t event_id,
                                                           const uint64_t *block_ids,
                                                           size_t num_blocks)
{
    dynamo_llm_result_t result = DYNAMO_LLM_ERR;
    struct err e;

    if (num_blocks && !block_ids)
        return DYNAMO_LLM_ERR;
    (void)pthread_rwlock_rdlock(&engine.lock);
    if (engine.events)
        result =
            told(engine_events_removed(engine.events, event_id, block_ids, num_blocks, &e), &e);
    (void)pthread_rwlock_unlock(&engine.lock);
    return result;
}
