/* SPDX-License-Identifier: Apache-2.0 */
/* A modelled engine, publisher and replay buffer, behind real sockets on loopback. */
#include "router/sync/engine_source.h"

#include "lib/base/msgpack.h"
#include "lib/base/test.h"
#include "lib/net/nats_server_test.h"
#include "lib/net/zmq_link.h"
#include "router/kv/block_hash.h"
#include "router/wire/engine_batch.h"

enum { DEADLINE_MS = 90000, BLOCK_SIZE = 4, BUFFER_MAX = 64, WORKER = 9 };

struct engine {
    struct zmq_link *pub, *router;
    char *endpoint, *replay;
    struct buf batches[BUFFER_MAX]; /* by sequence number */
    uint64_t n, first;              /* said so far; the oldest that is still kept */
    unsigned subscribers, questions;
    bool is_old; /* its replays have no part for the topic: vLLM before 0.31 */
};

struct bench {
    struct loop *loop;
    struct zmq_context *zmq;
    struct engine engine;
    struct engine_source *source;
    struct buf log; /* S<hash>, R<hash>, C and ids as they came */
    uint64_t next_id;
    const char *adapter; /* that is listened to, and whose events' hashes have its name */
    struct str salt;     /* of its events; their tokens' hashes are to have it */
    const struct block_media *media; /* that its hashes are to have */
    size_t n_media;
    bool plain;
    unsigned filtered[N_KV_FILTERS];
};

#define WAIT_UNTIL(b, condition)                                                                   \
    do {                                                                                           \
        uint64_t wait_end_ = clock_now_ns() / 1000000 + DEADLINE_MS;                               \
        while (!(condition)) {                                                                     \
            loop_run_once((b)->loop, 20);                                                          \
            if (clock_now_ns() / 1000000 > wait_end_)                                              \
                fail_msg("not within %d ms: %s (%s)", DEADLINE_MS, #condition,                     \
                         buf_cstr(&(b)->log));                                                     \
        }                                                                                          \
    } while (0)
#define WAIT_LOG(b, text) WAIT_UNTIL(b, strcmp(buf_cstr(&(b)->log), text) == 0)

/* --- the engine ----------------------------------------------------------------------------------- */

static void on_subscription(void *arg, const struct str *frames, size_t n)
{
    struct engine *en = arg;

    assert_int_equal(n, 1);
    if (frames[0].ptr[0])
        en->subscribers++;
    else
        en->subscribers--;
}

static void send_numbered(const struct engine *en, struct str id, uint64_t sequence,
                          struct str batch)
{
    AUTO(buf_done) struct buf number = BUF_NULL;
    struct str frames[5] = {id};
    size_t n = en->is_old ? 2 : 3; /* an empty one, and the topic */

    buf_put_u64be(&number, sequence);
    frames[n++] = buf_str(&number);
    frames[n++] = batch;
    (void)zmq_link_send(en->router, frames, n);
}

static void on_question(void *arg, const struct str *frames, size_t n)
{
    struct engine *en = arg;

    assert_int_equal(n, 3);
    assert_int_equal(frames[1].len, 0);
    en->questions++;
    for (uint64_t i = MAX(load_u64be(frames[2].ptr), en->first); i < en->n; i++)
        send_numbered(en, frames[0], i, buf_str(&en->batches[i]));
    send_numbered(en, frames[0], UINT64_MAX, STR_NULL);
}

static void bind_one(struct bench *b, struct zmq_link **ret, enum zmq_kind kind, zmq_link_fn fn,
                     char **endpoint)
{
    const struct zmq_link_conf conf = {.kind = kind, .received = fn, .arg = &b->engine};
    struct err e;

    EXPECT_OK(zmq_link_new(ret, b->zmq, &conf, &e), &e);
    if (!*endpoint)
        *endpoint = xasprintf("tcp://127.0.0.1:%d", nats_test_port());
    while (zmq_link_bind(*ret, *endpoint, NULL, &e) < 0) /* until the one before has closed */
        loop_run_once(b->loop, 10);
}

static void engine_open(struct bench *b)
{
    bind_one(b, &b->engine.pub, ZMQ_KIND_XPUB, on_subscription, &b->engine.endpoint);
    bind_one(b, &b->engine.router, ZMQ_KIND_ROUTER, on_question, &b->engine.replay);
}

static void engine_close(struct engine *en)
{
    en->pub = zmq_link_free(en->pub);
    en->router = zmq_link_free(en->router);
    en->n = en->first = 0;
    en->subscribers = 0;
}

/* What a batch with this event is, kept under the next number. */
static void keep(struct engine *en, const struct engine_event *ev)
{
    struct buf *batch = &en->batches[en->n++];

    assert_true(en->n <= BUFFER_MAX);
    buf_clear(batch);
    engine_batch_begin_put(batch, 1.5, 1);
    engine_event_put(batch, ev);
    engine_batch_end_put(batch, 2);
}

static void publish_last(struct engine *en)
{
    AUTO(buf_done) struct buf number = BUF_NULL;
    struct str frames[3] = {STR("kv"), STR_NULL, buf_str(&en->batches[en->n - 1])};

    buf_put_u64be(&number, en->n - 1);
    frames[1] = buf_str(&number);
    (void)zmq_link_send(en->pub, frames, 3);
}

static const uint32_t TOKENS[] = {1, 2, 3, 4, 5, 6, 7, 8};

static struct engine_event stored(const uint64_t *hash)
{
    return (struct engine_event){.kind = KV_STORED,
                                 .hashes = hash,
                                 .n_hashes = 1,
                                 .tokens = TOKENS,
                                 .n_tokens = BLOCK_SIZE,
                                 .block_size = BLOCK_SIZE};
}

static void say(struct engine *en, uint64_t hash, bool heard)
{
    struct engine_event ev = stored(&hash);

    keep(en, &ev);
    if (heard)
        publish_last(en);
}

/* --- the source ----------------------------------------------------------------------------------- */

static void on_event(void *arg, const struct kv_event *ev, uint64_t sent_ms)
{
    struct bench *b = arg;
    const struct block_naming nm = {.seed = block_hash_seed(str_from(b->adapter), b->salt),
                                    .block_size = BLOCK_SIZE,
                                    .media = b->media,
                                    .n_media = b->n_media};
    uint64_t local;

    assert_true(ev->worker_id == WORKER && ev->dp_rank == 2);
    assert_int_equal(ev->event_id, b->next_id++);
    switch (ev->kind) {
    case KV_STORED:
        assert_int_equal(sent_ms, 1500);
        assert_int_equal(ev->n_blocks, 1);
        assert_int_equal(block_hash_local_named(&nm, TOKENS, BLOCK_SIZE, &local), 1);
        assert_true(ev->blocks[0].tokens_hash == local);
        buf_printf(&b->log, "S%u ", (unsigned)ev->blocks[0].block_hash);
        break;
    case KV_REMOVED:
        buf_printf(&b->log, "R%u ", (unsigned)ev->removed[0]);
        break;
    case KV_CLEARED:
        buf_put_cstr(&b->log, "C ");
        break;
    }
}

static void on_filtered(void *arg, enum kv_filter why)
{
    ((struct bench *)arg)->filtered[why]++;
}

static void source_open(struct bench *b, bool replay)
{
    const struct engine_source_conf conf = {.loop = b->loop,
                                            .zmq = b->zmq,
                                            .endpoint = b->engine.endpoint,
                                            .replay = replay ? b->engine.replay : NULL,
                                            .worker_id = WORKER,
                                            .dp_rank = 0, /* batches say 2 */
                                            .block_size = BLOCK_SIZE,
                                            .adapter = b->adapter,
                                            .salts_first = b->plain,
                                            .event = on_event,
                                            .filtered = on_filtered,
                                            .arg = b};
    struct err e;

    EXPECT_OK(engine_source_start(&b->source, &conf, &e), &e);
    WAIT_UNTIL(b, b->engine.subscribers == 1 && (!replay || b->engine.questions > 0));
}

static int set_up(void **state)
{
    struct bench *b = xcalloc(1, sizeof(*b));
    struct err e;

    EXPECT_OK(loop_new(&b->loop, &e), &e);
    EXPECT_OK(zmq_context_new(&b->zmq, b->loop, &e), &e);
    engine_open(b);
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    struct bench *b = *state;

    engine_source_free(b->source);
    engine_close(&b->engine);
    for (size_t i = 0; i < BUFFER_MAX; i++)
        buf_done(&b->engine.batches[i]);
    free(b->engine.endpoint);
    free(b->engine.replay);
    buf_done(&b->log);
    zmq_context_free(b->zmq);
    loop_free(b->loop);
    free(b);
    return 0;
}

/* --- tests ---------------------------------------------------------------------------------------- */

static void batches_become_events(void **state)
{
    struct bench *b = *state;
    uint64_t gone = 7;
    const struct engine_event removed = {.kind = KV_REMOVED, .hashes = &gone, .n_hashes = 1};
    const struct engine_event cleared = {.kind = KV_CLEARED};

    source_open(b, false);
    say(&b->engine, 7, true);
    keep(&b->engine, &removed);
    publish_last(&b->engine);
    keep(&b->engine, &cleared);
    publish_last(&b->engine);
    WAIT_LOG(b, "S7 R7 C ");
}

/* Of an engine that serves several; what goes does not say whose it was. */
static void only_the_adapter_that_is_asked_for(void **state)
{
    static const char *const adapters[] = {NULL, "a", "b", "a"};
    struct bench *b = *state;
    uint64_t gone = 1;
    const struct engine_event removed = {.kind = KV_REMOVED, .hashes = &gone, .n_hashes = 1};

    b->adapter = "a";
    source_open(b, false);
    for (uint64_t i = 0; i < ARRAY_LEN(adapters); i++) {
        struct engine_event ev = stored(&i);

        ev.lora_name = str_from(adapters[i]);
        keep(&b->engine, &ev);
        publish_last(&b->engine);
    }
    keep(&b->engine, &removed);
    publish_last(&b->engine);
    WAIT_LOG(b, "S1 S3 R1 ");
}

static void of_no_adapter(void **state)
{
    struct bench *b = *state;
    uint64_t one = 1, two = 2;
    struct engine_event ev = stored(&one);

    b->adapter = "";
    source_open(b, false);
    ev.lora_name = STR("a");
    keep(&b->engine, &ev);
    publish_last(&b->engine);
    say(&b->engine, two, true);
    WAIT_LOG(b, "S2 ");
}

static void what_was_said_before_is_asked_for(void **state)
{
    struct bench *b = *state;

    say(&b->engine, 1, false);
    say(&b->engine, 2, false);
    source_open(b, true);
    WAIT_LOG(b, "S1 S2 ");
    say(&b->engine, 3, true);
    WAIT_LOG(b, "S1 S2 S3 ");
    assert_int_equal(engine_source_stats(b->source).replayed, 2);
}

/* Whose parts are one less. */
static void an_older_engine_is_asked_too(void **state)
{
    struct bench *b = *state;

    b->engine.is_old = true;
    what_was_said_before_is_asked_for(state);
}

static void a_salt_tells_blocks_apart_where_it_is_wanted(void **state)
{
    struct bench *b = *state;
    uint64_t hash = 7;
    struct engine_event ev = stored(&hash);

    b->salt = ev.first_salt = STR("salty");
    b->plain = true;
    source_open(b, false);
    keep(&b->engine, &ev);
    publish_last(&b->engine);
    WAIT_LOG(b, "S7 ");
    b->source = engine_source_free(b->source);
    WAIT_UNTIL(b, b->engine.subscribers == 0);
    b->salt = STR_NULL;
    b->plain = false;
    b->next_id = 0;
    source_open(b, false);
    publish_last(&b->engine);
    WAIT_LOG(b, "S7 S7 ");
}

static void media_tell_blocks_apart(void **state)
{
    static const struct engine_medium said[] = {{0, 255}, {0, 7}}; /* not in the order of hashes */
    static const struct block_media images[] = {{0, 7}, {0, 255}};
    struct bench *b = *state;
    uint64_t hash = 7;
    struct engine_event ev = stored(&hash);

    ev.media = said;
    b->media = images;
    b->n_media = ev.n_media = 2;
    source_open(b, false);
    keep(&b->engine, &ev);
    publish_last(&b->engine);
    WAIT_LOG(b, "S7 ");
}

#define ZEROS47 "00000000000000000000000000000000000000000000000"

/* Of hash 7, with an image of that name among its keys. */
static void keep_keyed(struct engine *en, const char *name)
{
    struct buf *batch = &en->batches[en->n++];

    buf_clear(batch);
    engine_batch_begin_put(batch, 1.5, 1);
    msgpack_put_array(batch, 9);
    msgpack_put_cstr(batch, "BlockStored");
    msgpack_put_array(batch, 1);
    msgpack_put_u64(batch, 7);
    msgpack_put_nil(batch);
    msgpack_put_array(batch, BLOCK_SIZE);
    for (size_t i = 0; i < BLOCK_SIZE; i++)
        msgpack_put_u64(batch, TOKENS[i]);
    msgpack_put_u64(batch, BLOCK_SIZE);
    for (int i = 0; i < 3; i++)
        msgpack_put_nil(batch);
    msgpack_put_array(batch, 1);
    msgpack_put_array(batch, 1);
    msgpack_put_array(batch, 2);
    msgpack_put_cstr(batch, name);
    msgpack_put_u64(batch, 0);
    engine_batch_end_put(batch, 2);
}

/* All of them in plain engines, else those that have names of ai-dynamo. */
static void images_of_keys_tell_blocks_apart(void **state)
{
    static const struct block_media image = {0, 255};
    struct bench *b = *state;

    b->media = &image;
    b->n_media = 1;
    b->plain = true;
    source_open(b, false);
    keep_keyed(&b->engine, "00000000000000ff" ZEROS47 "a");
    publish_last(&b->engine);
    WAIT_LOG(b, "S7 ");
    b->source = engine_source_free(b->source);
    WAIT_UNTIL(b, b->engine.subscribers == 0);
    b->n_media = 0;
    b->plain = false;
    b->next_id = 0;
    source_open(b, false);
    publish_last(&b->engine);
    WAIT_LOG(b, "S7 S7 ");
    b->n_media = 1;
    keep_keyed(&b->engine, "00000000000000ff" ZEROS47 "0");
    publish_last(&b->engine);
    WAIT_LOG(b, "S7 S7 S7 ");
}

static void go_on(struct bench *b, uint64_t parent, uint64_t hash, const char *log)
{
    struct engine_event ev = stored(&hash);

    ev.parent_hash = OPT_U64(parent);
    keep(&b->engine, &ev);
    publish_last(&b->engine);
    WAIT_LOG(b, log);
}

static void a_salt_is_inherited_from_blocks_that_are_held(void **state)
{
    struct bench *b = *state;
    const uint64_t hashes[] = {7, 8};
    struct engine_event first = stored(hashes),
                        removed = {.kind = KV_REMOVED, .hashes = hashes, .n_hashes = 2};

    b->salt = STR("salty");
    first.first_salt = STR("dynamo-cache-salt:salty");
    source_open(b, false);
    keep(&b->engine, &first);
    publish_last(&b->engine);
    WAIT_LOG(b, "S7 ");
    go_on(b, 7, 8, "S7 S8 ");
    go_on(b, 8, 9, "S7 S8 S9 ");
    keep(&b->engine, &removed);
    publish_last(&b->engine);
    WAIT_LOG(b, "S7 S8 S9 R7 ");
    go_on(b, 9, 1, "S7 S8 S9 R7 S1 ");
    b->salt = STR_NULL; /* what was removed is not known any more */
    go_on(b, 8, 2, "S7 S8 S9 R7 S1 S2 ");
}

static void a_gap_is_filled_in_order(void **state)
{
    struct bench *b = *state;

    source_open(b, true);
    say(&b->engine, 1, true);
    WAIT_LOG(b, "S1 ");
    say(&b->engine, 2, false);
    say(&b->engine, 3, false);
    say(&b->engine, 4, true);
    say(&b->engine, 5, true);
    WAIT_LOG(b, "S1 S2 S3 S4 S5 ");
    assert_int_equal(engine_source_stats(b->source).gaps, 1);
    assert_int_equal(engine_source_stats(b->source).lost, 0);
}

/* Nobody hears the engine any more. */
static void pause_source(struct bench *b)
{
    engine_source_pause(b->source);
    assert_false(engine_source_connected(b->source));
    WAIT_UNTIL(b, b->engine.subscribers == 0);
}

static void what_came_in_a_pause_is_asked_for(void **state)
{
    struct bench *b = *state;

    source_open(b, true);
    say(&b->engine, 1, true);
    WAIT_LOG(b, "S1 ");
    pause_source(b);
    say(&b->engine, 2, true);
    say(&b->engine, 3, true);
    engine_source_resume(b->source);
    WAIT_LOG(b, "S1 S2 S3 ");
    WAIT_UNTIL(b, b->engine.subscribers == 1);
    say(&b->engine, 4, true);
    WAIT_LOG(b, "S1 S2 S3 S4 ");
    assert_int_equal(engine_source_stats(b->source).lost, 0);
    assert_int_equal(engine_source_stats(b->source).restarts, 0);
}

static void a_pause_without_replay_is_a_loss(void **state)
{
    struct bench *b = *state;

    source_open(b, false);
    say(&b->engine, 1, true);
    WAIT_LOG(b, "S1 ");
    pause_source(b);
    say(&b->engine, 2, true);
    engine_source_resume(b->source);
    WAIT_UNTIL(b, b->engine.subscribers == 1);
    say(&b->engine, 3, true);
    WAIT_LOG(b, "S1 S3 ");
    assert_int_equal(engine_source_stats(b->source).lost, 1);
}

static void what_the_engine_forgot_is_lost(void **state)
{
    struct bench *b = *state;

    source_open(b, true);
    say(&b->engine, 1, true);
    WAIT_LOG(b, "S1 ");
    say(&b->engine, 2, false);
    say(&b->engine, 3, false);
    b->engine.first = 2; /* its buffer is full */
    say(&b->engine, 4, true);
    WAIT_LOG(b, "S1 S3 S4 ");
    assert_int_equal(engine_source_stats(b->source).lost, 1);
}

static void without_replay_a_gap_is_a_loss(void **state)
{
    struct bench *b = *state;

    source_open(b, false);
    say(&b->engine, 1, true);
    WAIT_LOG(b, "S1 ");
    say(&b->engine, 2, false);
    say(&b->engine, 3, true);
    WAIT_LOG(b, "S1 S3 ");
}

static void a_new_engine_starts_empty(void **state)
{
    struct bench *b = *state;

    source_open(b, true);
    for (uint64_t i = 1; i <= 5; i++)
        say(&b->engine, i, true);
    WAIT_LOG(b, "S1 S2 S3 S4 S5 ");
    engine_close(&b->engine);
    say(&b->engine, 11, false); /* before we are there again */
    engine_open(b);
    WAIT_LOG(b, "S1 S2 S3 S4 S5 C S11 ");
    say(&b->engine, 12, true);
    WAIT_LOG(b, "S1 S2 S3 S4 S5 C S11 S12 ");
    assert_int_equal(engine_source_stats(b->source).restarts, 1);
}

/* Numbers that fall on one connection, as without a replay they show first there. */
static void a_fall_of_the_number_is_a_restart(void **state)
{
    struct bench *b = *state;

    source_open(b, false);
    say(&b->engine, 1, true);
    say(&b->engine, 2, true);
    WAIT_LOG(b, "S1 S2 ");
    b->engine.n = 0;
    say(&b->engine, 3, true);
    WAIT_LOG(b, "S1 S2 C S3 ");
}

static void what_does_not_fit_is_counted(void **state)
{
    struct bench *b = *state;
    uint64_t hash = 1;
    struct engine_event ev = stored(&hash);
    const struct str short_message[] = {STR("kv"), STR("12345678")};
    const struct str no_batch[] = {STR("kv"), STR("\0\0\0\0\0\0\0\2"), STR("nonsense")};

    source_open(b, false);
    ev.block_size = 16;
    keep(&b->engine, &ev);
    publish_last(&b->engine);
    ev = stored(&hash);
    ev.tier = KV_TIER_UNKNOWN;
    keep(&b->engine, &ev);
    publish_last(&b->engine);
    (void)zmq_link_send(b->engine.pub, short_message, 2);
    (void)zmq_link_send(b->engine.pub, no_batch, 3);
    WAIT_UNTIL(b, b->filtered[KV_FILTER_BAD] == 2);
    assert_int_equal(b->filtered[KV_FILTER_BLOCK_SIZE], 1);
    assert_int_equal(b->filtered[KV_FILTER_UNKNOWN_TIER], 1);
    assert_int_equal(b->next_id, 0);
}

#define E(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    return TEST_RUN(E(batches_become_events), E(only_the_adapter_that_is_asked_for),
                    E(of_no_adapter), E(what_was_said_before_is_asked_for),
                    E(an_older_engine_is_asked_too),
                    E(a_salt_tells_blocks_apart_where_it_is_wanted),
                    E(a_salt_is_inherited_from_blocks_that_are_held), E(media_tell_blocks_apart),
                    E(images_of_keys_tell_blocks_apart), E(a_gap_is_filled_in_order),
                    E(what_the_engine_forgot_is_lost), E(what_came_in_a_pause_is_asked_for),
                    E(a_pause_without_replay_is_a_loss), E(without_replay_a_gap_is_a_loss),
                    E(a_new_engine_starts_empty), E(a_fall_of_the_number_is_a_restart),
                    E(what_does_not_fit_is_counted));
}
