/* SPDX-License-Identifier: Apache-2.0 */
#include "router/discovery/worker_records.h"

#include <assert.h>
#include <inttypes.h>

#include "lib/base/json_put.h"
#include "router/discovery/card.h"
#include "router/discovery/store.h"
#include "router/wire/event_bus.h"
#include "router/wire/plane_server.h"

struct worker_record {
    struct record record;
    struct buf text; /* what it points to */
};

void worker_records_done(struct worker_records *r)
{
    for (size_t i = 0; i < r->n; i++)
        buf_done(&r->all[i].text);
    free(r->all);
}

/* --- what there is ---------------------------------------------------------------------------- */

static struct worker_record *add(struct worker_records *r, enum record_kind kind)
{
    struct worker_record *one;

    r->all = xreallocarray(r->all, r->n + 1, sizeof(*r->all));
    one = &r->all[r->n++];
    *one = (struct worker_record){.record = {.kind = kind,
                                             .ns = str_from(r->ns),
                                             .component = str_from(r->component),
                                             .instance_id = r->worker_id}};
    return one;
}

void worker_records_add_endpoint(struct worker_records *r, const char *name)
{
    const struct plane_endpoint ep = {r->ns, r->component, name, r->worker_id, false};
    struct worker_record *one = add(r, RECORD_ENDPOINT);

    plane_server_put_address(r->plane, &ep, &one->text);
    one->record.endpoint = str_from(name);
    one->record.transport = record_transport(plane_server_kind(r->plane));
    one->record.address = buf_str(&one->text);
}

void worker_records_add_channel(struct worker_records *r, const struct event_channel_info *ch)
{
    struct record *rec = &add(r, RECORD_EVENT_CHANNEL)->record;

    rec->component = str_from(ch->component);
    rec->endpoint = str_from(ch->endpoint);
    rec->topic = str_from(ch->topic);
    rec->instance_id = ch->publisher_id;
    rec->transport = ch->kind == EVENT_CHANNEL_ZMQ ? TRANSPORT_ZMQ : TRANSPORT_NATS;
    rec->address = str_from(ch->address);
}

void worker_records_add_source(struct worker_records *r, uint32_t dp_rank, uint64_t publisher_id)
{
    struct worker_record *one = add(r, RECORD_EVENT_SOURCE);
    const struct record *recovery = &r->all[r->n - 2].record;
    const struct event_source source = {.ns = r->ns,
                                        .component = r->component,
                                        .endpoint = r->endpoint,
                                        .worker_id = r->worker_id,
                                        .dp_rank = dp_rank,
                                        .publisher_id = publisher_id,
                                        .recovery = recovery};

    assert(recovery->kind == RECORD_ENDPOINT);
    record_of_source(&one->record, &one->text, &source);
}

void worker_records_add_card(struct worker_records *r, const struct model_card *card)
{
    struct worker_record *one = add(r, RECORD_MODEL);

    model_card_put(&one->text, card);
    one->record.endpoint = str_from(r->endpoint);
    one->record.card_json = buf_str(&one->text);
}

/* --- telling of it ---------------------------------------------------------------------------- */

int worker_records_publish(const struct worker_records *r, struct store *s, struct err *e)
{
    for (size_t i = 0; i < r->n; i++) {
        int rc = store_publish(s, &r->all[i].record, e);

        if (rc < 0)
            return err_wrap(e, rc, "worker %" PRIx64 ": publish", r->worker_id);
    }
    return 0;
}

void worker_records_withdraw(const struct worker_records *r, struct store *s)
{
    for (size_t i = 0; i < r->n; i++)
        store_withdraw(s, &r->all[i].record);
}

void worker_records_put(const struct worker_records *r, enum record_kind kind, struct json_put *j)
{
    AUTO(buf_done) struct buf text = BUF_NULL;

    for (size_t i = 0; i < r->n; i++) {
        if (r->all[i].record.kind != kind)
            continue;
        buf_clear(&text);
        record_key_put(&text, &r->all[i].record);
        json_put_key_str(j, buf_str(&text));
        buf_clear(&text);
        record_put(&text, &r->all[i].record, false);
        json_put_raw(j, buf_str(&text));
    }
}

struct str worker_records_address(const struct worker_records *r)
{
    return r->all[0].record.address;
}
