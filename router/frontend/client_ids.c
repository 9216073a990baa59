/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/client_ids.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "router/sched/decision_record.h"

struct name {
    size_t len; /* 0 = none yet */
    char client[CLIENT_ID_MAX];
    char id[DECISION_ID_SIZE];
};

struct client_ids {
    size_t size;
    uint64_t next;
    struct name names[];
};

struct client_ids *client_ids_new(size_t size)
{
    struct client_ids *c = xcalloc(1, sizeof(*c) + size * sizeof(*c->names));

    c->size = size;
    return c;
}

struct client_ids *client_ids_free(struct client_ids *c)
{
    free(c);
    return NULL;
}

void client_ids_add(struct client_ids *c, struct str client, struct str id)
{
    struct name *n;

    if (!client.len || client.len > CLIENT_ID_MAX)
        return;
    n = &c->names[c->next++ % c->size];
    n->len = client.len;
    memcpy(n->client, client.ptr, client.len);
    (void)snprintf(n->id, sizeof(n->id), "%.*s", STR_ARG(id));
}

struct str client_ids_find(const struct client_ids *c, struct str client)
{
    for (uint64_t i = c->next; i-- > 0 && c->next - i <= c->size;) {
        const struct name *n = &c->names[i % c->size];

        if (str_eq(str_slice(n->client, n->len), client))
            return str_from(n->id);
    }
    return STR_NULL;
}
