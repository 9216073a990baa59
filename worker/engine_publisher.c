/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine_publisher.h"

#include "lib/net/loop.h"
#include "lib/net/zmq_link.h"
#include "router/wire/engine_batch.h"

enum { PARTS = 3 };

struct engine_publisher {
    struct engine_publisher_conf conf;
    struct zmq_link *pub, *router;
    struct buf *steps; /* the last batches, by sequence number modulo ENGINE_STEPS_MAX */
    uint64_t next;
    uint64_t *hashes;
    size_t cap_hashes;
};

static void send_step(struct engine_publisher *p, struct str peer, uint64_t sequence,
                      struct str batch)
{
    AUTO(buf_done) struct buf number = BUF_NULL;
    struct str frames[PARTS + 2] = {peer, STR_NULL, STR_NULL, STR_NULL, batch}; /* with a topic */

    buf_put_u64be(&number, sequence);
    frames[3] = buf_str(&number);
    (void)zmq_link_send(p->router, frames, ARRAY_LEN(frames));
}

static void on_question(void *arg, const struct str *frames, size_t n)
{
    struct engine_publisher *p = arg;
    uint64_t oldest = p->next > ENGINE_STEPS_MAX ? p->next - ENGINE_STEPS_MAX : 0;

    if (n != PARTS || frames[2].len != sizeof(uint64_t))
        return;
    for (uint64_t i = MAX(load_u64be(frames[2].ptr), oldest); i < p->next; i++)
        send_step(p, frames[0], i, buf_str(&p->steps[i % ENGINE_STEPS_MAX]));
    send_step(p, frames[0], UINT64_MAX, STR_NULL);
}

static int bind_to(struct zmq_link *z, uint16_t port, struct err *e)
{
    AUTO(mem_free) char *endpoint = xasprintf("tcp://0.0.0.0:%u", port);

    return zmq_link_bind(z, endpoint, NULL, e);
}

int engine_publisher_new(struct engine_publisher **ret, const struct engine_publisher_conf *conf,
                         struct err *e)
{
    AUTO(engine_publisher_free) struct engine_publisher *p = xcalloc(1, sizeof(*p));
    const struct zmq_link_conf pub = {.kind = ZMQ_KIND_PUB};
    const struct zmq_link_conf router = {
        .kind = ZMQ_KIND_ROUTER, .received = on_question, .arg = p};
    int r;

    p->conf = *conf;
    p->steps = xcalloc(ENGINE_STEPS_MAX, sizeof(*p->steps));
    r = zmq_link_new(&p->pub, conf->zmq, &pub, e);
    if (r == 0)
        r = bind_to(p->pub, conf->port, e);
    if (r == 0 && conf->replay_port)
        r = zmq_link_new(&p->router, conf->zmq, &router, e);
    if (r == 0 && conf->replay_port)
        r = bind_to(p->router, conf->replay_port, e);
    if (r < 0)
        return err_wrap(e, r, "engine events");
    *ret = TAKE(p);
    return 0;
}

struct engine_publisher *engine_publisher_free(struct engine_publisher *p)
{
    if (!p)
        return NULL;
    zmq_link_free(p->pub);
    zmq_link_free(p->router);
    for (size_t i = 0; i < ENGINE_STEPS_MAX; i++)
        buf_done(&p->steps[i]);
    free(p->steps);
    free(p->hashes);
    free(p);
    return NULL;
}

static void put_stored(struct engine_publisher *p, const struct cache_event *ev, struct buf *out)
{
    struct engine_event stored = {.kind = KV_STORED,
                                  .tier = KV_TIER_DEVICE,
                                  .parent_hash = {ev->has_parent, ev->parent},
                                  .n_hashes = ev->n_blocks,
                                  .tokens = ev->tokens,
                                  .n_tokens = ev->n_blocks * p->conf.block_size,
                                  .block_size = p->conf.block_size};

    if (ev->n_blocks > p->cap_hashes) {
        p->cap_hashes = ev->n_blocks;
        p->hashes = xreallocarray(p->hashes, p->cap_hashes, sizeof(*p->hashes));
    }
    for (size_t i = 0; i < ev->n_blocks; i++)
        p->hashes[i] = ev->blocks[i].hash;
    stored.hashes = p->hashes;
    engine_event_put(out, &stored);
}

void engine_publisher_send(struct engine_publisher *p, const struct cache_event *ev)
{
    const struct engine_event removed = {.kind = KV_REMOVED,
                                         .tier = KV_TIER_DEVICE,
                                         .hashes = ev->removed,
                                         .n_hashes = ev->n_removed};
    struct buf *step = &p->steps[p->next % ENGINE_STEPS_MAX];
    AUTO(buf_done) struct buf number = BUF_NULL;
    struct str frames[PARTS] = {STR_NULL};

    buf_clear(step);
    engine_batch_begin_put(step, (double)clock_wall_ms() / 1000, 1);
    if (ev->kind == CACHE_STORED)
        put_stored(p, ev, step);
    else
        engine_event_put(step, &removed);
    engine_batch_end_put(step, p->conf.dp_rank);
    buf_put_u64be(&number, p->next++);
    frames[1] = buf_str(&number);
    frames[2] = buf_str(step);
    (void)zmq_link_send(p->pub, frames, PARTS);
}
