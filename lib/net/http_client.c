/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/http_client.h"

#include <errno.h>

#include "lib/base/list.h"
#include "lib/net/curl_lib.h"
#include "lib/net/uv_lib.h"

enum { CONNECTIONS_MAX = 64 };

/*
 * libcurl forbids most calls inside its callbacks, and our callers may do anything inside ours. So
 * whatever ends or starts a call in there only moves it between lists; leave() of the outermost
 * entry does the work, when libcurl is off the stack.
 */
struct http_client {
    struct loop *loop;
    CURLM *multi;
    struct http_easy_conf conf;
    struct timer *timer;  /* libcurl's one deadline */
    struct list starting; /* not with libcurl yet */
    struct list running;
    struct list over; /* to be taken from libcurl and freed */
    int depth;        /* entries on the stack */
    bool freed;
};

struct http_call {
    struct list link; /* in exactly one of the client's lists */
    struct http_client *client;
    CURL *easy;
    struct curl_slist *headers;
    struct timer *idle;
    uint64_t idle_ms;
    bool over; /* no callback any more */
    bool head_seen, paused;
    void (*field)(void *arg, struct str name, struct str value);
    void (*head)(void *arg, int status);
    void (*data)(void *arg, struct str bytes);
    void (*done)(void *arg, int status, int error, const char *why);
    void *arg;
    char why[CURL_ERROR_SIZE];
};

/* A socket that libcurl wants watched. */
struct watch {
    uv_poll_t uv; /* first: the handle is the allocation */
    struct http_client *client;
    curl_socket_t fd;
};

/* --- calls ----------------------------------------------------------------------------------- */

static void call_free(struct http_call *call)
{
    list_remove(&call->link);
    (void)curl_multi_remove_handle(call->client->multi, call->easy);
    curl_easy_cleanup(call->easy);
    curl_slist_free_all(call->headers);
    timer_free(call->idle);
    free(call);
}

static void call_move(struct http_call *call, struct list *to)
{
    list_remove(&call->link);
    list_append(to, &call->link);
}

static void call_over(struct http_call *call)
{
    call->over = true;
    if (call->idle)
        timer_stop(call->idle);
    call_move(call, &call->client->over);
}

static void client_destroy(struct http_client *c)
{
    (void)curl_multi_cleanup(c->multi);
    timer_free(c->timer);
    http_easy_conf_done(&c->conf);
    free(c);
}

static void enter(struct http_client *c)
{
    c->depth++;
}

/* The client may be gone afterwards. */
static void leave(struct http_client *c)
{
    if (--c->depth)
        return;
    while (!list_empty(&c->over))
        call_free(LIST_ENTRY(c->over.next, struct http_call, link));
    while (!list_empty(&c->starting)) {
        struct http_call *call = LIST_ENTRY(c->starting.next, struct http_call, link);

        call_move(call, &c->running);
        (void)curl_multi_add_handle(c->multi, call->easy); /* a fresh handle: cannot fail */
    }
    if (c->freed)
        client_destroy(c);
}

static int status_of(struct http_call *call)
{
    long status = 0;

    (void)curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    return (int)status;
}

/* Inside enter() and leave(). */
static void call_end(struct http_call *call, int error, const char *why)
{
    if (call->over)
        return;
    call_over(call);
    if (call->done)
        call->done(call->arg, status_of(call), error, why);
}

static void on_idle(void *arg)
{
    struct http_call *call = arg;
    struct http_client *c = call->client;

    enter(c);
    call_end(call, -ETIMEDOUT, "nothing received for too long");
    leave(c);
}

/* --- libcurl's callbacks --------------------------------------------------------------------- */

static void note_progress(struct http_call *call)
{
    if (call->idle)
        timer_start(call->idle, call->idle_ms);
}

static void tell_field(struct http_call *call, struct str line)
{
    struct str name, value = line;

    if (call->field && status_of(call) >= 200 && str_cut(&value, ':', &name))
        call->field(call->arg, name, str_trim(value));
}

/* One line at a time; an empty one ends a head, which may be that of an interim answer. */
static size_t on_header(char *line, size_t size, size_t n, void *arg)
{
    struct http_call *call = arg;
    int status;

    n *= size;
    if (call->over)
        return CURL_WRITEFUNC_ERROR;
    note_progress(call);
    if (str_trim(str_slice(line, n)).len) {
        tell_field(call, str_trim(str_slice(line, n)));
        return call->over ? CURL_WRITEFUNC_ERROR : n;
    }
    if (call->head_seen)
        return n;
    status = status_of(call);
    if (status >= 200) {
        call->head_seen = true;
        if (call->head)
            call->head(call->arg, status);
    }
    return call->over ? CURL_WRITEFUNC_ERROR : n;
}

static size_t on_data(char *bytes, size_t size, size_t n, void *arg)
{
    struct http_call *call = arg;

    n *= size;
    if (call->over)
        return CURL_WRITEFUNC_ERROR;
    note_progress(call);
    if (call->data)
        call->data(call->arg, str_slice(bytes, n));
    return call->over ? CURL_WRITEFUNC_ERROR : n;
}

static void collect_results(struct http_client *c)
{
    struct CURLMsg *m;
    int left;

    while ((m = curl_multi_info_read(c->multi, &left))) {
        struct http_call *call = NULL;
        CURLcode code = m->data.result;

        (void)curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &call);
        if (code == CURLE_OK)
            call_end(call, 0, "");
        else
            call_end(call, http_easy_errno(call->easy, code),
                     call->why[0] ? call->why : curl_easy_strerror(code));
    }
}

static void drive(struct http_client *c, curl_socket_t fd, int events)
{
    int running;

    enter(c);
    (void)curl_multi_socket_action(c->multi, fd, events, &running);
    collect_results(c);
    leave(c);
}

static void on_deadline(void *arg)
{
    drive(arg, CURL_SOCKET_TIMEOUT, 0);
}

static int on_timer_wanted(CURLM *multi, long delay_ms, void *arg)
{
    struct http_client *c = arg;

    (void)multi;
    if (delay_ms < 0)
        timer_stop(c->timer);
    else
        timer_start(c->timer, (uint64_t)delay_ms);
    return 0;
}

static void on_ready(uv_poll_t *h, int status, int events)
{
    struct watch *w = (struct watch *)h;
    int flags = 0;

    if (status < 0)
        flags = CURL_CSELECT_ERR;
    if (events & UV_READABLE)
        flags |= CURL_CSELECT_IN;
    if (events & UV_WRITABLE)
        flags |= CURL_CSELECT_OUT;
    drive(w->client, w->fd, flags);
}

static void on_watch_gone(uv_handle_t *h)
{
    free(h);
}

static struct watch *watch_new(struct http_client *c, curl_socket_t fd)
{
    struct watch *w = xcalloc(1, sizeof(*w));

    w->client = c;
    w->fd = fd;
    if (uv_poll_init_socket(loop_uv(c->loop), &w->uv, fd) < 0) {
        free(w);
        return NULL;
    }
    return w;
}

static int on_socket_wanted(CURL *easy, curl_socket_t fd, int what, void *arg, void *of_socket)
{
    struct http_client *c = arg;
    struct watch *w = of_socket;
    int events = (what & CURL_POLL_IN ? UV_READABLE : 0) | (what & CURL_POLL_OUT ? UV_WRITABLE : 0);

    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (w)
            uv_close((uv_handle_t *)&w->uv, on_watch_gone); /* leaves the poll set at once */
        (void)curl_multi_assign(c->multi, fd, NULL);
        return 0;
    }
    if (!w) {
        w = watch_new(c, fd);
        if (!w)
            return -1;
        (void)curl_multi_assign(c->multi, fd, w);
    }
    return uv_poll_start(&w->uv, events, on_ready) < 0 ? -1 : 0;
}

/* --- the client ------------------------------------------------------------------------------ */

/* Without it a name look-up would stop the loop. */
static bool looks_up_asynchronously(void)
{
    return curl_version_info(CURLVERSION_NOW)->features & CURL_VERSION_ASYNCHDNS;
}

int http_client_new(struct http_client **ret, struct loop *l, const struct http_client_conf *conf,
                    struct err *e)
{
    long per_host = conf->connections_max ? conf->connections_max : CONNECTIONS_MAX;
    struct http_client *c;
    int r;

    http_easy_global();
    if (!looks_up_asynchronously())
        return err_set(e, -ENOTSUP, "HTTP client: this libcurl looks up names in the foreground");
    c = xcalloc(1, sizeof(*c));
    r = http_easy_conf_init(&c->conf, conf, e);
    if (r == 0 && !(c->multi = curl_multi_init()))
        r = err_set(e, -ENOMEM, "no handle");
    if (r < 0) {
        http_easy_conf_done(&c->conf);
        free(c);
        return err_wrap(e, r, "HTTP client");
    }
    c->loop = l;
    list_init(&c->starting);
    list_init(&c->running);
    list_init(&c->over);
    c->timer = timer_new(l, on_deadline, c);
    (void)curl_multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, on_socket_wanted);
    (void)curl_multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c);
    (void)curl_multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, on_timer_wanted);
    (void)curl_multi_setopt(c->multi, CURLMOPT_TIMERDATA, c);
    (void)curl_multi_setopt(c->multi, CURLMOPT_MAX_HOST_CONNECTIONS, per_host);
    *ret = c;
    return 0;
}

struct http_client *http_client_free(struct http_client *c)
{
    if (!c)
        return NULL;
    enter(c);
    c->freed = true;
    LIST_FOREACH (call, &c->starting, struct http_call, link)
        call_over(call);
    LIST_FOREACH (call, &c->running, struct http_call, link)
        call_over(call);
    leave(c);
    return NULL;
}

struct http_call *http_client_start(struct http_client *c, const struct http_call_spec *spec)
{
    struct http_call *call = xcalloc(1, sizeof(*call));

    call->client = c;
    call->easy = curl_easy_init();
    if (!call->easy)
        abort(); /* memory is gone, as in xmalloc() */
    call->field = spec->field;
    call->head = spec->head;
    call->data = spec->data;
    call->done = spec->done;
    call->arg = spec->arg;
    http_easy_prepare(call->easy, &c->conf, spec, true, &call->headers);
    (void)curl_easy_setopt(call->easy, CURLOPT_PRIVATE, call);
    (void)curl_easy_setopt(call->easy, CURLOPT_ERRORBUFFER, call->why);
    (void)curl_easy_setopt(call->easy, CURLOPT_HEADERFUNCTION, on_header);
    (void)curl_easy_setopt(call->easy, CURLOPT_HEADERDATA, call);
    (void)curl_easy_setopt(call->easy, CURLOPT_WRITEFUNCTION, on_data);
    (void)curl_easy_setopt(call->easy, CURLOPT_WRITEDATA, call);
    if (spec->idle_ms) {
        call->idle_ms = spec->idle_ms;
        call->idle = timer_new(c->loop, on_idle, call);
        timer_start(call->idle, spec->idle_ms);
    }
    enter(c);
    list_append(&c->starting, &call->link);
    leave(c);
    return call;
}

struct http_call *http_call_cancel(struct http_call *call)
{
    struct http_client *c;

    if (!call || call->over)
        return NULL;
    c = call->client;
    enter(c);
    call_over(call);
    leave(c);
    return NULL;
}

void http_call_pause(struct http_call *call)
{
    if (call->over || call->paused)
        return;
    call->paused = true;
    if (call->idle)
        timer_stop(call->idle);
    (void)curl_easy_pause(call->easy, CURLPAUSE_RECV);
}

void http_call_resume(struct http_call *call)
{
    struct http_client *c = call->client;

    if (call->over || !call->paused)
        return;
    call->paused = false;
    if (call->idle)
        timer_start(call->idle, call->idle_ms);
    enter(c);
    (void)curl_easy_pause(call->easy, CURLPAUSE_CONT);
    leave(c);
}
