/* SPDX-License-Identifier: Apache-2.0 */
/* Records, the cards inside of them, and whole DynamoWorkerMetadata objects. */
#include <stdlib.h>

#include "router/discovery/card.h"
#include "router/discovery/kube_join.h"
#include "router/discovery/records.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put(void *arg, struct str key, struct str json)
{
    (void)arg;
    if (!key.len || !json.len)
        abort();
}

static void gone(void *arg, struct str key, enum store_end how)
{
    (void)arg;
    (void)key;
    (void)how;
}

static void check_card(struct str json)
{
    AUTO(model_card_unref) struct model_card *c = NULL;
    AUTO(model_card_unref) struct model_card *d = NULL;
    AUTO(buf_done) struct buf out = BUF_NULL;

    if (model_card_parse(&c, json, NULL) < 0)
        return;
    model_card_put(&out, c);
    if (model_card_parse(&d, buf_str(&out), NULL) < 0)
        abort();
}

static void check_source(struct str json)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct source_metadata md;
    struct err e;

    if (source_metadata_parse(json, &scratch, &md, &e) == 0 && md.has_recovery &&
        (!md.recovery.endpoint.len || !md.recovery.address.len))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct store_watcher watcher = {.put = put, .gone = gone};
    AUTO(kube_join_free) struct kube_join *j = kube_join_new();
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    AUTO(buf_done) struct buf out = BUF_NULL;
    AUTO(buf_done) struct buf more = BUF_NULL;
    struct str in = str_slice(data, size);
    struct store_stats stats = {0};
    struct record rec;

    check_card(in);
    check_source(in);
    if (kube_join_metadata(j, "pod", in, NULL) == 0)
        kube_join_report(j, &watcher, NULL, &stats);
    if (record_parse(in, &scratch, &rec, NULL) != 0)
        return 0;
    if (rec.kind == RECORD_MODEL)
        check_card(rec.card_json);
    if (rec.transport == TRANSPORT_OTHER || rec.transport == TRANSPORT_ZMQ_BROKER)
        return 0; /* not ours to write */
    record_put(&out, &rec, true);
    record_key_put(&more, &rec);
    slug_put(&more, rec.ns);
    if (record_parse(buf_str(&out), &more, &rec, NULL) != 0)
        abort();
    return 0;
}
