/* SPDX-License-Identifier: Apache-2.0 */
#include "router/epp/pods.h"

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/json_pull.h"
#include "router/discovery/records.h"

static int by_id(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* False: it has no name that is a string. */
static bool worker_of(struct str object, struct buf *scratch, uint64_t *ret_id)
{
    struct str inner = json_pull_member(object, "pod"), text, name;
    struct json_pull p;

    text = json_pull_member(inner, "podName");
    if (!text.len)
        text = json_pull_member(object, "podName");
    json_pull_init(&p, text);
    buf_clear(scratch);
    if (!text.len || json_pull_peek(&p) != JSON_KIND_STRING ||
        !json_pull_string(&p, scratch, &name))
        return false;
    *ret_id = instance_id_of_pod(name);
    return true;
}

/* Those that were read before an error do not count: a list is believed as a whole. */
static size_t read_all(struct str json, uint64_t *ret_ids, struct buf *scratch)
{
    struct json_pull p;
    struct str object;
    size_t n = 0, n_seen = 0;
    struct err e;

    json_pull_init(&p, json);
    if (json_pull_array(&p))
        while (json_pull_element(&p) && json_pull_skip(&p, &object)) {
            if (++n_seen > PODS_MAX)
                return 0;
            n += worker_of(object, scratch, &ret_ids[n]);
        }
    return json_pull_end(&p, &e) == 0 ? n : 0;
}

static size_t count(struct str json)
{
    struct json_pull p;
    size_t n = 0;

    json_pull_init(&p, json);
    if (json_pull_array(&p))
        while (n < PODS_MAX && json_pull_element(&p) && json_pull_skip(&p, NULL))
            n++;
    return n;
}

struct pods pods_parse(struct arena *a, struct str json)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    size_t n = count(json);
    struct pods pods = {.n = 0};

    if (n == 0)
        return pods;
    pods.worker_ids = arena_alloc(a, n * sizeof(*pods.worker_ids));
    pods.n = read_all(json, pods.worker_ids, &scratch);
    qsort(pods.worker_ids, pods.n, sizeof(*pods.worker_ids), by_id);
    return pods;
}

bool pods_have(const struct pods *p, uint64_t worker_id)
{
    return p->n && bsearch(&worker_id, p->worker_ids, p->n, sizeof(worker_id), by_id);
}
