/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/http_fetch.h"

#include <errno.h>

#include "lib/net/curl_lib.h"

enum { IDLE_MS = 30000, REDIRECTS_MAX = 5, NAME_MAX_BYTES = 64 };

struct fetch {
    const struct http_fetch_spec *spec;
    CURL *easy;
    bool stopped; /* a callback has ended it */
};

static size_t on_header(char *line, size_t size, size_t n, void *arg)
{
    const struct fetch *f = arg;
    struct str rest = str_trim(str_slice(line, size * n)), name;
    char lower[NAME_MAX_BYTES];

    if (str_starts(rest, STR("HTTP/"))) {
        f->spec->header(f->spec->arg, STR(""), rest);
    } else if (str_cut(&rest, ':', &name) && name.len > 0 && name.len <= sizeof(lower)) {
        for (size_t i = 0; i < name.len; i++) {
            char c = name.ptr[i];

            lower[i] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
        }
        f->spec->header(f->spec->arg, str_slice(lower, name.len), str_trim(rest));
    }
    return size * n;
}

static size_t on_data(char *bytes, size_t size, size_t n, void *arg)
{
    struct fetch *f = arg;
    long status = 0;

    (void)curl_easy_getinfo(f->easy, CURLINFO_RESPONSE_CODE, &status);
    if (f->spec->data && !f->spec->data(f->spec->arg, (int)status, str_slice(bytes, size * n))) {
        f->stopped = true;
        return CURL_WRITEFUNC_ERROR;
    }
    return size * n;
}

static int on_progress(void *arg, curl_off_t dl_total, curl_off_t dl, curl_off_t ul_total,
                       curl_off_t ul)
{
    struct fetch *f = arg;

    (void)dl_total;
    (void)dl;
    (void)ul_total;
    (void)ul;
    f->stopped |= f->spec->cancelled && f->spec->cancelled(f->spec->arg);
    return f->stopped;
}

static void set_callbacks(struct fetch *f)
{
    const struct http_fetch_spec *s = f->spec;
    uint64_t idle_ms = s->idle_ms ? s->idle_ms : IDLE_MS;

    (void)curl_easy_setopt(f->easy, CURLOPT_HEADERFUNCTION, s->header ? on_header : NULL);
    (void)curl_easy_setopt(f->easy, CURLOPT_HEADERDATA, f);
    (void)curl_easy_setopt(f->easy, CURLOPT_WRITEFUNCTION, on_data);
    (void)curl_easy_setopt(f->easy, CURLOPT_WRITEDATA, f);
    (void)curl_easy_setopt(f->easy, CURLOPT_XFERINFOFUNCTION, on_progress);
    (void)curl_easy_setopt(f->easy, CURLOPT_XFERINFODATA, f);
    (void)curl_easy_setopt(f->easy, CURLOPT_NOPROGRESS, 0L);
    /* libcurl counts in whole seconds. */
    (void)curl_easy_setopt(f->easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    (void)curl_easy_setopt(f->easy, CURLOPT_LOW_SPEED_TIME, (long)((idle_ms + 999) / 1000));
    if (s->head_only)
        return;
    (void)curl_easy_setopt(f->easy, CURLOPT_FOLLOWLOCATION, 1L);
    (void)curl_easy_setopt(f->easy, CURLOPT_MAXREDIRS, (long)REDIRECTS_MAX);
}

int http_fetch(const struct http_fetch_spec *spec, int *ret_status, struct err *e)
{
    AUTO(mem_free)
    char *auth = spec->bearer ? xasprintf("Authorization: Bearer %s", spec->bearer) : NULL;
    AUTO(mem_free)
    char *range = spec->from ? xasprintf("%llu-", (unsigned long long)spec->from) : NULL;
    /* Compressed answers have other lengths and checksums than the file. */
    const char *const headers[] = {"Accept-Encoding: identity", auth, NULL};
    const struct http_call_spec call = {.method = spec->head_only ? "HEAD" : "GET",
                                        .url = spec->url,
                                        .headers = headers,
                                        .connect_ms = spec->connect_ms};
    const struct http_easy_conf conf = {.ca_file = NULL};
    struct fetch f = {.spec = spec};
    struct curl_slist *list = NULL;
    char why[CURL_ERROR_SIZE] = "";
    CURLcode code;
    long status = 0;
    int r = 0;

    http_easy_global();
    f.easy = curl_easy_init();
    if (!f.easy)
        return err_set(e, -ENOMEM, "HTTP client: no handle");
    http_easy_prepare(f.easy, &conf, &call, false, &list);
    set_callbacks(&f);
    (void)curl_easy_setopt(f.easy, CURLOPT_ERRORBUFFER, why);
    (void)curl_easy_setopt(f.easy, CURLOPT_RANGE, range);
    code = curl_easy_perform(f.easy);
    (void)curl_easy_getinfo(f.easy, CURLINFO_RESPONSE_CODE, &status);
    if (f.stopped)
        r = err_set(e, -ECANCELED, "%s: stopped", spec->url);
    else if (code != CURLE_OK)
        r = err_set(e, http_easy_errno(f.easy, code), "%s: %s", spec->url,
                    why[0] ? why : curl_easy_strerror(code));
    curl_easy_cleanup(f.easy);
    curl_slist_free_all(list);
    if (r == 0)
        *ret_status = (int)status;
    return r;
}
