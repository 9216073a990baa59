/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/http_client.h"

#include <errno.h>

#include "lib/net/curl_lib.h"

struct http_sync {
    struct http_easy_conf conf;
    CURL *easy; /* reused: it holds the connections */
};

/* The answer as it comes in. */
struct intake {
    struct buf *body;
    size_t room; /* bytes that may still come */
    bool overflowed;
};

int http_sync_new(struct http_sync **ret, const struct http_client_conf *conf, struct err *e)
{
    AUTO(http_sync_free) struct http_sync *c = xcalloc(1, sizeof(*c));
    int r;

    http_easy_global();
    r = http_easy_conf_init(&c->conf, conf, e);
    if (r < 0)
        return err_wrap(e, r, "HTTP client");
    c->easy = curl_easy_init();
    if (!c->easy)
        return err_set(e, -ENOMEM, "HTTP client: no handle");
    *ret = TAKE(c);
    return 0;
}

struct http_sync *http_sync_free(struct http_sync *c)
{
    if (!c)
        return NULL;
    curl_easy_cleanup(c->easy);
    http_easy_conf_done(&c->conf);
    free(c);
    return NULL;
}

static size_t on_data(char *bytes, size_t size, size_t n, void *arg)
{
    struct intake *in = arg;

    n *= size;
    if (n > in->room) {
        in->overflowed = true;
        return CURL_WRITEFUNC_ERROR;
    }
    in->room -= n;
    buf_put(in->body, bytes, n);
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

int http_sync_call(struct http_sync *c, const struct http_call_spec *spec, size_t max_body,
                   int *ret_status, struct buf *ret_body, struct err *e)
{
    struct intake in = {.body = ret_body, .room = max_body};
    char why[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = NULL;
    size_t before = ret_body->len;
    long status = 0;
    CURLcode code;
    int r = 0;

    curl_easy_reset(c->easy);
    http_easy_prepare(c->easy, &c->conf, spec, false, &headers);
    (void)curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, on_data);
    (void)curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, &in);
    (void)curl_easy_setopt(c->easy, CURLOPT_ERRORBUFFER, why);
    set_idle(c->easy, spec->idle_ms);
    code = curl_easy_perform(c->easy);
    (void)curl_easy_setopt(c->easy, CURLOPT_ERRORBUFFER, NULL);
    (void)curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    if (in.overflowed)
        r = err_set(e, -EMSGSIZE, "%s %s: answer larger than %zu bytes", spec->method, spec->url,
                    max_body);
    else if (code != CURLE_OK)
        r = err_set(e, http_easy_errno(c->easy, code), "%s %s: %s", spec->method, spec->url,
                    why[0] ? why : curl_easy_strerror(code));
    curl_slist_free_all(headers);
    if (r < 0) {
        buf_truncate(ret_body, before);
        return r;
    }
    *ret_status = (int)status;
    return 0;
}
