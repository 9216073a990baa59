/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worked bytes of wire.md §4.10 and §7.8, and what is not allowed: limits, missing keys, wrong
 * types. Captures are capture_test.c's.
 */
#include <errno.h>

#include "lib/base/arena.h"
#include "lib/base/test.h"
#include "router/wire/control.h"
#include "router/wire/engine_output.h"
#include "router/wire/engine_request.h"
#include "router/wire/kv_event.h"
#include "router/wire/tcp_frame.h"
#include "router/wire/two_part.h"

static void unhex(struct buf *out, const char *hex)
{
    int high = -1;

    for (; *hex; hex++) {
        const char *digits = "0123456789abcdef", *at = strchr(digits, *hex);

        if (!at)
            continue; /* spaces */
        if (high < 0) {
            high = (int)(at - digits);
        } else {
            buf_put_char(out, (char)(high << 4 | (int)(at - digits)));
            high = -1;
        }
    }
}

static void expect_bytes(const struct buf *got, const char *hex)
{
    AUTO(buf_done) struct buf want = BUF_NULL;

    unhex(&want, hex);
    assert_int_equal(got->len, want.len);
    assert_memory_equal(buf_data(got), buf_data(&want), want.len);
}

/* --- frames ----------------------------------------------------------------------------------- */

static void test_worked_request(void **state)
{
    const struct control c = {
        .id = STR("11111111-2222-4333-8444-555555555555"),
        .address = STR("10.0.0.1:41235"),
        .subject = STR("aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"),
    };
    AUTO(buf_done) struct buf control = BUF_NULL;
    AUTO(buf_done) struct buf frame = BUF_NULL;
    AUTO(buf_done) struct buf head = BUF_NULL;
    struct str body = STR("{\"model\":\"m\",\"token_ids\":[1,15043],\"stop_conditions\":{"
                          "\"max_tokens\":2},\"sampling_options\":{},\"output_options\":{},"
                          "\"eos_token_ids\":[2],\"mdc_sum\":null,\"annotations\":[]}");
    struct err e;

    (void)state;
    control_put(&control, &c);
    assert_int_equal(control.len, 321);
    EXPECT_OK(tcp_frame_put(&frame, STR("1a2b/generate"),
                            STR("{\"x-endpoint-path\":\"1a2b/generate\"}"), buf_str(&control), body,
                            &e),
              &e);
    assert_int_equal(frame.len, 565);
    buf_put(&head, buf_data(&frame), 0x58);
    expect_bytes(&head, "000d316132622f67656e657261746500 237b22782d656e64706f696e742d7061"
                        "7468223a22316132622f67656e657261 7465227d000001fd0000000000000141"
                        "00000000000000a40000000000000000 7b226964223a2231");
    /* The second half of the worked control message: quotes inside of the quoted JSON. */
    assert_true(str_ends(buf_str(&control), STR("\\\"stream_type\\\":\\\"response\\\"}\"}}")));
}

static void test_worked_responses(void **state)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    size_t mark;

    (void)state;
    mark = two_part_begin_body(&out);
    wire_item_put(&out, STR("{\"token_ids\":[3186]}"));
    two_part_end_body(&out, mark);
    expect_bytes(&out, "0000000000000000 000000000000003d 0000000000000000"
                       "7b2264617461223a7b2264617461223a7b22746f6b656e5f696473223a5b333138"
                       "365d7d7d2c22636f6d706c6574655f66696e616c223a66616c73657d");
    buf_clear(&out);
    two_part_put(&out, control_word_text(WORD_KILL), STR_NULL);
    expect_bytes(&out, "0000000000000006 0000000000000000 0000000000000000 226b696c6c22");
    buf_clear(&out);
    two_part_put(&out, control_word_text(WORD_SENTINEL), STR_NULL);
    expect_bytes(&out, "000000000000000a 0000000000000000 0000000000000000 2273656e74696e656c22");
    buf_clear(&out);
    tcp_ack_put(&out, STR("Unknown endpoint: a77b124025c541e6/nope"));
    assert_int_equal(load_u32be(buf_data(&out)), 0x27);
    buf_clear(&out);
    tcp_ack_put(&out, STR_NULL);
    expect_bytes(&out, "00000000");
}

static void test_lengths(void **state)
{
    AUTO(buf_done) struct buf in = BUF_NULL;
    struct two_part m;
    struct tcp_frame f;
    struct err e;
    size_t used;

    (void)state;
    /* A sum that wraps must not pass for a small message. */
    unhex(&in, "ffffffffffffffff 0000000000000019 0000000000000000");
    assert_int_equal(two_part_decode(buf_str(&in), 1 << 20, &m, &used, &e), -EMSGSIZE);
    buf_clear(&in);
    unhex(&in, "0000000000000001 00000000000fffff 0000000000000000");
    assert_int_equal(two_part_decode(buf_str(&in), 1 << 20, &m, &used, &e), -EMSGSIZE);
    assert_int_equal(two_part_decode(buf_str(&in), 1 << 21, &m, &used, &e), TWO_PART_MORE);
    assert_int_equal(two_part_decode(str_head(buf_str(&in), 23), 1, &m, &used, &e), TWO_PART_MORE);

    buf_clear(&in);
    unhex(&in, "0000");
    assert_int_equal(tcp_frame_decode(buf_str(&in), 100, &f, &used, &e), -EBADMSG);
    buf_clear(&in);
    unhex(&in, "0401");
    assert_int_equal(tcp_frame_decode(buf_str(&in), 100, &f, &used, &e), -EBADMSG);
    buf_clear(&in);
    unhex(&in, "0001 61 0000 ffffffff");
    assert_int_equal(tcp_frame_decode(buf_str(&in), 100, &f, &used, &e), -EMSGSIZE);
    for (size_t n = 0; n < in.len; n++)
        assert_int_equal(tcp_frame_decode(str_head(buf_str(&in), n), 100, &f, &used, &e),
                         TCP_FRAME_MORE);
}

/* --- JSON ------------------------------------------------------------------------------------- */

#define INFO(transport, context, type)                                                             \
    "\"connection_info\":{\"transport\":\"" transport "\",\"info\":\"{\\\"address\\\":"            \
    "\\\"1.2.3.4:5\\\",\\\"subject\\\":\\\"s\\\",\\\"context\\\":\\\"" context                     \
    "\\\",\\\"stream_type\\\":\\\"" type "\\\"}\"}"
#define TYPES "\"request_type\":\"single_in\",\"response_type\":\"many_out\","

static void test_control_refusals(void **state)
{
    static const struct {
        const char *json, *why; /* NULL = good */
    } cases[] = {
        {"{\"id\":\"r\"," TYPES INFO("tcp_server", "r", "response") "}", NULL},
        {"{\"id\":\"r\",\"payload_codec\":null,\"metadata\":{},\"frontend_send_ts_ns\":1," TYPES
             INFO("tcp_server", "r", "response") "}",
         NULL},
        {"{\"id\":\"q\"," TYPES INFO("tcp_server", "r", "response") "}", "context"},
        {"{\"id\":\"r\"," TYPES INFO("udp", "r", "response") "}", "transport"},
        {"{\"id\":\"r\"," TYPES INFO("tcp_server", "r", "request") "}", "stream type"},
        {"{\"id\":\"r\"," INFO("tcp_server", "r", "response") "}", "lacks"},
        {"{" TYPES INFO("tcp_server", "r", "response") "}", "lacks"},
        {"{\"id\":7," TYPES INFO("tcp_server", "r", "response") "}", "string"},
        {"{\"id\":\"r\"," TYPES "\"connection_info\":{\"transport\":\"tcp_server\",\"info\":{}}}",
         "string"},
        {"{\"id\":\"r\"," TYPES
         "\"connection_info\":{\"transport\":\"tcp_server\",\"info\":\"{\"}}",
         "info"},
        {"[]", "object"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf scratch = BUF_NULL;
        struct err e = {""};
        struct control c;
        int r = control_parse(str_from(cases[i].json), &scratch, &c, &e);

        if (cases[i].why && (r != -EINVAL || !strstr(e.text, cases[i].why)))
            fail_msg("case %zu: %d %s", i, r, e.text);
        if (!cases[i].why)
            EXPECT_OK(r, &e);
    }
}

static void test_items(void **state)
{
    static const struct {
        const char *json;
        bool is_error;
        const char *data, *error, *type;
    } cases[] = {
        {"{\"complete_final\":false,\"data\":{\"data\":[1]}}", 0, "[1]", "", ""},
        {"{\"data\":{\"data\":null,\"event\":\"note\"},\"complete_final\":false}", 0, "", "", ""},
        {"{\"data\":{\"event\":\"error\",\"comment\":[\"a\",\"\\u00e4\"]},\"complete_final\":"
         "false}",
         1, "", "a, \xC3\xA4", ""},
        {"{\"data\":{\"event\":\"error\",\"comment\":null},\"complete_final\":false}", 1, "", "",
         ""},
        {"{\"data\":{\"comment\":[\"c\"],\"error\":{\"error_type\":{\"Backend\":\"EngineShutdown\"}"
         ","
         "\"message\":\"m\",\"caused_by\":{\"message\":\"x\"}}},\"complete_final\":false}",
         1, "", "m", "Backend.EngineShutdown"},
        {"{\"data\":{\"error\":{\"error_type\":\"Disconnected\",\"message\":\"m\"}},"
         "\"complete_final\":false}",
         1, "", "m", "Disconnected"},
        {"{\"data\":{\"error\":null,\"data\":1},\"complete_final\":false}", 0, "1", "", ""},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf scratch = BUF_NULL;
        struct wire_item it;
        struct err e;

        EXPECT_OK(wire_item_parse(str_from(cases[i].json), &scratch, &it, &e), &e);
        assert_int_equal(it.is_error, cases[i].is_error);
        assert_true(str_is(it.data, cases[i].data));
        assert_true(str_is(it.error, cases[i].error));
        assert_true(str_is(it.error_type, cases[i].type));
    }
}

static void test_engine_request(void **state)
{
    static const char GOOD[] =
        "\"stop_conditions\":{},\"sampling_options\":{},\"output_options\":{}";
    static const struct {
        const char *head, *why; /* before GOOD; NULL = good */
    } cases[] = {
        {"\"model\":\"m\",\"token_ids\":[4294967295],", NULL},
        {"\"model\":\"m\",\"token_ids\":[],\"unknown\":{\"a\":[1]},", NULL},
        {"\"model\":\"m\",\"token_ids\":[1],\"routing\":{\"lora_name\":null,"
         "\"cache_salt\":null,\"dp_rank\":null},\"bootstrap_info\":{\"handoff_id\":null,"
         "\"bootstrap_room\":1},\"mm_processor_kwargs\":null,\"prompt_embeds\":null,"
         "\"stop_conditions\":{\"stop\":null,\"stop_token_ids\":null,"
         "\"stop_token_ids_hidden\":null,\"min_tokens\":null},",
         NULL},
        {"\"model\":\"m\",", "token_ids"},
        {"\"model\":\"m\",\"token_ids\":null,", "token_ids"},
        {"\"token_ids\":[],", "model"},
        {"\"model\":\"m\",\"token_ids\":[4294967296],", "range"},
        {"\"model\":\"m\",\"token_ids\":[-1],", "range"},
        {"\"model\":\"m\",\"token_ids\":[1.5],", "integer"},
        {"\"model\":\"m\",\"token_ids\":[\"1\"],", "integer"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(arena_free) struct arena *a = arena_new();
        AUTO(mem_free) char *json = xasprintf("{%s%s}", cases[i].head, GOOD);
        struct engine_request rq;
        struct err e = {""};
        int r = engine_request_parse(a, str_from(json), &rq, &e);

        if (cases[i].why && (r != -EINVAL || !strstr(e.text, cases[i].why)))
            fail_msg("case %zu: %d %s", i, r, e.text);
        if (!cases[i].why)
            EXPECT_OK(r, &e);
    }
}

static void test_engine_request_round(void **state)
{
    static const uint32_t ids[] = {1, 15043}, hidden[] = {2};
    const struct str stops[] = {STR("a\n"), STR("\xC3\xA4")}, notes[] = {STR("query_instance_id:")};
    AUTO(arena_free) struct arena *a = arena_new();
    AUTO(buf_done) struct buf out = BUF_NULL;
    AUTO(buf_done) struct buf again = BUF_NULL;
    struct engine_request rq =
                              {
                                  .model = STR("a \"model\""),
                                  .token_ids = ids,
                                  .n_token_ids = 2,
                                  .stop = {.max_tokens = OPT_U64(8),
                                           .ignore_eos = OPT_BOOL(false),
                                           .stop = stops,
                                           .n_stop = 2,
                                           .hidden_ids = hidden,
                                           .n_hidden_ids = 1},
                                  .sampling = {.temperature = OPT_F64(0),
                                               .top_p = OPT_F64(0.95),
                                               .seed = OPT_I64(-7),
                                               .guided_decoding_json = STR("{\"regex\":\"a+\"}")},
                                  .annotations = notes,
                                  .n_annotations = 1,
                                  .has_routing = true,
                                  .routing = {.backend_instance_id = OPT_U64(UINT64_MAX),
                                              .dp_rank = OPT_U64(3),
                                              .constraints_json = STR("{\"required_taints\":[]}"),
                                              .strict_priority = OPT_U64(2),
                                              .priority_jump = OPT_F64(4),
                                              .priority = OPT_I64(-4)},
                                  .has_targets = true,
                                  .targets = {.ttft_ms = OPT_F64(0)},
                                  .has_override = true,
                                  .overlap_score_weight = OPT_F64(0),
                                  .has_bootstrap = true,
                                  .bootstrap = {STR("10.0.0.9"), 18501, UINT64_MAX,
                                                STR("da6cf316")},
                              },
                          back;
    struct err e;

    (void)state;
    engine_request_put(&out, &rq);
    assert_true(
        str_has(buf_str(&out),
                STR("\"routing\":{\"backend_instance_id\":18446744073709551615,\"dp_rank\":3,"
                    "\"priority_jump\":4.0,\"strict_priority\":2,\"priority\":-4,"
                    "\"routing_constraints\":{\"required_taints\":[]}}")));
    assert_true(str_has(buf_str(&out), STR(",\"router\":{\"ttft_target\":0.0},")));
    assert_true(str_has(buf_str(&out), STR("\"router_config_override\":{\"overlap_score_weight\":0."
                                           "0,\"router_temperature\":null}")));
    EXPECT_OK(engine_request_parse(a, buf_str(&out), &back, &e), &e);
    assert_true(str_eq(back.stop.stop[1], stops[1]) && str_eq(back.stop.stop[0], stops[0]));
    assert_true(str_eq(back.model, rq.model) && back.bootstrap.room == UINT64_MAX);
    assert_true(str_is(back.bootstrap.handoff_id, "da6cf316"));
    engine_request_put(&again, &back);
    assert_string_equal(buf_cstr(&out), buf_cstr(&again));
    rq.has_routing = false;
    buf_clear(&out);
    engine_request_put(&out, &rq);
    assert_false(str_has(buf_str(&out), STR("\"routing\"")));
}

static void test_engine_output(void **state)
{
    static const struct {
        const char *json;
        int want;
        enum finish_reason finish;
        const char *error;
    } cases[] = {
        {"{\"token_ids\":[1,2]}", 0, FINISH_NONE, ""},
        {"{\"token_ids\":[],\"finish_reason\":\"length\"}", 0, FINISH_LENGTH, ""},
        {"{\"token_ids\":[],\"finish_reason\":\"abort\"}", 0, FINISH_CANCELLED, ""},
        {"{\"token_ids\":[],\"finish_reason\":\"error: No outputs\"}", 0, FINISH_ERROR,
         "No outputs"},
        {"{\"token_ids\":[],\"finish_reason\":{\"error\":\"m\"}}", 0, FINISH_ERROR, "m"},
        {"{\"token_ids\":[],\"finish_reason\":\"novel\"}", -EINVAL, 0, ""},
        {"{\"finish_reason\":\"stop\"}", -EINVAL, 0, ""},
        {"{\"token_ids\":null}", -EINVAL, 0, ""},
        {"{\"token_ids\":[4294967296]}", -EINVAL, 0, ""},
        {"{\"token_ids\":[1],\"text\":7}", -EINVAL, 0, ""},
        {"[]", -EINVAL, 0, ""},
    };
    AUTO(engine_output_reader_done) struct engine_output_reader rd = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct engine_output o;
        struct err e = {""};
        int r = engine_output_parse(&rd, str_from(cases[i].json), &o, &e);

        if (r != cases[i].want)
            fail_msg("%s: %d %s", cases[i].json, r, e.text);
        if (r < 0)
            continue;
        assert_int_equal(o.finish, cases[i].finish);
        assert_true(str_is(o.finish_error, cases[i].error));
    }
}

/* --- events ----------------------------------------------------------------------------------- */

static const char WORKED_EVENT[] =
    "85 ac7075626c69736865725f6964 cf488c6f34f9b66e5b a873657175656e6365 03"
    "ac7075626c69736865645f6174 cf000001a1fd5e6fd4 a5746f706963 a96b762d6576656e7473"
    "a77061796c6f6164 c4c3"
    "82 a9776f726b65725f6964 cf488c6f34f9b66e5b a56576656e74 83 a86576656e745f6964 03"
    "a464617461 81 a673746f726564 82 ab706172656e745f68617368 c0 a6626c6f636b73 92"
    "83 aa626c6f636b5f68617368 cfcb38e4d7fb2dca5c ab746f6b656e735f68617368 cfcb38e4d7fb2dca5c"
    "ad6d6d5f65787472615f696e666f c0"
    "83 aa626c6f636b5f68617368 cf44a2b2379d6d3c3d ab746f6b656e735f68617368 cfe8d3ec39b907b74c"
    "ad6d6d5f65787472615f696e666f c0 a764705f72616e6b 00";

static void test_worked_event(void **state)
{
    static const struct kv_block blocks[] = {
        {UINT64_C(0xcb38e4d7fb2dca5c), UINT64_C(0xcb38e4d7fb2dca5c)},
        {UINT64_C(0x44a2b2379d6d3c3d), UINT64_C(0xe8d3ec39b907b74c)},
    };
    const struct kv_event ev = {.worker_id = UINT64_C(0x488c6f34f9b66e5b),
                                .event_id = 3,
                                .kind = KV_STORED,
                                .blocks = blocks,
                                .n_blocks = 2};
    const struct active_load load = {.worker_id = UINT64_C(0x488c6f34f9b66e5b),
                                     .active_decode_blocks = OPT_U64(0)};
    AUTO(buf_done) struct buf payload = BUF_NULL;
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct event_envelope v = {ev.worker_id, 3, UINT64_C(0x1a1fd5e6fd4), STR(TOPIC_KV_EVENTS),
                               STR_NULL};

    (void)state;
    kv_event_put(&payload, &ev);
    v.payload = buf_str(&payload);
    event_envelope_put(&out, &v);
    expect_bytes(&out, WORKED_EVENT);
    assert_int_equal(out.len, 276);
    buf_clear(&out);
    active_load_put(&out, &load);
    expect_bytes(&out, "84a9776f726b65725f6964cf488c6f34f9b66e5ba764705f72616e6b00"
                       "b46163746976655f6465636f64655f626c6f636b7300"
                       "b56163746976655f70726566696c6c5f746f6b656e73c0");
}

struct last {
    struct kv_event ev;
    struct kv_block first;
    size_t n;
};

static void keep(void *arg, const struct kv_event *ev)
{
    struct last *last = arg;

    last->n++;
    last->ev = *ev;
    if (ev->n_blocks)
        last->first = ev->blocks[0];
}

/* Positional structs, tiers, signed hashes; and what is no event. */
static void test_event_forms(void **state)
{
    static const struct {
        const char *hex;
        size_t n; /* events reported; 0 = refused */
    } cases[] = {
        /* [7, {event_id:1, data:"cleared"}] */
        {"92 07 82 a86576656e745f6964 01 a464617461 a7636c6561726564", 1},
        /* [7, "disk", [1, {"stored":[nil, [[-1, 5, nil]]]}, 2]] */
        {"93 07 a46469736b 93 01 81 a673746f726564 92 c0 91 93 d3ffffffffffffffff 05 c0 02", 1},
        /* a batch of the first, twice */
        {"92 9207 82a86576656e745f696401a464617461a7636c6561726564"
         "   9208 82a86576656e745f696402a464617461a7636c6561726564",
         2},
        {"90", 0},
        {"80", 0},
        {"92 07 81 a86576656e745f6964 01", 0},
        {"92 07 82 a86576656e745f6964 01 a464617461 a46e6f7065", 0},
        {"92 07 82 a86576656e745f6964 01 a464617461 80", 0},
        {"92 07 82 a86576656e745f6964 01 a464617461 81 a673746f726564 82 ab706172656e745f68617368 "
         "c0"
         "a6626c6f636b73 ddffffffff",
         0},
        {"c1", 0},
        {"", 0},
    };
    AUTO(kv_event_reader_done) struct kv_event_reader r = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf in = BUF_NULL;
        struct last last = {.n = 0};
        struct err e = {""};
        int rc;

        unhex(&in, cases[i].hex);
        rc = kv_events_decode(&r, buf_str(&in), keep, &last, &e);
        if (last.n != cases[i].n || (rc < 0) != (cases[i].n == 0 && i != 3))
            fail_msg("case %zu: %zu events, %d %s", i, last.n, rc, e.text);
        if (i == 1) {
            assert_int_equal(last.ev.tier, KV_TIER_DISK);
            assert_int_equal(last.ev.dp_rank, 2);
            assert_true(last.first.block_hash == UINT64_MAX);
            assert_false(last.ev.parent_hash.set);
        }
    }
}

/* What we write of another tier we read again, in both forms; what is not the worker's is no tier of
 * its own. */
static void test_event_tiers(void **state)
{
    static const uint64_t removed[] = {5};
    AUTO(kv_event_reader_done) struct kv_event_reader r = {0};
    const struct kv_event ev = {.worker_id = 7,
                                .event_id = 1,
                                .kind = KV_REMOVED,
                                .tier = KV_TIER_EXTERNAL,
                                .removed = removed,
                                .n_removed = 1};
    AUTO(buf_done) struct buf packed = BUF_NULL, json = BUF_NULL;
    struct last last = {.n = 0};
    struct err e;

    (void)state;
    kv_event_put(&packed, &ev);
    EXPECT_OK(kv_events_decode(&r, buf_str(&packed), keep, &last, &e), &e);
    assert_int_equal(last.ev.tier, KV_TIER_EXTERNAL);
    kv_event_put_json(&json, &ev);
    EXPECT_OK(kv_events_parse(&r, buf_str(&json), keep, &last, &e), &e);
    assert_int_equal(last.ev.tier, KV_TIER_EXTERNAL);
    assert_int_equal(last.n, 2);

    EXPECT_OK(kv_events_parse(&r,
                              STR("{\"worker_id\":1,\"residency_domain\":\"cache_owner\","
                                  "\"storage_tier\":\"device\","
                                  "\"event\":{\"event_id\":1,\"data\":\"cleared\"}}"),
                              keep, &last, &e),
              &e);
    assert_int_equal(last.ev.tier, KV_TIER_UNKNOWN);
    EXPECT_OK(kv_events_parse(&r,
                              STR("{\"worker_id\":1,\"residency_domain\":\"worker\","
                                  "\"storage_tier\":\"disk\","
                                  "\"event\":{\"event_id\":1,\"data\":\"cleared\"}}"),
                              keep, &last, &e),
              &e);
    assert_int_equal(last.ev.tier, KV_TIER_DISK);
}

static void test_event_limits(void **state)
{
    AUTO(kv_event_reader_done) struct kv_event_reader r = {0};
    AUTO(buf_done) struct buf in = BUF_NULL;
    struct last last = {.n = 0};
    struct err e;

    (void)state;
    buf_put_cstr(
        &in,
        "{\"worker_id\":1,\"event\":{\"event_id\":1,\"data\":{\"removed\":{\"block_hashes\":[0");
    for (size_t i = 0; i < KV_EVENT_BLOCKS_MAX; i++)
        buf_put_cstr(&in, ",1");
    buf_put_cstr(&in, "]}}}}");
    assert_true(kv_events_parse(&r, buf_str(&in), keep, &last, &e) < 0);
    assert_non_null(strstr(e.text, "too many"));
    assert_int_equal(last.n, 0);

    buf_clear(&in);
    unhex(&in, WORKED_EVENT);
    struct event_envelope v;

    EXPECT_OK(event_envelope_decode(buf_str(&in), &v, &e), &e);
    for (size_t n = 0; n < v.payload.len; n++) /* cut anywhere: refused, never half an event */
        assert_true(kv_events_decode(&r, str_head(v.payload, n), keep, &last, &e) < 0);
    assert_int_equal(last.n, 0);
    mem_fail_at(1); /* memory gone while blocks are kept */
    kv_event_reader_done(&r);
    assert_true(kv_events_decode(&r, v.payload, keep, &last, &e) < 0);
    assert_true(mem_has_failed());
    mem_fail_at(0);
    EXPECT_OK(kv_events_decode(&r, v.payload, keep, &last, &e), &e);
    assert_int_equal(last.n, 1);
}

static void test_subjects(void **state)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    (void)state;
    event_subject_put(&out, "dynamo", "backend", NULL, TOPIC_KV_EVENTS);
    assert_string_equal(buf_cstr(&out), "namespace.dynamo.component.backend.kv-events");
    buf_clear(&out);
    event_subject_put(&out, "dynamo", NULL, NULL, TOPIC_KV_METRICS);
    assert_string_equal(buf_cstr(&out), "namespace.dynamo.kv_metrics");
    buf_clear(&out);
    event_subject_put(&out, "dynamo", "backend", "generate", NULL);
    assert_string_equal(buf_cstr(&out), "namespace.dynamo.component.backend.endpoint.generate");
    buf_clear(&out);
    event_stream_put(&out, "dynamo", "backend");
    assert_string_equal(buf_cstr(&out), "namespace-dynamo-component-backend-kv-events");
}

int main(void)
{
    return TEST_RUN(T(test_worked_request), T(test_worked_responses), T(test_lengths),
                    T(test_control_refusals), T(test_items), T(test_engine_request),
                    T(test_engine_request_round), T(test_engine_output), T(test_worked_event),
                    T(test_event_forms), T(test_event_tiers), T(test_event_limits),
                    T(test_subjects));
}
