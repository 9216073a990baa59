/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/plane_address.h"

#include <errno.h>
#include <string.h>

#include "lib/base/err.h"

const char *const PLANE_WORDS[] = {
    [PLANE_TCP] = "tcp", [PLANE_NATS] = "nats", [PLANE_HTTP] = "http", [PLANE_KINDS] = NULL};

const char *const RESPONSE_PLANE_WORDS[] = {"tcp", "quic", NULL};

int response_plane_check(int kind, struct err *e)
{
    if (kind == RESPONSE_TCP)
        return 0;
    return err_set(
        e, -ENOTSUP,
        "response plane %s is not supported: use tcp, here and at those on the other side",
        RESPONSE_PLANE_WORDS[kind]);
}

#define NATS_SCHEME "nats:"

void plane_address_put(struct buf *out, enum plane_kind kind, struct str address,
                       struct str endpoint)
{
    if (kind == PLANE_NATS)
        buf_printf(out, NATS_SCHEME "%.*s/%.*s", STR_ARG(address), STR_ARG(endpoint));
    else
        buf_put_str(out, address);
}

/* A token with a blank or a wildcard would be another command, or another subject, to the server. */
static bool is_subject(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.ptr[i] <= ' ' || strchr("*>", s.ptr[i]))
            return false;
    return s.len > 0;
}

static int nats_parse(struct str text, struct plane_address *ret, struct err *e)
{
    struct str subject = str_skip(text, strlen(NATS_SCHEME));
    size_t end = subject.len;

    while (end > 0 && subject.ptr[end - 1] != '/')
        end--;
    subject = str_head(subject, end ? end - 1 : 0);
    if (!is_subject(subject))
        return err_set(e, -EINVAL, "'%.*s' has no subject", STR_ARG(str_head(text, 128)));
    *ret = (struct plane_address){.kind = PLANE_NATS, .path = subject};
    return 0;
}

static int http_parse(struct str text, struct plane_address *ret, struct err *e)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.ptr[i] <= ' ')
            return err_set(e, -EINVAL, "'%.*s' is no URL", STR_ARG(str_head(text, 128)));
    *ret = (struct plane_address){.kind = PLANE_HTTP, .path = text};
    return 0;
}

static bool is_ip_text(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!strchr("0123456789abcdefABCDEF.:%", s.ptr[i]) || s.ptr[i] == '\0')
            return false;
    return s.len > 0;
}

static int tcp_parse(struct str text, struct plane_address *ret, struct err *e)
{
    struct str socket = text, ip;
    struct plane_address a = {0};
    uint64_t port;
    size_t colon;

    if (str_starts(socket, STR("tcp://")))
        socket = str_skip(socket, 6);
    a.path = socket;
    if (!str_cut(&a.path, '/', &socket))
        a.path = STR_NULL;

    for (colon = socket.len; colon > 0 && socket.ptr[colon - 1] != ':';)
        colon--;
    if (colon == 0 || !str_parse_u64(str_skip(socket, colon), &port) || port == 0 || port > 65535)
        return err_set(e, -EINVAL, "'%.*s' is not ip:port", STR_ARG(str_head(text, 128)));
    ip = str_head(socket, colon - 1);
    if (ip.len > 2 && ip.ptr[0] == '[' && ip.ptr[ip.len - 1] == ']')
        ip = str_slice(ip.ptr + 1, ip.len - 2);
    if (!is_ip_text(ip) || ip.len >= sizeof(a.ip))
        return err_set(e, -EINVAL, "'%.*s' is not a numeric address", STR_ARG(str_head(text, 128)));

    memcpy(a.ip, ip.ptr, ip.len);
    a.port = (uint16_t)port;
    *ret = a;
    return 0;
}

int plane_address_parse(struct str text, struct plane_address *ret, struct err *e)
{
    if (str_starts(text, STR(NATS_SCHEME)))
        return nats_parse(text, ret, e);
    if (str_starts(text, STR("http://")))
        return http_parse(text, ret, e);
    return tcp_parse(text, ret, e);
}
