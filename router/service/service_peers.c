/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/service_peers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/digest.h"
#include "lib/base/log.h"
#include "lib/base/map64.h"
#include "lib/net/zmq_link.h"

static const struct log_target LG = {"commutator::router::peers"};

enum { TICK_MS = 1000 };

struct service_peers {
    struct service_peers_conf conf;
    uint64_t id;
    struct zmq_link *out, *in;
    char *endpoints[SERVICE_PEERS_MAX]; /* in order */
    size_t n_endpoints;
    struct map64 heard_ms; /* router id -> last */
    size_t n_alive;
    struct timer *tick;
    struct sequence_event_reader reader;
    struct metric *heard[N_REPLICA_OUTCOMES], *bad, *sent, *lost, *alive;
};

/* --- telling ---------------------------------------------------------------------------------- */

static void send_message(struct service_peers *p, const char *topic, const struct buf *payload)
{
    const struct str frames[] = {str_from(topic), buf_str(payload)};

    metric_add(zmq_link_send(p->out, frames, ARRAY_LEN(frames)) == 0 ? p->sent : p->lost, 1);
}

static void tell(struct service_peers *p, const struct kv_group *g, struct sequence_event *ev)
{
    AUTO(buf_done) struct buf payload = BUF_NULL;

    ev->router_id = p->id;
    service_sequence_put(&payload, &(struct service_sequence){.model = str_from(g->model),
                                                              .group = str_from(g->name),
                                                              .block_size = g->block_size,
                                                              .event = *ev});
    send_message(p, SERVICE_TOPIC_SEQUENCE, &payload);
}

void service_peers_tell_placed(struct service_peers *p, const struct kv_group *g,
                               const struct route_booked *b)
{
    struct sequence_event ev = {.request_id = b->id,
                                .worker_id = b->worker.worker_id,
                                .dp_rank = b->worker.dp_rank,
                                .kind = SEQUENCE_ADD,
                                .sequence = b->sequence,
                                .n_sequence = b->n_blocks,
                                .prefill_tokens = {true, b->prefill_tokens}};

    if (p)
        tell(p, g, &ev);
}

void service_peers_tell(struct service_peers *p, const struct kv_group *g, struct str request_id,
                        struct worker_rank worker, enum sequence_event_kind kind)
{
    struct sequence_event ev = {.request_id = request_id,
                                .worker_id = worker.worker_id,
                                .dp_rank = worker.dp_rank,
                                .kind = kind};

    if (p)
        tell(p, g, &ev);
}

void service_peers_tell_bound(struct service_peers *p, const struct kv_group *g,
                              const struct session_event *s)
{
    AUTO(buf_done) struct buf payload = BUF_NULL;
    struct session_event placed = *s;

    if (!p)
        return;
    placed.model = str_from(g->model);
    placed.group = str_from(g->name);
    session_event_put(&payload, &placed);
    send_message(p, SERVICE_TOPIC_SESSION, &payload);
}

uint64_t service_peers_id(const struct service_peers *p)
{
    return p ? p->id : 0;
}

/* --- hearing ---------------------------------------------------------------------------------- */

static void set_alive(struct service_peers *p, size_t n)
{
    if (n == p->n_alive)
        return;
    p->n_alive = n;
    metric_set(p->alive, (double)n);
    kv_groups_set_replicas(p->conf.groups, n + 1);
}

/* Who is silent is forgotten: it comes back with its next word. */
static void on_tick(void *arg)
{
    struct service_peers *p = arg;
    uint64_t now_ms = loop_now_ms(p->conf.loop), silent[REPLICA_ROUTERS_MAX], id, last_ms;
    size_t at = 0, n = 0;

    while (map64_next(&p->heard_ms, &at, &id, &last_ms))
        if (now_ms >= last_ms + REPLICA_SILENCE_MS)
            silent[n++] = id;
    while (n)
        (void)map64_remove(&p->heard_ms, silent[--n], NULL);
    set_alive(p, p->heard_ms.len);
}

static void hear_router(struct service_peers *p, uint64_t id)
{
    if (p->heard_ms.len == REPLICA_ROUTERS_MAX && !map64_find(&p->heard_ms, id))
        return;
    *map64_put(&p->heard_ms, id, NULL) = loop_now_ms(p->conf.loop);
    set_alive(p, p->heard_ms.len);
}

static void on_bad(struct service_peers *p, const struct err *e)
{
    metric_add(p->bad, 1);
    log_debug(&LG, "message of a peer cannot be read, ignoring", LOG_STR("why", e->text));
}

static void on_placed(struct service_peers *p, struct str payload)
{
    enum replica_outcome outcome = REPLICA_UNKNOWN_WORKER;
    struct service_sequence s;
    struct kv_group *g;
    struct err e;

    if (service_sequence_decode(&p->reader, payload, &s, &e) < 0) {
        on_bad(p, &e);
        return;
    }
    g = kv_groups_find(p->conf.groups, s.model, s.group);
    if (s.event.router_id == p->id) {
        outcome = REPLICA_OWN;
    } else {
        hear_router(p, s.event.router_id);
        if (g && g->block_size == s.block_size)
            outcome = p->conf.placed(p->conf.arg, g, &s.event);
    }
    metric_add(p->heard[outcome], 1);
}

static void on_bound(struct service_peers *p, struct str payload)
{
    enum replica_outcome outcome = REPLICA_UNKNOWN_WORKER;
    struct session_event s;
    struct kv_group *g;
    struct err e;

    if (session_event_decode(payload, &s, &e) < 0) {
        on_bad(p, &e);
        return;
    }
    g = s.model.ptr && s.group.ptr ? kv_groups_find(p->conf.groups, s.model, s.group) : NULL;
    if (g)
        outcome = p->conf.bound(p->conf.arg, g, &s);
    metric_add(p->heard[outcome], 1);
}

static void on_message(void *arg, const struct str *frames, size_t n_frames)
{
    struct service_peers *p = arg;
    struct err e;

    if (n_frames == 2 && str_is(frames[0], SERVICE_TOPIC_SEQUENCE)) {
        on_placed(p, frames[1]);
    } else if (n_frames == 2 && str_is(frames[0], SERVICE_TOPIC_SESSION)) {
        if (p->conf.bound)
            on_bound(p, frames[1]);
    } else {
        (void)err_set(&e, -EBADMSG, "%zu parts, or a topic that is not ours", n_frames);
        on_bad(p, &e);
    }
}

/* --- peers ------------------------------------------------------------------------------------ */

static int check_endpoint(struct str endpoint, struct err *e)
{
    struct str scheme = str_head(endpoint, str_index(endpoint, ':'));
    struct str rest = str_skip(endpoint, scheme.len + 3);

    if (!str_starts(str_skip(endpoint, scheme.len), STR("://")))
        return err_set(e, -EINVAL, "invalid ZMQ endpoint `%.*s`: missing scheme",
                       STR_ARG(endpoint));
    if (str_is(scheme, "ipc"))
        return 0;
    if (!str_is(scheme, "tcp"))
        return err_set(e, -EINVAL, "invalid ZMQ endpoint `%.*s`: unsupported scheme `%.*s`",
                       STR_ARG(endpoint), STR_ARG(scheme));
    if (!str_has(rest, STR(":")))
        return err_set(e, -EINVAL, "invalid ZMQ endpoint `%.*s`: missing TCP port",
                       STR_ARG(endpoint));
    return 0;
}

/* Where it stands, or belongs. */
static size_t position_of(const struct service_peers *p, const char *endpoint, bool *ret_there)
{
    size_t i = 0;

    while (i < p->n_endpoints && strcmp(p->endpoints[i], endpoint) < 0)
        i++;
    *ret_there = i < p->n_endpoints && strcmp(p->endpoints[i], endpoint) == 0;
    return i;
}

/* 1 when it is new, 0 when it is known. -EINVAL, -ENOSPC. */
static int add_peer(struct service_peers *p, struct str endpoint, struct err *e)
{
    AUTO(mem_free) char *text = str_dup(endpoint);
    bool there;
    size_t at;
    int r = check_endpoint(endpoint, e);

    if (r < 0)
        return r;
    at = position_of(p, text, &there);
    if (there)
        return 0;
    if (p->n_endpoints == SERVICE_PEERS_MAX)
        return err_set(e, -ENOSPC, "more than %d peers", SERVICE_PEERS_MAX);
    if (zmq_link_connect(p->in, text, e) < 0)
        return -EINVAL;
    memmove(&p->endpoints[at + 1], &p->endpoints[at],
            (p->n_endpoints - at) * sizeof(*p->endpoints));
    p->endpoints[at] = TAKE(text);
    p->n_endpoints++;
    return 1;
}

static void remove_peer(struct service_peers *p, struct str endpoint)
{
    AUTO(mem_free) char *text = str_dup(endpoint);
    bool there;
    size_t at = position_of(p, text, &there);

    if (!there)
        return;
    zmq_link_disconnect(p->in, text);
    free(p->endpoints[at]);
    p->n_endpoints--;
    memmove(&p->endpoints[at], &p->endpoints[at + 1],
            (p->n_endpoints - at) * sizeof(*p->endpoints));
}

/* --- routes ----------------------------------------------------------------------------------- */

int service_peers_list(struct service_peers *p, struct rest_call *c)
{
    json_put_array(&c->json);
    for (size_t i = 0; p && i < p->n_endpoints; i++)
        json_put_cstr(&c->json, p->endpoints[i]);
    json_put_array_end(&c->json);
    return 200;
}

/* 0, or the status of the error that was written. */
static int read_endpoint(struct service_peers *p, struct rest_call *c, struct str *ret)
{
    static const struct body_field table[] = {{"endpoint", BODY_STR, 0, true}};
    int status = rest_body(c, table, ARRAY_LEN(table), ret);
    struct err e;

    if (status)
        return status;
    if (!p)
        return rest_error(c, 409, "replica sync is disabled");
    return check_endpoint(*ret, &e) < 0 ? rest_error(c, 400, "%s", e.text) : 0;
}

int service_peers_register(struct service_peers *p, struct rest_call *c)
{
    struct str endpoint = STR_NULL;
    int status = read_endpoint(p, c, &endpoint), r;
    struct err e;

    if (status)
        return status;
    r = add_peer(p, endpoint, &e);
    if (r < 0)
        return rest_error(c, r == -ENOSPC ? 503 : 400, "%s", e.text);
    return rest_ok(c, r ? 201 : 200);
}

int service_peers_deregister(struct service_peers *p, struct rest_call *c)
{
    struct str endpoint = STR_NULL;
    int status = read_endpoint(p, c, &endpoint);

    if (status)
        return status;
    remove_peer(p, endpoint);
    return rest_ok(c, 200);
}

/* --- life ------------------------------------------------------------------------------------- */

static struct metric_family *family(const struct service_peers_conf *c, enum metric_type type,
                                    const char *what, const char *help, const char *label)
{
    AUTO(mem_free) char *name = xasprintf("%s_%s", c->prefix, what);

    return metric_family(
        c->metrics,
        &(struct metric_desc){.name = name, .help = help, .type = type, .labels = {label}});
}

static void init_metrics(struct service_peers *p)
{
    const struct service_peers_conf *c = &p->conf;
    struct metric_family *heard = family(c, METRIC_COUNTER, "replica_heard_total",
                                         "Messages of peers, by what was done", "outcome");
    struct metric_family *sent =
        family(c, METRIC_COUNTER, "replica_sent_total",
               "Messages for peers, by whether they could leave", "outcome");

    for (size_t i = 0; i < N_REPLICA_OUTCOMES; i++)
        p->heard[i] = metric_with(heard, REPLICA_OUTCOME_WORDS[i]);
    p->bad = metric_with(heard, "bad");
    p->sent = metric_with(sent, "sent");
    p->lost = metric_with(sent, "lost");
    p->alive = metric_plain(
        family(c, METRIC_GAUGE, "replica_routers", "Peers that were heard of late", NULL));
}

static int open_links(struct service_peers *p, struct err *e)
{
    const struct zmq_link_conf in = {.kind = ZMQ_KIND_SUB, .received = on_message, .arg = p};
    const struct zmq_link_conf out = {.kind = ZMQ_KIND_PUB};
    bool is_v6 = strchr(p->conf.host, ':') != NULL;
    AUTO(mem_free)
    char *address = xasprintf(is_v6 ? "tcp://[%s]:%u" : "tcp://%s:%u", p->conf.host, p->conf.port);
    int r = zmq_link_new(&p->out, p->conf.zmq, &out, e);

    if (r == 0)
        r = zmq_link_bind(p->out, address, NULL, e);
    if (r == 0)
        r = zmq_link_new(&p->in, p->conf.zmq, &in, e);
    return r < 0 ? r : zmq_link_subscribe(p->in, STR("dynamo."), e);
}

static int add_peers(struct service_peers *p, struct err *e)
{
    struct str rest = str_from(p->conf.peers), endpoint;
    bool more = p->conf.peers != NULL;

    while (more) {
        more = str_cut(&rest, ',', &endpoint);
        if (add_peer(p, str_trim(endpoint), e) < 0)
            return -EINVAL;
    }
    return 0;
}

int service_peers_new(struct service_peers **ret, const struct service_peers_conf *conf,
                      struct err *e)
{
    AUTO(service_peers_free) struct service_peers *p = NULL;
    int r;

    if (conf->port == 0) {
        *ret = NULL;
        return conf->peers ? err_set(e, -EINVAL, "--replica-sync-peers needs --replica-sync-port")
                           : 0;
    }
    p = xcalloc(1, sizeof(*p));
    p->conf = *conf;
    p->id = random_u64();
    init_metrics(p);
    r = open_links(p, e);
    if (r == 0)
        r = add_peers(p, e);
    if (r < 0)
        return r;
    p->tick = timer_new(conf->loop, on_tick, p);
    timer_start_repeat(p->tick, TICK_MS);
    log_info(&LG, "replica sync", LOG_U64("port", conf->port), LOG_U64("peers", p->n_endpoints));
    *ret = TAKE(p);
    return 0;
}

struct service_peers *service_peers_free(struct service_peers *p)
{
    if (!p)
        return NULL;
    timer_free(p->tick);
    zmq_link_free(p->in);
    zmq_link_free(p->out);
    for (size_t i = 0; i < p->n_endpoints; i++)
        free(p->endpoints[i]);
    map64_done(&p->heard_ms);
    sequence_event_reader_done(&p->reader);
    free(p);
    return NULL;
}
