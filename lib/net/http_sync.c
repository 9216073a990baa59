/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/http_client.h"

#include <errno.h>
#include <strings.h>

#include "lib/net/curl_lib.h"

/* One transfer; the handles are kept from call to call. */
struct lane {
    CURL *easy;
    struct http_sync_job *job; /* NULL = idle */
    struct curl_slist *headers;
    size_t room; /* bytes of the answer that may still come */
    size_t body_before;
    bool overflowed;
    char why[CURL_ERROR_SIZE];
};

struct http_sync {
    struct http_easy_conf conf;
    CURLM *multi; /* holds the connections */
    struct lane lanes[HTTP_SYNC_JOBS_MAX];
};

int http_sync_new(struct http_sync **ret, const struct http_client_conf *conf, struct err *e)
{
    AUTO(http_sync_free) struct http_sync *c = xcalloc(1, sizeof(*c));
    int r;

    http_easy_global();
    r = http_easy_conf_init(&c->conf, conf, e);
    if (r < 0)
        return err_wrap(e, r, "HTTP client");
    c->multi = curl_multi_init();
    if (!c->multi)
        return err_set(e, -ENOMEM, "HTTP client: no handle");
    *ret = TAKE(c);
    return 0;
}

struct http_sync *http_sync_free(struct http_sync *c)
{
    if (!c)
        return NULL;
    for (size_t i = 0; i < HTTP_SYNC_JOBS_MAX; i++)
        curl_easy_cleanup(c->lanes[i].easy);
    (void)curl_multi_cleanup(c->multi);
    http_easy_conf_done(&c->conf);
    free(c);
    return NULL;
}

static size_t on_data(char *bytes, size_t size, size_t n, void *arg)
{
    struct lane *l = arg;

    n *= size;
    if (n > l->room) {
        l->overflowed = true;
        return CURL_WRITEFUNC_ERROR;
    }
    l->room -= n;
    buf_put(l->job->body, bytes, n);
    return n;
}

/* With idle_ms, libcurl's own watch serves, in whole seconds: less than a byte a second for so
 * long. */
static void set_idle(CURL *easy, uint64_t idle_ms)
{
    if (!idle_ms)
        return;
    (void)curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (long)((idle_ms + 999) / 1000));
}

static bool starts_tls(const char *url)
{
    return strncasecmp(url, "https:", 6) == 0;
}

static void tell(struct http_sync_job *job)
{
    if (job->done)
        job->done(job->arg, job);
}

static void start(struct http_sync *c, struct lane *l, struct http_sync_job *job)
{
    if (!l->easy)
        l->easy = curl_easy_init();
    if (!l->easy) {
        job->r = err_set(&job->err, -ENOMEM, "HTTP client: no handle");
        tell(job);
        return;
    }
    l->job = job;
    l->room = job->max_body;
    l->body_before = job->body->len;
    l->overflowed = false;
    l->why[0] = '\0';
    curl_easy_reset(l->easy);
    http_easy_prepare(l->easy, &c->conf, &job->spec, false, &l->headers);
    (void)curl_easy_setopt(l->easy, CURLOPT_PRIVATE, l);
    (void)curl_easy_setopt(l->easy, CURLOPT_WRITEFUNCTION, on_data);
    (void)curl_easy_setopt(l->easy, CURLOPT_WRITEDATA, l);
    (void)curl_easy_setopt(l->easy, CURLOPT_ERRORBUFFER, l->why);
    /* Rather wait for the connection that is being made than make one more; a plain one is
     * HTTP/1.1 and would only be waited for in vain. */
    (void)curl_easy_setopt(l->easy, CURLOPT_PIPEWAIT, starts_tls(job->spec.url) ? 1L : 0L);
    set_idle(l->easy, job->spec.idle_ms);
    (void)curl_multi_add_handle(c->multi, l->easy);
}

static void finish(struct http_sync *c, struct lane *l, CURLcode code)
{
    struct http_sync_job *job = l->job;
    long status = 0;

    (void)curl_easy_getinfo(l->easy, CURLINFO_RESPONSE_CODE, &status);
    job->status = (int)status;
    job->r = 0;
    if (l->overflowed)
        job->r = err_set(&job->err, -EMSGSIZE, "%s %s: answer larger than %zu bytes",
                         job->spec.method, job->spec.url, job->max_body);
    else if (code != CURLE_OK)
        job->r = err_set(&job->err, http_easy_errno(l->easy, code), "%s %s: %s", job->spec.method,
                         job->spec.url, l->why[0] ? l->why : curl_easy_strerror(code));
    if (job->r < 0)
        buf_truncate(job->body, l->body_before);
    (void)curl_multi_remove_handle(c->multi, l->easy);
    curl_slist_free_all(l->headers);
    l->headers = NULL;
    l->job = NULL;
    tell(job);
}

/* Waits until something happens; true when nothing is under way any more. */
static bool turn(struct http_sync *c)
{
    int running = 0, left;
    CURLMsg *m;

    (void)curl_multi_perform(c->multi, &running);
    while ((m = curl_multi_info_read(c->multi, &left)) != NULL) {
        CURLcode code = m->data.result;
        char *lane = NULL;

        if (m->msg != CURLMSG_DONE)
            continue;
        (void)curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &lane);
        finish(c, (struct lane *)(void *)lane, code);
    }
    if (running)
        (void)curl_multi_poll(c->multi, NULL, 0, 1000, NULL);
    return running == 0;
}

void http_sync_run(struct http_sync *c, struct http_sync_job *jobs, size_t n)
{
    for (size_t from = 0; from < n; from += HTTP_SYNC_JOBS_MAX) {
        for (size_t i = 0; i < HTTP_SYNC_JOBS_MAX && from + i < n; i++)
            start(c, &c->lanes[i], &jobs[from + i]);
        while (!turn(c))
            ;
    }
}

int http_sync_call(struct http_sync *c, const struct http_call_spec *spec, size_t max_body,
                   int *ret_status, struct buf *ret_body, struct err *e)
{
    struct http_sync_job job = {.spec = *spec, .max_body = max_body, .body = ret_body};

    http_sync_run(c, &job, 1);
    if (job.r < 0)
        return err_set(e, job.r, "%s", job.err.text);
    *ret_status = job.status;
    return 0;
}
