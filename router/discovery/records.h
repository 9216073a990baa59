/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Discovery records: what a worker tells about itself (wire.md §2.1, 2.2, 15.5).
 *
 * Both generations are read; we write one form that both read. Values are views into the text that
 * was parsed, or into @scratch for strings with escapes. Pure, thread safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/wire/plane_address.h"

struct err;

enum {
    RECORD_BYTES_MAX = 1 << 20,
    RECORD_UNKNOWN = 1, /* outcome of record_parse(): a `type` of a later release; ignore it */
};

enum record_kind { RECORD_ENDPOINT, RECORD_MODEL, RECORD_EVENT_CHANNEL, RECORD_EVENT_SOURCE };

enum transport {
    TRANSPORT_OTHER, /* none, or one that this release does not know */
    TRANSPORT_TCP,   /* "ip:port/<id hex>/<endpoint>" */
    TRANSPORT_HTTP,
    TRANSPORT_NATS,       /* Endpoint: subject; EventChannel: subject_prefix */
    TRANSPORT_ZMQ,        /* EventChannel: "tcp://ip:port" */
    TRANSPORT_ZMQ_BROKER, /* EventChannel: address is the config as JSON */
};

/* How an Endpoint's record names its request plane. */
enum transport record_transport(enum plane_kind kind);

struct record {
    enum record_kind kind;
    struct str ns;
    struct str component; /* empty for namespace-wide channels */
    struct str endpoint;  /* also of endpoint-scoped channels and sources (1.x) */
    struct str topic;     /* channels and sources */
    uint64_t instance_id; /* of the worker; of the publisher in 1.x channels and sources */
    enum transport transport;
    struct str address;
    bool on_cpu;              /* Endpoint: device_type "cpu". Never written. */
    struct str codec;         /* Endpoint: request_plane_codec; "" = json only. Never written. */
    struct str card_json;     /* Model */
    struct str model_suffix;  /* Model: slug of a LoRA; empty for a base model */
    struct str metadata_json; /* EventSource */
};

/* 0, RECORD_UNKNOWN, or -EINVAL with what is wrong. */
MUST_CHECK int record_parse(struct str json, struct buf *scratch, struct record *ret,
                            struct err *e);
/*
 * Writes what we publish. A channel gets `namespace`/`component` of 0.9 and, when it has an
 * endpoint or @combined is set, `scope` of 1.x too (wire.md §15.5).
 */
void record_put(struct buf *out, const struct record *rec, bool combined);
/* "v1/instances", "v1/mdc", "v1/event_channels", "v1/event_sources" */
const char *record_bucket(enum record_kind kind);
/* Key inside the bucket: "ns/component/endpoint/<id hex>[/suffix]"; of 1.x for a channel of an endpoint. */
void record_key_put(struct buf *out, const struct record *rec);
/* Lower-case slug (wire.md §3.5). */
void slug_put(struct buf *out, struct str text);
/* A rank's KV events, as routers of 1.4 and later look for them. */
struct event_source {
    const char *ns, *component, *endpoint;
    uint64_t worker_id, publisher_id;
    uint32_t dp_rank;
    const struct record *recovery; /* Endpoint that tells what was missed; NULL = nobody does */
};
/* What such a record's metadata tell. */
struct source_metadata {
    uint64_t worker_id;
    uint32_t dp_rank;
    bool has_recovery;
    struct record recovery; /* its Endpoint */
};
/* Views into @metadata and @scratch. -EINVAL when no worker is named. */
MUST_CHECK int source_metadata_parse(struct str metadata, struct buf *scratch,
                                     struct source_metadata *ret, struct err *e);
/* Its record; strings are views into @src and @metadata. */
void record_of_source(struct record *ret, struct buf *metadata, const struct event_source *src);
/* Names a pod's instance: SipHash-1-3 of the name, 53 bits (wire.md §2.6). */
uint64_t instance_id_of_pod(struct str pod_name);
