/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one place where libcurl shows: what the clients on a loop and the blocking ones share.
 */
#pragma once

#include <curl/curl.h>

#include "lib/net/http_client.h"

/* An owned copy of a configuration. */
struct http_easy_conf {
    char *ca_file;
    struct buf ca_pem, cert_pem, key_pem;
    bool insecure;
};

/* Once per process, any thread. */
void http_easy_global(void);
/* Fails when the CA file cannot be read. */
MUST_CHECK int http_easy_conf_init(struct http_easy_conf *c, const struct http_client_conf *from,
                                   struct err *e);
void http_easy_conf_done(struct http_easy_conf *c);
/*
 * Sets @easy up for @spec, all but callbacks. The caller frees *ret_headers after the transfer; the
 * body is borrowed until then, unless @copy_body.
 */
void http_easy_prepare(CURL *easy, const struct http_easy_conf *c,
                       const struct http_call_spec *spec, bool copy_body,
                       struct curl_slist **ret_headers);
/* The errno, negative, that says best what @code means. */
int http_easy_errno(CURL *easy, CURLcode code);
