/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/api_error.h"

#include <stdarg.h>
#include <stdio.h>

#include "lib/base/json_put.h"
#include "lib/net/http_server.h"

static PRINTF_LIKE(4, 0) void fill(struct api_error *e, int status, const char *param,
                                   const char *format, va_list ap)
{
    e->status = status;
    e->malformed = false;
    (void)snprintf(e->param, sizeof(e->param), "%s", param ? param : "");
    (void)vsnprintf(e->text, sizeof(e->text), format, ap);
}

bool api_fail(struct api_error *e, int status, const char *param, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    fill(e, status, param, format, ap);
    va_end(ap);
    return false;
}

bool api_malformed(struct api_error *e, const char *param, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    fill(e, 400, param, format, ap);
    va_end(ap);
    e->malformed = true;
    return false;
}

const char *api_error_type(int status)
{
    switch (status) {
    case 404:
        return "not_found";
    case 429:
    case 529:
        return "overload";
    case 501:
        return "not_implemented";
    case 503:
        return "unavailable";
    default:
        return status < 500 ? "validation" : "internal";
    }
}

static const char *openai_type(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    case 503:
    case 529:
        return "overloaded_error";
    default:
        return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

void api_error_put(struct buf *out, const struct api_error *e)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    json_put_key(&j, "error");
    json_put_object(&j);
    json_put_key(&j, "message");
    json_put_cstr(&j, e->text);
    json_put_key(&j, "type");
    json_put_cstr(&j, openai_type(e->status));
    json_put_key(&j, "param");
    json_put_cstr(&j, e->param[0] ? e->param : NULL);
    json_put_key(&j, "code");
    json_put_i64(&j, e->status);
    json_put_object_end(&j);
    json_put_key(&j, "message");
    json_put_cstr(&j, e->text);
    json_put_key(&j, "type");
    json_put_cstr(&j, http_status_text(e->status));
    json_put_key(&j, "code");
    json_put_i64(&j, e->status);
    json_put_object_end(&j);
}

void api_error_respond(struct http_exchange *x, const struct api_error *e)
{
    AUTO(buf_done) struct buf body = BUF_NULL;

    api_error_put(&body, e);
    http_respond(x, e->status, "application/json", buf_str(&body));
}

void api_error_from_server(struct http_exchange *x, int status, const char *why, void *arg)
{
    struct api_error e;

    (void)arg;
    (void)api_fail(&e, status, NULL, "%s", why);
    api_error_respond(x, &e);
}
