/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Envelope, small events and names of the event plane.
 */
#include <errno.h>
#include <inttypes.h>

#include "lib/base/err.h"
#include "lib/base/msgpack.h"
#include "router/wire/kv_event.h"
#include "router/wire/members.h"

int event_envelope_decode(struct str bytes, struct event_envelope *ret, struct err *e)
{
    struct event_envelope v = {0};
    struct msgpack_reader m;
    bool has_payload = false;
    struct members s;
    struct str name;
    int r;

    if (bytes.len > KV_EVENT_BYTES_MAX)
        return err_set(e, -EMSGSIZE, "event of %zu bytes", bytes.len);
    msgpack_reader_init(&m, bytes);
    if (MEMBERS(&m, &s, "publisher_id", "sequence", "published_at", "topic", "payload")) {
        while (members_next(&m, &s, &name)) {
            if (str_is(name, "publisher_id"))
                u64_read(&m, &v.publisher_id);
            else if (str_is(name, "sequence"))
                u64_read(&m, &v.sequence);
            else if (str_is(name, "published_at"))
                u64_read(&m, &v.published_at);
            else if (str_is(name, "topic"))
                str_read(&m, &v.topic);
            else if (str_is(name, "payload"))
                has_payload = msgpack_read_str(&m, &v.payload);
            else
                (void)msgpack_skip(&m);
        }
    }
    r = msgpack_end(&m, e);
    if (r < 0)
        return err_wrap(e, r, "event envelope");
    if (!has_payload || !v.topic.len)
        return err_set(e, -EBADMSG, "event envelope lacks topic or payload");
    *ret = v;
    return 0;
}

void event_envelope_put(struct buf *out, const struct event_envelope *v)
{
    msgpack_put_map(out, 5);
    u64_member_put(out, "publisher_id", v->publisher_id);
    u64_member_put(out, "sequence", v->sequence);
    u64_member_put(out, "published_at", v->published_at);
    str_member_put(out, "topic", v->topic);
    msgpack_put_cstr(out, "payload");
    msgpack_put_bin(out, v->payload);
}

enum { FRAME_VERSION = 1, FRAME_HEAD = 5 };

int event_frame_parse(struct str frame, struct str *ret_envelope, struct err *e)
{
    if (frame.len < FRAME_HEAD)
        return err_set(e, -EBADMSG, "event frame of %zu bytes", frame.len);
    if (frame.ptr[0] != FRAME_VERSION)
        return err_set(e, -EBADMSG, "event frame of version %u", (unsigned char)frame.ptr[0]);
    if (load_u32be(frame.ptr + 1) != frame.len - FRAME_HEAD)
        return err_set(e, -EBADMSG, "event frame says %u bytes and holds %zu",
                       load_u32be(frame.ptr + 1), frame.len - FRAME_HEAD);
    *ret_envelope = str_skip(frame, FRAME_HEAD);
    return 0;
}

void event_frame_put(struct buf *out, struct str envelope)
{
    buf_put_char(out, FRAME_VERSION);
    buf_put_u32be(out, (uint32_t)envelope.len);
    buf_put_str(out, envelope);
}

int active_load_decode(struct str payload, struct active_load *ret, struct err *e)
{
    struct active_load v = {0};
    struct msgpack_reader m;
    bool has_worker = false;
    struct members s;
    struct str name;
    int r;

    msgpack_reader_init(&m, payload);
    if (MEMBERS(&m, &s, "worker_id", "dp_rank", "active_decode_blocks", "active_prefill_tokens",
                "kv_used_blocks")) {
        while (members_next(&m, &s, &name)) {
            if (str_is(name, "worker_id"))
                has_worker = msgpack_read_u64(&m, &v.worker_id);
            else if (str_is(name, "dp_rank"))
                u32_read(&m, &v.dp_rank);
            else if (str_is(name, "active_decode_blocks"))
                opt_read(&m, &v.active_decode_blocks);
            else if (str_is(name, "active_prefill_tokens"))
                opt_read(&m, &v.active_prefill_tokens);
            else if (str_is(name, "kv_used_blocks"))
                opt_read(&m, &v.kv_used_blocks);
            else
                (void)msgpack_skip(&m);
        }
    }
    r = msgpack_end(&m, e);
    if (r < 0)
        return err_wrap(e, r, "active load");
    if (!has_worker)
        return err_set(e, -EBADMSG, "active load lacks worker_id");
    *ret = v;
    return 0;
}

void active_load_put(struct buf *out, const struct active_load *v)
{
    msgpack_put_map(out, v->kv_used_blocks.set ? 5 : 4);
    u64_member_put(out, "worker_id", v->worker_id);
    u64_member_put(out, "dp_rank", v->dp_rank);
    opt_member_put(out, "active_decode_blocks", v->active_decode_blocks);
    opt_member_put(out, "active_prefill_tokens", v->active_prefill_tokens);
    if (v->kv_used_blocks.set)
        opt_member_put(out, "kv_used_blocks", v->kv_used_blocks);
}

int kv_hit_rate_decode(struct str payload, struct kv_hit_rate *ret, struct err *e)
{
    struct kv_hit_rate v = {0};
    struct msgpack_reader m;
    struct members s;
    struct str name;
    int r;

    msgpack_reader_init(&m, payload);
    if (MEMBERS(&m, &s, "worker_id", "dp_rank", "isl_blocks", "overlap_blocks")) {
        while (members_next(&m, &s, &name)) {
            if (str_is(name, "worker_id"))
                u64_read(&m, &v.worker_id);
            else if (str_is(name, "dp_rank"))
                u32_read(&m, &v.dp_rank);
            else if (str_is(name, "isl_blocks"))
                u64_read(&m, &v.isl_blocks);
            else if (str_is(name, "overlap_blocks"))
                u64_read(&m, &v.overlap_blocks);
            else
                (void)msgpack_skip(&m);
        }
    }
    r = msgpack_end(&m, e);
    if (r < 0)
        return err_wrap(e, r, "kv hit rate");
    *ret = v;
    return 0;
}

void kv_hit_rate_put(struct buf *out, const struct kv_hit_rate *v)
{
    msgpack_put_map(out, 4);
    u64_member_put(out, "worker_id", v->worker_id);
    u64_member_put(out, "dp_rank", v->dp_rank);
    u64_member_put(out, "isl_blocks", v->isl_blocks);
    u64_member_put(out, "overlap_blocks", v->overlap_blocks);
}

void event_subject_put(struct buf *out, const char *ns, const char *component, const char *endpoint,
                       const char *topic)
{
    buf_printf(out, "namespace.%s", ns);
    if (component)
        buf_printf(out, ".component.%s", component);
    if (endpoint)
        buf_printf(out, ".endpoint.%s", endpoint);
    if (topic)
        buf_printf(out, ".%s", topic);
}

/* A slug with '_' as '-': whatever is not a letter or a digit becomes '-'. */
static void slug_subject_put(struct buf *out, const char *ns, const char *component,
                             const char *last)
{
    size_t begin = out->len;

    event_subject_put(out, ns, component, NULL, NULL);
    buf_printf(out, ".%s", last);
    for (char *c = buf_data(out) + begin; c < buf_data(out) + out->len; c++) {
        if (*c >= 'A' && *c <= 'Z')
            *c = (char)(*c - 'A' + 'a');
        else if (!(*c >= 'a' && *c <= 'z') && !(*c >= '0' && *c <= '9'))
            *c = '-';
    }
}

void event_stream_put(struct buf *out, const char *ns, const char *component)
{
    slug_subject_put(out, ns, component, TOPIC_KV_EVENTS);
}

void event_bucket_put(struct buf *out, const char *ns, const char *component)
{
    slug_subject_put(out, ns, component, "radix-bucket");
}

void event_stream_config_put(struct buf *out, const char *stream, uint64_t max_age_s)
{
    buf_printf(out,
               "{\"name\":\"%s\",\"subjects\":[\"%s.*\"],\"retention\":\"limits\","
               "\"max_consumers\":-1,\"max_msgs\":-1,\"max_bytes\":-1,\"max_age\":%" PRIu64
               "000000000,\"discard\":\"old\",\"storage\":\"file\",\"num_replicas\":1}",
               stream, stream, max_age_s);
}
