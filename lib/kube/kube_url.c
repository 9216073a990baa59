/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/kube_url.h"

#include <string.h>

#include "lib/kube/kube_client.h"

static void put_encoded(struct buf *out, const char *s, const char *plain)
{
    for (; *s; s++) {
        if (strchr(plain, *s))
            buf_put_char(out, *s);
        else
            buf_printf(out, "%%%02X", (unsigned char)*s);
    }
}

#define ALPHANUMERIC "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

void kube_url_segment(struct buf *out, const char *segment)
{
    /* "." and ".." would be taken for steps through the path. */
    bool step = strcmp(segment, ".") == 0 || strcmp(segment, "..") == 0;

    buf_put_char(out, '/');
    put_encoded(out, segment, step ? ALPHANUMERIC : ALPHANUMERIC "-_~.");
}

void kube_url_param(struct buf *out, const char *key, const char *value)
{
    if (!value)
        return;
    buf_put_char(out, str_index(buf_str(out), '?') < out->len ? '&' : '?');
    buf_put_cstr(out, key);
    buf_put_char(out, '=');
    put_encoded(out, value, ALPHANUMERIC "-_~.");
}

void kube_path(struct buf *out, const struct kube_kind *k, const char *ns, const char *name,
               const char *subresource)
{
    if (*k->group)
        buf_printf(out, "/apis/%s/%s", k->group, k->version);
    else
        buf_printf(out, "/api/%s", k->version);
    if (ns) {
        buf_put_cstr(out, "/namespaces");
        kube_url_segment(out, ns);
    }
    kube_url_segment(out, k->plural);
    if (name)
        kube_url_segment(out, name);
    if (subresource)
        kube_url_segment(out, subresource);
}
