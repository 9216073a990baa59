/* SPDX-License-Identifier: Apache-2.0 */
/* Every reader of etcd's answers on the same bytes; what is told is a key with something in it. */
#include <stdlib.h>

#include "router/discovery/etcd_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void told(void *arg, const struct etcd_kv *kv)
{
    size_t *bytes = arg;

    if (!kv->key.len)
        abort();
    *bytes += kv->key.len + kv->value.len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(buf_done) struct buf token = BUF_NULL;
    struct str in = str_slice(data, size);
    struct etcd_watch_answer answer;
    struct etcd_range range;
    size_t bytes = 0;
    struct err e;
    uint64_t n;

    (void)etcd_range_parse(in, &range, told, &bytes, &e);
    (void)etcd_watch_parse(in, &answer, told, &bytes, &e);
    (void)etcd_count_parse(in, &n, &e);
    (void)etcd_keepalive_parse(in, &n, &e);
    if (etcd_refusal_parse(in, &e) <= 0)
        abort();
    if (etcd_login_parse(in, &token, &e) == 0)
        for (size_t i = 0; i < token.len; i++)
            if (buf_data(&token)[i] <= ' ')
                abort();
    if (bytes > 2 * size)
        abort();
    return 0;
}
