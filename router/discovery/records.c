/* SPDX-License-Identifier: Apache-2.0 */
#include "router/discovery/records.h"

#include <errno.h>
#include <inttypes.h>

#include "lib/base/digest.h"
#include "lib/base/err.h"
#include "router/wire/fields.h"
#include "router/wire/kv_event.h"

static const struct {
    const char *type;
    const char *bucket;
} kinds[] = {
    [RECORD_ENDPOINT] = {"Endpoint", "v1/instances"},
    [RECORD_MODEL] = {"Model", "v1/mdc"},
    [RECORD_EVENT_CHANNEL] = {"EventChannel", "v1/event_channels"},
    [RECORD_EVENT_SOURCE] = {"EventSource", "v1/event_sources"},
};

enum transport record_transport(enum plane_kind kind)
{
    return kind == PLANE_NATS   ? TRANSPORT_NATS
           : kind == PLANE_HTTP ? TRANSPORT_HTTP
                                : TRANSPORT_TCP;
}

/* --- reading ---------------------------------------------------------------------------------- */

struct reading {
    struct json_pull p;
    struct buf *scratch;
    struct record rec;
    struct str type;
    bool has_id, has_ns, has_component;
};

static void text_read(struct reading *rd, struct str *ret)
{
    text_pull(&rd->p, rd->scratch, ret);
}

/* {"namespace":n,"component":c,"name":e} */
static void endpoint_scope_read(struct reading *rd)
{
    struct str key;

    if (!json_pull_object(&rd->p))
        return;
    while (json_pull_key(&rd->p, &key)) {
        if (str_is(key, "namespace"))
            text_read(rd, &rd->rec.ns);
        else if (str_is(key, "component"))
            text_read(rd, &rd->rec.component);
        else if (str_is(key, "name"))
            text_read(rd, &rd->rec.endpoint);
        else
            skip_pull(&rd->p);
    }
}

/* Of 1.x: namespace {name}, component {namespace,component} or endpoint {endpoint:{…}}. */
static void scope_read(struct reading *rd)
{
    struct str key;

    if (!json_pull_object(&rd->p))
        return;
    rd->has_ns = rd->has_component = true;
    while (json_pull_key(&rd->p, &key)) {
        if (str_is(key, "name") || str_is(key, "namespace"))
            text_read(rd, &rd->rec.ns);
        else if (str_is(key, "component"))
            text_read(rd, &rd->rec.component);
        else if (str_is(key, "endpoint"))
            endpoint_scope_read(rd);
        else
            skip_pull(&rd->p);
    }
}

/* The config of a channel's transport: what holds the address depends on the kind. */
static void config_read(struct reading *rd)
{
    struct str key, whole = STR_NULL;
    struct json_pull ahead = rd->p;

    (void)json_pull_skip(&ahead, &whole);
    rd->rec.address = whole;
    if (!json_pull_object(&rd->p))
        return;
    while (json_pull_key(&rd->p, &key)) {
        if (str_is(key, "subject_prefix") || str_is(key, "endpoint"))
            text_read(rd, &rd->rec.address);
        else
            skip_pull(&rd->p);
    }
}

static enum transport kind_of_word(struct str word)
{
    return str_is(word, "Nats")        ? TRANSPORT_NATS
           : str_is(word, "Zmq")       ? TRANSPORT_ZMQ
           : str_is(word, "ZmqBroker") ? TRANSPORT_ZMQ_BROKER
                                       : TRANSPORT_OTHER;
}

/* {"tcp":s} of an endpoint, {"kind":k,"config":c} of a channel. */
static void transport_read(struct reading *rd)
{
    struct record *rec = &rd->rec;
    struct str key, word = STR_NULL;

    if (!json_pull_object(&rd->p))
        return;
    while (json_pull_key(&rd->p, &key)) {
        enum transport t = str_is(key, "tcp")        ? TRANSPORT_TCP
                           : str_is(key, "http")     ? TRANSPORT_HTTP
                           : str_is(key, "nats_tcp") ? TRANSPORT_NATS
                                                     : TRANSPORT_OTHER;

        if (t != TRANSPORT_OTHER) {
            rec->transport = t;
            text_read(rd, &rec->address);
        } else if (str_is(key, "kind")) {
            text_read(rd, &word);
            rec->transport = kind_of_word(word);
        } else if (str_is(key, "config")) {
            config_read(rd);
        } else {
            skip_pull(&rd->p);
        }
    }
}

static void member_read(struct reading *rd, struct str key)
{
    struct record *rec = &rd->rec;
    struct str device = STR_NULL;

    if (str_is(key, "type")) {
        text_read(rd, &rd->type);
    } else if (str_is(key, "namespace")) {
        rd->has_ns = true;
        text_read(rd, &rec->ns);
    } else if (str_is(key, "component")) {
        rd->has_component = true;
        text_read(rd, &rec->component);
    } else if (str_is(key, "endpoint")) {
        text_read(rd, &rec->endpoint);
    } else if (str_is(key, "topic")) {
        text_read(rd, &rec->topic);
    } else if (str_is(key, "instance_id") || str_is(key, "publisher_id")) {
        rd->has_id = json_pull_u64(&rd->p, &rec->instance_id);
    } else if (str_is(key, "transport")) {
        transport_read(rd);
    } else if (str_is(key, "scope")) {
        scope_read(rd);
    } else if (str_is(key, "card_json")) {
        json_text_pull(&rd->p, &rec->card_json);
    } else if (str_is(key, "model_suffix")) {
        text_read(rd, &rec->model_suffix);
    } else if (str_is(key, "request_plane_codec")) {
        text_read(rd, &rec->codec);
    } else if (str_is(key, "device_type")) {
        text_read(rd, &device);
        rec->on_cpu = str_is(device, "cpu");
    } else if (str_is(key, "metadata")) {
        json_text_pull(&rd->p, &rec->metadata_json);
    } else {
        skip_pull(&rd->p);
    }
}

static int kind_find(struct str type, enum record_kind *ret)
{
    for (unsigned k = 0; k < ARRAY_LEN(kinds); k++) {
        if (str_is(type, kinds[k].type)) {
            *ret = (enum record_kind)k;
            return 0;
        }
    }
    return RECORD_UNKNOWN;
}

static const char *missing_key(const struct reading *rd)
{
    const struct record *rec = &rd->rec;

    if (!rd->has_id)
        return rec->kind == RECORD_EVENT_SOURCE ? "publisher_id" : "instance_id";
    if (!rd->has_ns)
        return "namespace";
    if (!rd->has_component)
        return "component";
    if (rec->kind == RECORD_ENDPOINT || rec->kind == RECORD_MODEL) {
        if (!rec->endpoint.len)
            return "endpoint";
        if (rec->kind == RECORD_ENDPOINT && !rec->address.len)
            return "transport";
        return rec->kind == RECORD_MODEL && !rec->card_json.len ? "card_json" : NULL;
    }
    return rec->topic.len ? NULL : "topic";
}

int record_parse(struct str json, struct buf *scratch, struct record *ret, struct err *e)
{
    struct reading rd = {.scratch = scratch};
    const char *missing;
    struct str key;
    int r;

    if (json.len > RECORD_BYTES_MAX)
        return err_set(e, -EINVAL, "record of %zu bytes", json.len);
    (void)buf_reserve(scratch, json.len); /* views into it must not move */
    json_pull_init(&rd.p, json);
    if (json_pull_object(&rd.p))
        while (json_pull_key(&rd.p, &key))
            member_read(&rd, key);
    r = json_pull_end(&rd.p, e);
    if (r < 0)
        return err_wrap(e, r, "record");
    if (!rd.type.len)
        return err_set(e, -EINVAL, "record: missing field `type`");
    if (kind_find(rd.type, &rd.rec.kind) == RECORD_UNKNOWN)
        return RECORD_UNKNOWN;
    missing = missing_key(&rd);
    if (missing)
        return err_set(e, -EINVAL, "%s record: missing field `%s`", kinds[rd.rec.kind].type,
                       missing);
    *ret = rd.rec;
    return 0;
}

/* {"worker_id":n,"dp_rank":n}; whether it names a worker. */
static bool source_worker_read(struct json_pull *p, struct source_metadata *md)
{
    struct str key;
    uint64_t rank = 0;
    bool named = false;

    if (!json_pull_object(p))
        return false;
    while (json_pull_key(p, &key)) {
        if (str_is(key, "worker_id"))
            named = json_pull_u64(p, &md->worker_id);
        else if (str_is(key, "dp_rank"))
            (void)json_pull_u64(p, &rank);
        else
            skip_pull(p);
    }
    md->dp_rank = (uint32_t)MIN(rank, (uint64_t)UINT32_MAX);
    return named;
}

static void recovery_read(struct reading *rd)
{
    struct str key;

    if (json_pull_null(&rd->p) || !json_pull_object(&rd->p))
        return;
    rd->rec.kind = RECORD_ENDPOINT;
    while (json_pull_key(&rd->p, &key))
        member_read(rd, key);
}

int source_metadata_parse(struct str metadata, struct buf *scratch, struct source_metadata *ret,
                          struct err *e)
{
    struct reading rd = {.scratch = scratch};
    struct source_metadata md = {.worker_id = 0};
    bool named = false;
    struct str key;
    int r;

    (void)buf_reserve(scratch, metadata.len); /* views into it must not move */
    json_pull_init(&rd.p, metadata);
    if (json_pull_object(&rd.p))
        while (json_pull_key(&rd.p, &key)) {
            if (str_is(key, "worker"))
                named = source_worker_read(&rd.p, &md);
            else if (str_is(key, "recovery_target"))
                recovery_read(&rd);
            else
                skip_pull(&rd.p);
        }
    r = json_pull_end(&rd.p, e);
    if (r < 0)
        return err_wrap(e, r, "event source");
    if (!named)
        return err_set(e, -EINVAL, "event source: missing field `worker.worker_id`");
    md.has_recovery = rd.rec.endpoint.len && rd.rec.address.len;
    md.recovery = rd.rec;
    *ret = md;
    return 0;
}

/* --- writing ---------------------------------------------------------------------------------- */

static void member_put(struct json_put *j, const char *key, struct str value)
{
    json_put_key(j, key);
    json_put_str(j, value);
}

static void id_put(struct json_put *j, const struct record *rec)
{
    json_put_member_u64(j, "instance_id", rec->instance_id);
}

static void endpoint_put(struct json_put *j, const struct record *rec)
{
    static const char *const keys[] = {
        [TRANSPORT_TCP] = "tcp", [TRANSPORT_HTTP] = "http", [TRANSPORT_NATS] = "nats_tcp"};
    const char *key = rec->transport < ARRAY_LEN(keys) ? keys[rec->transport] : NULL;

    member_put(j, "component", rec->component);
    member_put(j, "endpoint", rec->endpoint);
    member_put(j, "namespace", rec->ns);
    id_put(j, rec);
    json_put_key(j, "transport");
    json_put_object(j);
    member_put(j, key ? key : "tcp", rec->address);
    json_put_object_end(j);
}

static void model_put(struct json_put *j, const struct record *rec)
{
    member_put(j, "namespace", rec->ns);
    member_put(j, "component", rec->component);
    member_put(j, "endpoint", rec->endpoint);
    id_put(j, rec);
    json_put_key(j, "card_json");
    json_put_raw(j, rec->card_json);
    if (rec->model_suffix.len)
        member_put(j, "model_suffix", rec->model_suffix);
}

static void endpoint_name_put(struct json_put *j, const char *key, const struct record *rec)
{
    json_put_key(j, key);
    json_put_object(j);
    member_put(j, "namespace", rec->ns);
    member_put(j, "component", rec->component);
    member_put(j, "name", rec->endpoint);
    json_put_object_end(j);
}

static void scope_put(struct json_put *j, const struct record *rec)
{
    json_put_key(j, "scope");
    json_put_object(j);
    if (rec->endpoint.len) {
        member_put(j, "kind", STR("endpoint"));
        endpoint_name_put(j, "endpoint", rec);
    } else if (rec->component.len) {
        member_put(j, "kind", STR("component"));
        member_put(j, "namespace", rec->ns);
        member_put(j, "component", rec->component);
    } else {
        member_put(j, "kind", STR("namespace"));
        member_put(j, "name", rec->ns);
    }
    json_put_object_end(j);
}

static void channel_transport_put(struct json_put *j, const struct record *rec)
{
    json_put_key(j, "transport");
    json_put_object(j);
    if (rec->transport == TRANSPORT_ZMQ_BROKER) {
        member_put(j, "kind", STR("ZmqBroker"));
        json_put_key(j, "config");
        json_put_raw(j, rec->address);
    } else {
        bool zmq = rec->transport == TRANSPORT_ZMQ;

        member_put(j, "kind", zmq ? STR("Zmq") : STR("Nats"));
        json_put_key(j, "config");
        json_put_object(j);
        member_put(j, zmq ? "endpoint" : "subject_prefix", rec->address);
        json_put_object_end(j);
    }
    json_put_object_end(j);
}

static void channel_put(struct json_put *j, const struct record *rec, bool combined)
{
    member_put(j, "namespace", rec->ns);
    member_put(j, "component", rec->component);
    if (combined || rec->endpoint.len)
        scope_put(j, rec);
    member_put(j, "topic", rec->topic);
    id_put(j, rec);
    channel_transport_put(j, rec);
}

static void source_put(struct json_put *j, const struct record *rec)
{
    scope_put(j, rec);
    member_put(j, "topic", rec->topic);
    json_put_member_u64(j, "publisher_id", rec->instance_id);
    json_put_key(j, "metadata");
    if (rec->metadata_json.len)
        json_put_raw(j, rec->metadata_json);
    else
        json_put_null(j);
}

void record_put(struct buf *out, const struct record *rec, bool combined)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    member_put(&j, "type", str_from(kinds[rec->kind].type));
    switch (rec->kind) {
    case RECORD_ENDPOINT:
        endpoint_put(&j, rec);
        break;
    case RECORD_MODEL:
        model_put(&j, rec);
        break;
    case RECORD_EVENT_CHANNEL:
        channel_put(&j, rec, combined);
        break;
    case RECORD_EVENT_SOURCE:
        source_put(&j, rec);
        break;
    }
    json_put_object_end(&j);
}

void record_of_source(struct record *ret, struct buf *metadata, const struct event_source *src)
{
    struct json_put j = json_put_on(metadata);

    *ret = (struct record){.kind = RECORD_EVENT_SOURCE,
                           .ns = str_from(src->ns),
                           .component = str_from(src->component),
                           .endpoint = str_from(src->endpoint),
                           .topic = STR(TOPIC_KV_EVENTS),
                           .instance_id = src->publisher_id};
    json_put_object(&j);
    endpoint_name_put(&j, "kv_state_endpoint", ret);
    json_put_key(&j, "worker");
    json_put_object(&j);
    json_put_member_u64(&j, "worker_id", src->worker_id);
    json_put_member_u64(&j, "dp_rank", src->dp_rank);
    json_put_object_end(&j);
    json_put_member_u64(&j, "publisher_id", src->publisher_id);
    if (src->recovery) {
        json_put_key(&j, "recovery_target");
        json_put_object(&j);
        endpoint_put(&j, src->recovery);
        json_put_object_end(&j);
    }
    json_put_object_end(&j);
    ret->metadata_json = buf_str(metadata);
}

/* --- names ------------------------------------------------------------------------------------ */

const char *record_bucket(enum record_kind kind)
{
    return kinds[kind].bucket;
}

void record_key_put(struct buf *out, const struct record *rec)
{
    bool is_channel = rec->kind == RECORD_EVENT_CHANNEL || rec->kind == RECORD_EVENT_SOURCE;

    if (is_channel && rec->endpoint.len) { /* a scope that 0.9 does not have: the key of 1.x */
        buf_printf(out, "namespace/%.*s/component/%.*s/endpoint/%.*s/topic/%.*s/%" PRIx64,
                   STR_ARG(rec->ns), STR_ARG(rec->component), STR_ARG(rec->endpoint),
                   STR_ARG(rec->topic), rec->instance_id);
        return;
    }
    buf_printf(out, "%.*s/%.*s/%.*s/%" PRIx64, STR_ARG(rec->ns), STR_ARG(rec->component),
               STR_ARG(is_channel ? rec->topic : rec->endpoint), rec->instance_id);
    if (rec->model_suffix.len)
        buf_printf(out, "/%.*s", STR_ARG(rec->model_suffix));
}

void slug_put(struct buf *out, struct str text)
{
    bool leading = true;

    for (size_t i = 0; i < text.len;) {
        unsigned char c = (unsigned char)text.ptr[i++];
        bool keep = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';

        if (c >= 'A' && c <= 'Z') {
            c = (unsigned char)(c - 'A' + 'a');
        } else if (!keep) {
            /* One underscore for a whole character, however many bytes it has. */
            while (c >= 0xC0 && i < text.len && ((unsigned char)text.ptr[i] & 0xC0) == 0x80)
                i++;
            c = '_';
        }
        if (leading && c == '_')
            continue;
        leading = false;
        buf_put_char(out, (char)c);
    }
}

uint64_t instance_id_of_pod(struct str pod_name)
{
    AUTO(buf_done) struct buf text = BUF_NULL;

    /* As the reference's language hashes a string: its bytes and one 0xFF. */
    buf_put_str(&text, pod_name);
    buf_put_char(&text, (char)0xFF);
    return digest_siphash13(buf_str(&text)) & UINT64_C(0x001FFFFFFFFFFFFF);
}
