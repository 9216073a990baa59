/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/engine_source.h"

#include <inttypes.h>

#include "lib/base/list.h"
#include "lib/base/log.h"
#include "lib/net/zmq_link.h"
#include "router/kv/block_hash.h"
#include "router/sync/salt_chains.h"
#include "router/wire/engine_batch.h"

static const struct log_target LG = {"dynamo_llm::kv_router::publisher"};

enum {
    PARTS = 3, /* of a live batch */
    SEQUENCE_BYTES = 8,
    REPLAY_MS = 5000, /* without an answer */
    HELD_MAX = 4096,
    HELD_BYTES_MAX = 64 << 20,
};

/* A live batch that waits for the end of a replay. */
struct held {
    struct list link;
    uint64_t sequence;
    size_t len;
    char bytes[];
};

struct engine_source {
    struct engine_source_conf conf;
    char *endpoint, *topic, *replay, *adapter;
    struct zmq_link *sub;
    struct zmq_link *dealer; /* NULL: nothing is asked */
    struct timer *patience;
    struct list held;
    size_t n_held, held_bytes;
    uint64_t next, last_live; /* sequence numbers: expected; of the last live batch */
    bool connected, has_next, has_live;
    bool probing, known; /* the last batch that we have is asked for too; it came */
    bool ended;          /* the engine has said so */
    uint64_t next_id;
    uint32_t rank; /* of the last batch */
    struct engine_reader reader;
    struct salt_chains salts; /* empty where they are the first blocks' alone */
    struct kv_block *blocks;
    uint64_t *hashes;
    size_t cap;
    struct block_media *media; /* of the event at hand */
    size_t cap_media;
    struct engine_source_stats stats;
};

/* --- events --------------------------------------------------------------------------------------- */

static void filtered(struct engine_source *s, enum kv_filter why)
{
    if (s->conf.filtered)
        s->conf.filtered(s->conf.arg, why);
}

static void give(struct engine_source *s, struct kv_event *ev, uint64_t sent_ms)
{
    ev->worker_id = s->conf.worker_id;
    ev->event_id = s->next_id++;
    s->conf.event(s->conf.arg, ev, sent_ms);
}

static void give_cleared(struct engine_source *s)
{
    struct kv_event ev = {.kind = KV_CLEARED, .tier = KV_TIER_DEVICE, .dp_rank = s->rank};

    give(s, &ev, 0);
}

/* What the blocks' salt adds to their seed, theirs or that of the chain that they go on. 0 = none. */
static uint64_t take_salt(struct engine_source *s, const struct engine_event *in, size_t n)
{
    uint64_t salt = block_hash_seed(STR_NULL, in->salt) - BLOCK_HASH_SEED;

    if (s->conf.salts_first)
        return 0;
    if (!in->salt.len && in->parent_hash.set)
        salt = salt_chains_find(&s->salts, in->parent_hash.v);
    if (salt && !salt_chains_put(&s->salts, in->tier, in->hashes, n, salt))
        filtered(s, KV_FILTER_SALT);
    return salt;
}

static size_t take_media(struct engine_source *s, const struct engine_event *in)
{
    size_t n = in->n_media;

    if (n > s->cap_media) {
        s->cap_media = n;
        s->media = xreallocarray(s->media, n, sizeof(*s->media));
    }
    for (size_t i = 0; i < n; i++)
        s->media[i] = (struct block_media){in->media[i].block, in->media[i].mm_hash};
    block_media_sort(s->media, n);
    return n;
}

/* The blocks that are whole: hashes and tokens of each. */
static size_t take_blocks(struct engine_source *s, const struct engine_event *in)
{
    size_t n = MIN(in->n_hashes, in->n_tokens / s->conf.block_size);
    struct str first = in->first_salt.len ? in->first_salt : in->salt;
    struct block_naming nm = {.seed =
                                  block_hash_seed(in->lora_name, STR_NULL) + take_salt(s, in, n),
                              .block_size = s->conf.block_size,
                              .n_media = take_media(s, in)};

    if (n > s->cap) {
        s->cap = n;
        s->blocks = xreallocarray(s->blocks, n, sizeof(*s->blocks));
        s->hashes = xreallocarray(s->hashes, n, sizeof(*s->hashes));
    }
    nm.media = s->media;
    (void)block_hash_local_named(&nm, in->tokens, n * nm.block_size, s->hashes);
    if (s->conf.salts_first && first.len && !in->parent_hash.set && n) {
        nm.seed = block_hash_seed(in->lora_name, first);
        (void)block_hash_local_named(&nm, in->tokens, nm.block_size, s->hashes);
    }
    for (size_t i = 0; i < n; i++)
        s->blocks[i] = (struct kv_block){in->hashes[i], s->hashes[i]};
    return n;
}

/* What is removed does not say whose it was: whoever does not know it has lost nothing. */
static bool is_wanted(const struct engine_source *s, const struct engine_event *in)
{
    return !s->adapter || in->kind != KV_STORED || str_is(in->lora_name, s->adapter);
}

static void on_event(void *arg, const struct engine_batch *b, const struct engine_event *in)
{
    struct engine_source *s = arg;
    struct kv_event ev = {.kind = in->kind, .tier = in->tier, .parent_hash = in->parent_hash};

    if (!is_wanted(s, in))
        return;

    s->rank = b->dp_rank.set ? (uint32_t)MIN(b->dp_rank.v, UINT32_MAX) : s->conf.dp_rank;
    ev.dp_rank = s->rank;
    if (in->raw_hashes) {
        filtered(s, KV_FILTER_RAW_HASH);
    } else if (!in->main_attention) {
        filtered(s, KV_FILTER_ATTENTION);
    } else if (in->tier == KV_TIER_UNKNOWN) {
        filtered(s, KV_FILTER_UNKNOWN_TIER);
    } else if (in->kind == KV_STORED && in->block_size != s->conf.block_size) {
        s->stats.other_block_size = (uint32_t)in->block_size;
        filtered(s, KV_FILTER_BLOCK_SIZE);
    } else {
        if (in->kind == KV_STORED)
            ev.n_blocks = take_blocks(s, in);
        ev.blocks = s->blocks;
        if (in->kind == KV_CLEARED)
            salt_chains_clear(&s->salts);
        if (in->kind == KV_REMOVED) {
            salt_chains_remove(&s->salts, in->tier, in->hashes, in->n_hashes);
            ev.removed = in->hashes;
            ev.n_removed = in->n_hashes;
        }
        give(s, &ev, b->ts > 0 && b->ts < 1e12 ? (uint64_t)(b->ts * 1000) : 0);
    }
}

static void apply(struct engine_source *s, uint64_t sequence, struct str batch)
{
    struct err e;

    s->next = sequence + 1;
    s->has_next = true;
    s->stats.batches++;
    if (engine_batch_decode(&s->reader, batch, on_event, s, NULL, &e) == 0)
        return;
    filtered(s, KV_FILTER_BAD);
    log_debug(&LG, "the engine's batch cannot be read", LOG_U64("worker_id", s->conf.worker_id),
              LOG_STR("why", e.text));
}

/*
 * Batches before @sequence are gone for good. What is known of the rank stays: an engine does not
 * tell again of blocks that it goes on holding, so that a clear would cost more than a stale block.
 */
static void lose(struct engine_source *s, uint64_t sequence)
{
    s->stats.lost++;
    log_warn(&LG, "events are missing, and cannot be had again",
             LOG_U64("worker_id", s->conf.worker_id), LOG_U64("dp_rank", s->rank),
             LOG_U64("from", s->next), LOG_U64("to", sequence - 1));
}

/* --- replay --------------------------------------------------------------------------------------- */

static bool sequence_of(struct str frame, uint64_t *ret)
{
    if (frame.len != SEQUENCE_BYTES)
        return false;
    *ret = load_u64be(frame.ptr);
    return true;
}

/* @first: it comes before what waits. */
static void hold(struct engine_source *s, uint64_t sequence, struct str batch, bool first)
{
    struct held *h;

    if (s->n_held == HELD_MAX || s->held_bytes + batch.len > HELD_BYTES_MAX)
        return; /* a gap, which shows when its turn comes */
    h = xmalloc(sizeof(*h) + batch.len);
    h->sequence = sequence;
    h->len = batch.len;
    memcpy(h->bytes, batch.ptr, batch.len);
    (first ? list_prepend : list_append)(&s->held, &h->link);
    s->n_held++;
    s->held_bytes += batch.len;
}

static void forget_engine(struct engine_source *s)
{
    s->stats.restarts++;
    log_info(&LG, "engine restarted, its old blocks are dropped",
             LOG_U64("worker_id", s->conf.worker_id), LOG_U64("dp_rank", s->rank));
    give_cleared(s);
    salt_chains_clear(&s->salts);
    s->has_next = s->has_live = false;
}

static bool ask(struct engine_source *s);
static void take_live(struct engine_source *s, uint64_t sequence, struct str batch, bool asked);

static void end_replay(void *arg)
{
    struct engine_source *s = arg;

    timer_stop(s->patience);
    s->dealer = zmq_link_free(s->dealer);
    /* An engine without the last batch that we have is another one than it was. */
    if (s->ended && s->probing && !s->known) {
        forget_engine(s);
        (void)ask(s);
    }
    /* A fall among what waited begins another replay, which what is left then waits for. */
    while (!list_empty(&s->held) && !s->dealer) {
        struct held *h = LIST_ENTRY(s->held.next, struct held, link);

        list_remove(&h->link);
        s->n_held--;
        s->held_bytes -= h->len;
        take_live(s, h->sequence, str_slice(h->bytes, h->len), true);
        free(h);
    }
}

static void on_answer(void *arg, const struct str *frames, size_t n)
{
    struct engine_source *s = arg;
    uint64_t sequence;

    timer_start(s->patience, REPLAY_MS);
    if (n < 2 || !sequence_of(frames[n - 2], &sequence)) {
        filtered(s, KV_FILTER_BAD);
    } else if (sequence == UINT64_MAX || frames[n - 1].len == 0) {
        s->ended = true;
        timer_start(s->patience, 0); /* outside of this callback */
    } else if (s->has_next && sequence < s->next) {
        s->known = true;
    } else {
        s->known = true; /* it counts on, so that it is the same */
        if (s->has_next && sequence > s->next)
            lose(s, sequence);
        s->stats.replayed++;
        apply(s, sequence, frames[n - 1]);
    }
}

/* For all that follows the last batch that we have, and for that one. False when nobody can be. */
static bool ask(struct engine_source *s)
{
    const struct zmq_link_conf conf = {.kind = ZMQ_KIND_DEALER, .received = on_answer, .arg = s};
    AUTO(buf_done) struct buf sequence = BUF_NULL;
    struct str frames[2] = {STR_NULL};
    struct err e;

    if (!s->replay || s->dealer)
        return s->dealer != NULL;
    buf_put_u64be(&sequence, s->has_next ? s->next - 1 : 0);
    frames[1] = buf_str(&sequence);
    if (zmq_link_new(&s->dealer, s->conf.zmq, &conf, &e) < 0 ||
        zmq_link_connect(s->dealer, s->replay, &e) < 0 ||
        zmq_link_send(s->dealer, frames, ARRAY_LEN(frames)) < 0) {
        s->dealer = zmq_link_free(s->dealer);
        return false;
    }
    s->probing = s->has_next;
    s->known = s->ended = false;
    timer_start(s->patience, REPLAY_MS);
    return true;
}

/* --- live batches --------------------------------------------------------------------------------- */

/* @asked: what came before it has been asked for just now. */
static void take_live(struct engine_source *s, uint64_t sequence, struct str batch, bool asked)
{
    bool fallen = s->has_live && sequence <= s->last_live;

    if (fallen) {
        forget_engine(s);
        if (sequence > 0 && ask(s)) {
            hold(s, sequence, batch, asked);
            return;
        }
    } else if (s->has_next && sequence > s->next) {
        s->stats.gaps += !asked;
        if (!asked && ask(s)) {
            hold(s, sequence, batch, false);
            return;
        }
        lose(s, sequence);
    }
    s->last_live = sequence;
    s->has_live = true;
    if (!s->has_next || sequence >= s->next) /* else the replay has brought it */
        apply(s, sequence, batch);
}

static void on_batch(void *arg, const struct str *frames, size_t n)
{
    struct engine_source *s = arg;
    uint64_t sequence;

    if (n != PARTS || !sequence_of(frames[1], &sequence))
        filtered(s, KV_FILTER_BAD);
    else if (s->dealer)
        hold(s, sequence, frames[2], false);
    else
        take_live(s, sequence, frames[2], false);
}

/* From now on it is heard: what it said before is asked for. */
static void on_connected(void *arg, struct str endpoint)
{
    struct engine_source *s = arg;

    (void)endpoint;
    s->connected = true;
    (void)ask(s);
}

/* --- life ----------------------------------------------------------------------------------------- */

static int listen_to(struct engine_source *s, struct err *e)
{
    const struct zmq_link_conf sub = {
        .kind = ZMQ_KIND_SUB, .received = on_batch, .connected = on_connected, .arg = s};
    int r = zmq_link_new(&s->sub, s->conf.zmq, &sub, e);

    if (r == 0)
        r = zmq_link_subscribe(s->sub, str_from(s->topic), e);
    return r < 0 ? r : zmq_link_connect(s->sub, s->endpoint, e);
}

int engine_source_start(struct engine_source **ret, const struct engine_source_conf *conf,
                        struct err *e)
{
    AUTO(engine_source_free) struct engine_source *s = xcalloc(1, sizeof(*s));
    int r;

    s->conf = *conf;
    s->endpoint = xstrdup(conf->endpoint);
    s->topic = conf->topic ? xstrdup(conf->topic) : NULL;
    s->rank = conf->dp_rank;
    s->reader.media.padded_only = !conf->salts_first;
    s->replay = conf->replay ? xstrdup(conf->replay) : NULL;
    s->adapter = conf->adapter ? xstrdup(conf->adapter) : NULL;
    list_init(&s->held);
    s->patience = timer_new(conf->loop, end_replay, s);
    r = listen_to(s, e);
    if (r < 0)
        return err_wrap(e, r, "engine of worker %llu", (unsigned long long)conf->worker_id);
    *ret = TAKE(s);
    return 0;
}

static void drop_links(struct engine_source *s)
{
    s->sub = zmq_link_free(s->sub);
    s->dealer = zmq_link_free(s->dealer);
    LIST_FOREACH (h, &s->held, struct held, link) {
        list_remove(&h->link);
        free(h);
    }
    s->n_held = s->held_bytes = 0;
}

struct engine_source *engine_source_free(struct engine_source *s)
{
    if (!s)
        return NULL;
    drop_links(s);
    timer_free(s->patience);
    engine_reader_done(&s->reader);
    salt_chains_done(&s->salts);
    free(s->blocks);
    free(s->hashes);
    free(s->media);
    free(s->endpoint);
    free(s->topic);
    free(s->replay);
    free(s->adapter);
    free(s);
    return NULL;
}

void engine_source_pause(struct engine_source *s)
{
    drop_links(s);
    timer_stop(s->patience);
    s->connected = false;
}

void engine_source_resume(struct engine_source *s)
{
    struct err e;

    if (!s->sub && listen_to(s, &e) < 0)
        log_warn(&LG, "the engine is heard no more", LOG_U64("worker_id", s->conf.worker_id),
                 LOG_STR("why", e.text));
}

char *engine_endpoint_of_rank(const char *endpoint, uint32_t rank)
{
    struct str s = str_from(endpoint);
    size_t colon = s.len;
    uint64_t port;

    while (colon && s.ptr[colon - 1] != ':')
        colon--;
    if (!str_parse_u64(str_skip(s, colon), &port))
        return xstrdup(endpoint);
    return xasprintf("%.*s%" PRIu64, (int)colon, s.ptr, port + rank);
}

bool engine_source_connected(const struct engine_source *s)
{
    return s->connected;
}

struct engine_source_stats engine_source_stats(const struct engine_source *s)
{
    return s->stats;
}
