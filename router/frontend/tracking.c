/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/tracking.h"

#include <errno.h>
#include <string.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/net/file.h"

const char *const TRACKING_WORDS[] = {"public-xxh3-v1", "keyed-xxh3-v1", NULL};

static int read_key(uint8_t ret_bytes[TRACKING_KEY_SIZE], const char *path, struct err *e)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    int r = file_read(path, TRACKING_KEY_SIZE, &text, e);

    if (r == 0 && text.len != TRACKING_KEY_SIZE)
        r = err_set(e, -EINVAL, "'%s' has %zu bytes instead of %d", path, text.len,
                    TRACKING_KEY_SIZE);
    if (r == 0)
        memcpy(ret_bytes, buf_str(&text).ptr, TRACKING_KEY_SIZE);
    if (text.len)
        explicit_bzero(buf_data(&text), text.len);
    return r < 0 ? err_wrap(e, r, "--router-tracking-key-file") : 0;
}

int tracking_load(struct tracking_key **ret, const struct tracking_options *o, struct err *e)
{
    struct tracking_key key;
    int r;

    if (o->hash == TRACKING_PUBLIC) {
        *ret = NULL;
        return 0;
    }
    if (!o->key_file || !o->key_id || !*o->key_id)
        return err_set(e, -EINVAL, "--router-tracking-hash %s needs --router-tracking-%s",
                       TRACKING_WORDS[o->hash], o->key_file ? "key-id" : "key-file");
    r = read_key(key.bytes, o->key_file, e);
    if (r < 0)
        return r;
    key.id = str_from(xstrdup(o->key_id));
    *ret = xcalloc(1, sizeof(key));
    **ret = key;
    explicit_bzero(key.bytes, sizeof(key.bytes));
    return 0;
}

struct tracking_key *tracking_free(struct tracking_key *k)
{
    if (!k)
        return NULL;
    free((char *)(uintptr_t)k->id.ptr);
    explicit_bzero(k, sizeof(*k));
    free(k);
    return NULL;
}
