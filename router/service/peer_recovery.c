/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/peer_recovery.h"

#include <errno.h>

#include "lib/base/json_pull.h"
#include "lib/base/log.h"
#include "lib/net/http_client.h"

static const struct log_target LG = {"commutator::router::peers"};

enum { DELAY_MS = 1000, IDLE_MS = 10000, URL_BYTES_MAX = 1024 };

struct peer_recovery {
    struct peer_recovery_conf conf;
    struct http_client *http;
    struct http_call *call;
    struct timer *delay;
    char *peers[PEERS_MAX];
    size_t n_peers, next; /* next: whom to ask if this one fails */
    struct buf body;
    bool too_large;
};

/* --- reading a dump --------------------------------------------------------------------------- */

static int parse_group(struct str key, struct str json, const struct peer_recovery_conf *conf,
                       struct err *e)
{
    struct kv_event_reader reader = {.blocks = NULL};
    struct str member, events = STR_NULL, model;
    uint64_t block_size = 0;
    struct json_pull p;
    size_t colon = key.len;
    void *group;
    int r;

    json_pull_init(&p, json);
    if (json_pull_object(&p)) {
        while (json_pull_key(&p, &member)) {
            if (str_is(member, "block_size"))
                (void)json_pull_u64(&p, &block_size);
            else
                (void)json_pull_skip(&p, str_is(member, "events") ? &events : NULL);
        }
    }
    r = json_pull_end(&p, e);
    if (r < 0)
        return r;
    while (colon > 0 && key.ptr[colon - 1] != ':')
        colon--;
    if (colon == 0 || block_size == 0 || block_size > UINT32_MAX || events.len == 0)
        return err_set(e, -EINVAL, "'%.*s' is no group", STR_ARG(key));
    model = str_head(key, colon - 1);
    group = conf->group(conf->arg, model, str_skip(key, colon), (uint32_t)block_size);
    if (!group || str_is(events, "[]"))
        return 0;
    r = kv_events_parse(&reader, events, conf->event, group, e);
    kv_event_reader_done(&reader);
    return r;
}

int peer_dump_parse(struct str json, const struct peer_recovery_conf *conf, struct err *e)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct str key, value = STR_NULL;
    struct json_pull p;
    int r = 0;

    json_pull_init(&p, json);
    if (!json_pull_object(&p))
        json_pull_fail(&p, "a dump is an object");
    while (r == 0 && json_pull_ok(&p) && json_pull_key(&p, &key) && json_pull_skip(&p, &value)) {
        buf_clear(&scratch);
        if (!json_unescape(key, &scratch))
            return err_set(e, -EINVAL, "a name is malformed");
        r = parse_group(buf_str(&scratch), value, conf, e);
    }
    return r < 0 ? r : json_pull_end(&p, e);
}

/* --- asking ----------------------------------------------------------------------------------- */

static void ask_next(struct peer_recovery *p);

static void on_data(void *arg, struct str bytes)
{
    struct peer_recovery *p = arg;

    p->too_large = p->too_large || p->body.len + bytes.len > PEER_DUMP_BYTES_MAX;
    if (!p->too_large)
        buf_put_str(&p->body, bytes);
}

static void on_done(void *arg, int status, int error, const char *why)
{
    struct peer_recovery *p = arg;
    const char *peer = p->peers[p->next - 1];
    struct err e = {""};
    int r = error;

    p->call = NULL;
    if (r == 0 && (status != 200 || p->too_large))
        r = err_set(&e, -EIO, p->too_large ? "the dump is too large" : "status %d", status);
    else if (r < 0)
        (void)err_set(&e, r, "%s", why);
    else
        r = peer_dump_parse(buf_str(&p->body), &p->conf, &e);
    if (r < 0) {
        log_warn(&LG, "no dump from this peer", LOG_STR("peer", peer), LOG_STR("why", e.text));
        ask_next(p);
        return;
    }
    log_info(&LG, "dump applied", LOG_STR("peer", peer), LOG_U64("bytes", p->body.len));
    buf_done(&p->body);
}

static void ask_next(struct peer_recovery *p)
{
    AUTO(mem_free) char *url = NULL;
    struct http_call_spec spec = {
        .method = "GET", .idle_ms = IDLE_MS, .data = on_data, .done = on_done, .arg = p};

    buf_done(&p->body);
    p->too_large = false;
    if (p->next >= p->n_peers)
        return;
    url = xasprintf("%s/dump", p->peers[p->next++]);
    spec.url = url;
    p->call = http_client_start(p->http, &spec);
}

static void on_delay(void *arg)
{
    struct peer_recovery *p = arg;

    if (p->call)
        p->call = http_call_cancel(p->call);
    p->next = 0;
    ask_next(p);
}

void peer_recovery_ask(struct peer_recovery *p)
{
    if (p->n_peers > 0 && !timer_active(p->delay))
        timer_start(p->delay, p->conf.delay_ms);
}

/* --- peers ------------------------------------------------------------------------------------ */

static size_t find_peer(const struct peer_recovery *p, struct str url)
{
    size_t i = 0;

    while (i < p->n_peers && !str_is(url, p->peers[i]))
        i++;
    return i;
}

static struct str without_slash(struct str url)
{
    return str_ends(url, STR("/")) ? str_head(url, url.len - 1) : url;
}

int peer_recovery_add(struct peer_recovery *p, struct str url, struct err *e)
{
    url = without_slash(str_trim(url));
    if (!str_starts(url, STR("http://")) || url.len > URL_BYTES_MAX)
        return err_set(e, -EINVAL, "peer '%.*s' is no http:// URL", STR_ARG(url));
    if (find_peer(p, url) < p->n_peers)
        return 0;
    if (p->n_peers == PEERS_MAX)
        return err_set(e, -ENOSPC, "more than %d peers", PEERS_MAX);
    p->peers[p->n_peers++] = str_dup(url);
    return 0;
}

static int add_list(struct peer_recovery *p, struct str urls, struct err *e)
{
    struct str one;
    int r = 0;

    for (bool more = urls.len > 0; more && r == 0;) {
        more = str_cut(&urls, ',', &one);
        if (str_trim(one).len > 0)
            r = peer_recovery_add(p, one, e);
    }
    return r;
}

bool peer_recovery_remove(struct peer_recovery *p, struct str url)
{
    size_t i = find_peer(p, without_slash(str_trim(url)));

    if (i == p->n_peers)
        return false;
    if (p->call) { /* positions shift under it */
        p->call = http_call_cancel(p->call);
        timer_start(p->delay, p->conf.delay_ms);
    }
    free(p->peers[i]);
    p->n_peers--;
    for (; i < p->n_peers; i++)
        p->peers[i] = p->peers[i + 1];
    return true;
}

void peer_recovery_put(const struct peer_recovery *p, struct json_put *j)
{
    json_put_array(j);
    for (size_t i = 0; i < p->n_peers; i++)
        json_put_cstr(j, p->peers[i]);
    json_put_array_end(j);
}

int peer_recovery_new(struct peer_recovery **ret, const struct peer_recovery_conf *conf,
                      struct err *e)
{
    AUTO(peer_recovery_free) struct peer_recovery *p = xcalloc(1, sizeof(*p));
    int r;

    p->conf = *conf;
    p->conf.delay_ms = conf->delay_ms ? conf->delay_ms : DELAY_MS;
    p->delay = timer_new(conf->loop, on_delay, p);
    r = http_client_new(&p->http, conf->loop, &(struct http_client_conf){.connections_max = 1}, e);
    if (r < 0)
        return r;
    if (conf->urls && add_list(p, str_from(conf->urls), e) < 0)
        return err_wrap(e, -EINVAL, "%s", conf->flag);
    *ret = TAKE(p);
    return 0;
}

struct peer_recovery *peer_recovery_free(struct peer_recovery *p)
{
    if (!p)
        return NULL;
    http_client_free(p->http);
    timer_free(p->delay);
    for (size_t i = 0; i < p->n_peers; i++)
        free(p->peers[i]);
    buf_done(&p->body);
    free(p);
    return NULL;
}
