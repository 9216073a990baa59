/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/plane_address.h"

#include <errno.h>
#include <string.h>

#include "lib/base/err.h"

static bool is_ip_text(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!strchr("0123456789abcdefABCDEF.:%", s.ptr[i]) || s.ptr[i] == '\0')
            return false;
    return s.len > 0;
}

int plane_address_parse(struct str text, struct plane_address *ret, struct err *e)
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
