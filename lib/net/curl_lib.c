/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/curl_lib.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

enum { CONNECT_MS = 5000 };

static void global_init(void)
{
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
}

void http_easy_global(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, global_init);
}

int http_easy_conf_init(struct http_easy_conf *c, const struct http_client_conf *from,
                        struct err *e)
{
    *c = (struct http_easy_conf){.insecure = from->insecure};
    if (from->ca_file && access(from->ca_file, R_OK) < 0)
        return err_errno(e, -errno, "CA certificates '%s'", from->ca_file);
    c->ca_file = from->ca_file ? xstrdup(from->ca_file) : NULL;
    buf_put_str(&c->ca_pem, from->ca_pem);
    buf_put_str(&c->cert_pem, from->cert_pem);
    buf_put_str(&c->key_pem, from->key_pem);
    return 0;
}

void http_easy_conf_done(struct http_easy_conf *c)
{
    free(c->ca_file);
    buf_done(&c->ca_pem);
    buf_done(&c->cert_pem);
    buf_done(&c->key_pem);
    *c = (struct http_easy_conf){0};
}

static void set_pem(CURL *easy, CURLoption option, const struct buf *pem)
{
    struct curl_blob blob = {.len = pem->len, .flags = CURL_BLOB_NOCOPY};

    if (!pem->len)
        return;
    blob.data = buf_data(pem);
    (void)curl_easy_setopt(easy, option, &blob);
}

static void set_tls(CURL *easy, const struct http_easy_conf *c)
{
    (void)curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (c->insecure) {
        (void)curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
        (void)curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    if (c->ca_file || c->ca_pem.len) {
        /* A CA that was named is the only one: the system's directory would be trusted beside it.
         */
        (void)curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
        if (c->ca_file)
            (void)curl_easy_setopt(easy, CURLOPT_CAINFO, c->ca_file);
        set_pem(easy, CURLOPT_CAINFO_BLOB, &c->ca_pem);
    }
    set_pem(easy, CURLOPT_SSLCERT_BLOB, &c->cert_pem);
    set_pem(easy, CURLOPT_SSLKEY_BLOB, &c->key_pem);
}

static void set_method(CURL *easy, const struct http_call_spec *spec, bool copy_body)
{
    struct str method = str_from(spec->method);
    bool sends = spec->body.len || str_is(method, "POST") || str_is(method, "PUT") ||
                 str_is(method, "PATCH");

    if (str_is(method, "HEAD"))
        (void)curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    else if (!str_is(method, "GET") || sends)
        (void)curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, spec->method);
    if (!sends)
        return;
    (void)curl_easy_setopt(easy, CURLOPT_POST, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)spec->body.len);
    (void)curl_easy_setopt(easy, copy_body ? CURLOPT_COPYPOSTFIELDS : CURLOPT_POSTFIELDS,
                           spec->body.len ? spec->body.ptr : "");
}

static struct curl_slist *append(struct curl_slist *list, const char *line)
{
    list = curl_slist_append(list, line);
    if (!list)
        abort(); /* memory is gone, as in xmalloc() */
    return list;
}

static struct curl_slist *make_headers(const struct http_call_spec *spec)
{
    /* What libcurl would add unasked: a form's content type, and a wait before large bodies. */
    static const char *const unwanted[] = {"Content-Type:", "Expect:"};
    struct curl_slist *list = NULL;

    for (size_t i = 0; spec->headers && spec->headers[i]; i++)
        list = append(list, spec->headers[i]);
    for (size_t i = 0; i < ARRAY_LEN(unwanted); i++)
        list = append(list, unwanted[i]);
    return list;
}

/* A proxy from the environment cannot reach our own loopback. */
static bool is_loopback(struct str url)
{
    struct str host = url;

    for (size_t i = 0; i + 3 <= url.len; i++) {
        if (memcmp(url.ptr + i, "://", 3) == 0) {
            host = str_skip(url, i + 3);
            break;
        }
    }
    host = str_head(host, str_index(host, '/'));
    return str_starts(host, STR("127.")) || str_starts(host, STR("[::1]")) ||
           str_eq(str_head(host, str_index(host, ':')), STR("localhost"));
}

static void set_version(CURL *easy, bool known)
{
    (void)curl_easy_setopt(
        easy, CURLOPT_HTTP_VERSION,
        (long)(known ? CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE : CURL_HTTP_VERSION_2TLS));
    /* 7.88.1 fails with CURLE_HTTP2 on a kept connection of that kind. */
    (void)curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, (long)known);
}

void http_easy_prepare(CURL *easy, const struct http_easy_conf *c,
                       const struct http_call_spec *spec, bool copy_body,
                       struct curl_slist **ret_headers)
{
    struct str url = str_from(spec->url);

    *ret_headers = make_headers(spec);
    (void)curl_easy_setopt(easy, CURLOPT_URL, spec->url);
    (void)curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    set_version(easy, spec->http2 && !str_starts(url, STR("https:")));
    (void)curl_easy_setopt(easy, CURLOPT_HTTPHEADER, *ret_headers);
    (void)curl_easy_setopt(easy, CURLOPT_USERAGENT, "commutator/" COMMUTATOR_VERSION);
    (void)curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    /* A look-up that hangs must not hold up whoever cancels the call. */
    (void)curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
                           (long)(spec->connect_ms ? spec->connect_ms : CONNECT_MS));
    (void)curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)spec->total_ms);
    /* Rather a stream on the connection that is being made than a second handshake. */
    if (str_starts(url, STR("https:")))
        (void)curl_easy_setopt(easy, CURLOPT_PIPEWAIT, 1L);
    if (is_loopback(url))
        (void)curl_easy_setopt(easy, CURLOPT_PROXY, "");
    set_tls(easy, c);
    set_method(easy, spec, copy_body);
}

int http_easy_errno(CURL *easy, CURLcode code)
{
    static const struct {
        CURLcode code;
        int error;
    } known[] = {
        {CURLE_OPERATION_TIMEDOUT, -ETIMEDOUT},
        {CURLE_COULDNT_RESOLVE_HOST, -EHOSTUNREACH},
        {CURLE_COULDNT_RESOLVE_PROXY, -EHOSTUNREACH},
        {CURLE_COULDNT_CONNECT, -ECONNREFUSED},
        {CURLE_URL_MALFORMAT, -EINVAL},
        {CURLE_UNSUPPORTED_PROTOCOL, -EINVAL},
        {CURLE_OUT_OF_MEMORY, -ENOMEM},
        {CURLE_GOT_NOTHING, -ECONNRESET},
        {CURLE_PARTIAL_FILE, -ECONNRESET},
        {CURLE_SEND_ERROR, -ECONNRESET},
        {CURLE_RECV_ERROR, -ECONNRESET},
        {CURLE_HTTP2, -EPROTO},
        {CURLE_HTTP2_STREAM, -EPROTO},
        {CURLE_WEIRD_SERVER_REPLY, -EPROTO},
        {CURLE_SSL_CONNECT_ERROR, -EPROTO},
        {CURLE_PEER_FAILED_VERIFICATION, -EACCES},
        {CURLE_SSL_CERTPROBLEM, -EACCES},
        {CURLE_SSL_CACERT_BADFILE, -EACCES},
    };
    long os = 0;

    if (code == CURLE_COULDNT_CONNECT &&
        curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &os) == CURLE_OK && os > 0)
        return -(int)os;
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (known[i].code == code)
            return known[i].error;
    return -EIO;
}
