/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Client and server against each other over loopback, and each against a scripted peer where the
 * other side must misbehave.
 */
#include "lib/base/digest.h"
#include "lib/base/list.h"
#include "lib/base/log.h"
#include "lib/base/test.h"
#include "lib/net/loop_test.h"
#include "lib/net/tcp.h"
#include "router/wire/plane_address.h"
#include "router/wire/plane_client.h"
#include "router/wire/plane_server.h"
#include "router/wire/tcp_frame.h"
#include "router/wire/two_part.h"

#define GENERATE(id) (&(struct plane_endpoint){.name = "generate", .instance_id = (id)})

/* --- a rig: one loop with a client, a server and a scripted worker ---------------------------- */

struct rig {
    struct loop *loop;
    struct plane_client *client;
    struct plane_server *server;
    /* scripted worker */
    struct tcp_listener *raw;
    struct tcp *raw_conn, *raw_home;
    struct buf raw_in, raw_home_in;
    bool raw_silent;       /* neither ack nor call home */
    bool raw_hangs_up;     /* closes the connection after each ack */
    const char *raw_ack;   /* text of the ack */
    struct buf raw_script; /* bytes behind the handshake */
    bool raw_no_home, raw_reset;
    size_t raw_step; /* bytes a turn; 0 = all */
    size_t raw_frames;
    /* behaviour of the registered worker */
    size_t n_items;
    size_t item_bytes;
    size_t abort_after; /* SIZE_MAX = never */
    bool refuse, wait_for_drain;
    struct plane_request *held;
    size_t cancels, served, sent;
};

/* What a caller saw, as text: "A" accepted, "S" started, "i" item, "F" finished, "X" failed. */
struct call {
    struct rig *rig;
    struct plane_stream *stream;
    char seen[256];
    size_t n_items, n_batches;
    enum plane_failure kind;
    char text[256];
    bool over;
    size_t pause_at; /* item number; 0 = never */
    size_t cancel_at;
};

static void note(struct call *c, char what)
{
    size_t n = strlen(c->seen);

    if (n < sizeof(c->seen) - 1)
        c->seen[n] = what;
}

static void on_accepted(void *arg)
{
    note(arg, 'A');
}

static void on_started(void *arg)
{
    note(arg, 'S');
}

static void on_item(void *arg, const struct wire_item *item)
{
    struct call *c = arg;

    assert_false(c->over);
    assert_true(item->data.len > 0 || item->is_error);
    c->n_items++;
    note(c, item->is_error ? 'e' : 'i');
    if (c->n_items == c->pause_at)
        plane_stream_pause(c->stream);
    if (c->n_items == c->cancel_at) {
        c->stream = plane_stream_cancel(c->stream);
        c->over = true;
    }
}

static void on_finished(void *arg)
{
    struct call *c = arg;

    assert_false(c->over);
    c->over = true;
    note(c, 'F');
}

static void on_failed(void *arg, enum plane_failure kind, const char *text)
{
    struct call *c = arg;

    assert_false(c->over);
    c->over = true;
    c->kind = kind;
    (void)snprintf(c->text, sizeof(c->text), "%s", text);
    note(c, 'X');
}

static void on_batch_end(void *arg)
{
    struct call *c = arg;

    c->n_batches++;
}

static const struct plane_handlers handlers = {on_accepted, on_started, on_item,
                                               on_finished, on_failed,  on_batch_end};

static void call_send(struct rig *rig, struct call *c, const char *address)
{
    char id[UUID_TEXT_SIZE];
    struct plane_call call = {.address = str_from(address), .body = STR("{\"token_ids\":[1]}")};

    random_uuid(id);
    call.id = str_from(id);
    c->rig = rig;
    c->stream = plane_client_send(rig->client, &call, &handlers, c);
}

/* --- the registered worker -------------------------------------------------------------------- */

static void serve_cancelled(void *arg)
{
    struct rig *rig = arg;

    rig->cancels++;
    plane_request_abort(rig->held);
    rig->held = NULL;
}

static void serve_items(struct rig *rig)
{
    AUTO(buf_done) struct buf data = BUF_NULL;

    while (rig->held && rig->sent < rig->n_items) {
        if (rig->sent == rig->abort_after) {
            plane_request_abort(TAKE(rig->held));
            return;
        }
        if (rig->wait_for_drain && plane_request_backlog(rig->held) > 65536)
            return;
        buf_clear(&data);
        buf_printf(&data, "{\"token_ids\":[%zu],\"pad\":\"%0*d\"}", rig->sent++,
                   (int)rig->item_bytes, 0);
        plane_request_item(rig->held, buf_str(&data));
    }
    if (rig->sent == rig->abort_after)
        plane_request_abort(TAKE(rig->held));
    else
        plane_request_finish(TAKE(rig->held));
}

static void serve_drained(void *arg)
{
    struct rig *rig = arg;

    if (rig->n_items != SIZE_MAX)
        serve_items(rig);
}

static void serve(void *arg, struct plane_request *rq)
{
    static const struct plane_request_handlers on = {serve_cancelled, serve_drained};
    struct rig *rig = arg;

    rig->served++;
    assert_true(str_is(plane_request_body(rq), "{\"token_ids\":[1]}"));
    assert_int_equal(plane_request_id(rq).len, 36);
    if (rig->refuse) {
        plane_request_refuse(rq, STR("no \"room\""));
        return;
    }
    plane_request_start(rq);
    rig->held = rq;
    rig->sent = 0;
    plane_request_set_handlers(rq, &on, rig);
    if (rig->n_items != SIZE_MAX)
        serve_items(rig);
}

/* --- the scripted worker ---------------------------------------------------------------------- */

static void raw_continue(void *arg)
{
    struct rig *rig = arg;
    size_t n = rig->raw_step ? MIN(rig->raw_step, rig->raw_script.len) : rig->raw_script.len;

    if (!rig->raw_home)
        return;
    tcp_write(rig->raw_home, str_head(buf_str(&rig->raw_script), n));
    buf_consume(&rig->raw_script, n);
    if (rig->raw_script.len)
        loop_post(rig->loop, raw_continue, rig);
    else if (rig->raw_reset)
        rig->raw_home = tcp_abort(rig->raw_home);
    else
        tcp_shutdown(rig->raw_home);
}

static void raw_home_received(void *arg, struct str data)
{
    struct rig *rig = arg;

    buf_put_str(&rig->raw_home_in, data);
}

static void raw_home_closed(void *arg, int error)
{
    struct rig *rig = arg;

    (void)error;
    rig->raw_home = tcp_close(rig->raw_home);
}

static void raw_call_home(struct rig *rig, struct str payload)
{
    static const struct tcp_handlers on = {.received = raw_home_received,
                                           .closed = raw_home_closed};
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    AUTO(buf_done) struct buf out = BUF_NULL;
    AUTO(buf_done) struct buf json = BUF_NULL;
    struct plane_address a;
    struct two_part m;
    struct control c;
    struct err e;
    size_t used;

    EXPECT_OK(two_part_decode(payload, 1 << 20, &m, &used, &e), &e);
    EXPECT_OK(control_parse(m.header, &scratch, &c, &e), &e);
    EXPECT_OK(plane_address_parse(c.address, &a, &e), &e);
    handshake_put(&json, c.subject);
    two_part_put(&out, buf_str(&json), STR_NULL);
    buf_put_str(&out, buf_str(&rig->raw_script));
    buf_clear(&rig->raw_script);
    buf_put_str(&rig->raw_script, buf_str(&out));
    (void)tcp_close(rig->raw_home);
    EXPECT_OK(tcp_connect(&rig->raw_home, rig->loop, a.ip, a.port, &on, rig, &e), &e);
    raw_continue(rig);
}

static void raw_received(void *arg, struct str data)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct rig *rig = arg;
    struct tcp_frame f;
    size_t used;

    buf_put_str(&rig->raw_in, data);
    if (tcp_frame_decode(buf_str(&rig->raw_in), 1 << 20, &f, &used, NULL) != 0)
        return;
    rig->raw_frames++;
    if (rig->raw_silent)
        return;
    tcp_ack_put(&out, str_from(rig->raw_ack));
    tcp_write(rig->raw_conn, buf_str(&out));
    if (!rig->raw_no_home && !rig->raw_ack)
        raw_call_home(rig, f.payload);
    buf_consume(&rig->raw_in, used);
    if (rig->raw_hangs_up)
        rig->raw_conn = tcp_close(rig->raw_conn);
}

static void raw_closed(void *arg, int error)
{
    struct rig *rig = arg;

    (void)error;
    rig->raw_conn = tcp_close(rig->raw_conn);
}

static void raw_accept(void *arg, struct tcp *take_conn)
{
    static const struct tcp_handlers on = {.received = raw_received, .closed = raw_closed};
    struct rig *rig = arg;

    (void)tcp_close(rig->raw_conn);
    buf_clear(&rig->raw_in);
    rig->raw_conn = take_conn;
    tcp_set_handlers(take_conn, &on, rig);
}

static char *raw_address(struct rig *rig)
{
    return xasprintf("127.0.0.1:%u/ab/generate", tcp_listener_port(rig->raw));
}

static void script(struct rig *rig, const char *header, const char *body)
{
    two_part_put(&rig->raw_script, str_from(header), str_from(body));
}

/* --- set-up ----------------------------------------------------------------------------------- */

static void rig_init(struct rig *rig, const struct plane_client_conf *more)
{
    struct plane_client_conf conf = more ? *more : (struct plane_client_conf){0};
    struct plane_server_conf server_conf = {.host = "127.0.0.1"};
    struct err e;

    *rig = (struct rig){.n_items = 3, .abort_after = SIZE_MAX};
    EXPECT_OK(log_setup("off", false, &e), &e);
    conf.advertise_ip = conf.listen_host = "127.0.0.1";
    EXPECT_OK(loop_new(&rig->loop, &e), &e);
    EXPECT_OK(plane_client_new(&rig->client, rig->loop, &conf, &e), &e);
    EXPECT_OK(plane_server_new(&rig->server, rig->loop, &server_conf, &e), &e);
    EXPECT_OK(tcp_listen(&rig->raw, rig->loop, "127.0.0.1", 0, raw_accept, rig, &e), &e);
    plane_server_register(rig->server, GENERATE(0xa1), serve, rig);
}

static void rig_done(struct rig *rig)
{
    if (rig->held)
        plane_request_abort(rig->held);
    rig->client = plane_client_free(rig->client);
    rig->server = plane_server_free(rig->server);
    rig->raw = tcp_listener_close(rig->raw);
    rig->raw_conn = tcp_close(rig->raw_conn);
    rig->raw_home = tcp_close(rig->raw_home);
    loop_run_once(rig->loop, 0);
    rig->loop = loop_free(rig->loop);
    buf_done(&rig->raw_in);
    buf_done(&rig->raw_home_in);
    buf_done(&rig->raw_script);
}

static char *address_of(struct rig *rig, const char *path)
{
    return xasprintf("%s/%s", plane_server_address(rig->server), path);
}

static void call_worker(struct rig *rig, struct call *c)
{
    AUTO(mem_free) char *address = address_of(rig, "a1/generate");

    call_send(rig, c, address);
}

static void call_raw(struct rig *rig, struct call *c)
{
    AUTO(mem_free) char *address = raw_address(rig);

    call_send(rig, c, address);
}

/* --- tests ------------------------------------------------------------------------------------ */

static void test_normal(void **state)
{
    struct call a = {0}, b = {0};
    struct plane_stats st;
    struct rig rig;

    (void)state;
    rig_init(&rig, NULL);
    call_worker(&rig, &a);
    assert_string_equal(a.seen, ""); /* nothing from within the call */
    LOOP_UNTIL(rig.loop, a.over);
    assert_string_equal(a.seen, "ASiiiF");
    assert_true(a.n_batches <= a.n_items);
    call_worker(&rig, &b);
    LOOP_UNTIL(rig.loop, b.over && plane_server_running(rig.server) == 0);
    assert_string_equal(b.seen, "ASiiiF");
    st = plane_client_stats(rig.client);
    assert_int_equal(st.finished, 2);
    assert_int_equal(st.items, 6);
    assert_int_equal(st.streams, 0);
    assert_int_equal(st.connections, 1); /* reused */
    rig_done(&rig);
}

static void test_engine_refuses(void **state)
{
    struct call c = {0};
    struct rig rig;

    (void)state;
    rig_init(&rig, NULL);
    rig.refuse = true;
    call_worker(&rig, &c);
    LOOP_UNTIL(rig.loop, c.over);
    assert_int_equal(c.kind, PLANE_ENGINE);
    assert_string_equal(c.text, "no \"room\"");
    assert_false(plane_failure_is_retryable(c.kind));
    rig_done(&rig);
}

static void test_refused(void **state)
{
    struct call c = {0}, d = {0};
    struct rig rig;
    AUTO(mem_free) char *address = NULL;

    (void)state;
    rig_init(&rig, NULL);
    address = address_of(&rig, "a77b124025c541e6/nope");
    call_send(&rig, &c, address);
    LOOP_UNTIL(rig.loop, c.over);
    assert_int_equal(c.kind, PLANE_REFUSED);
    assert_string_equal(c.text, "Unknown endpoint: a77b124025c541e6/nope");
    assert_true(plane_failure_is_retryable(c.kind));
    call_worker(&rig, &d); /* the connection stays good */
    LOOP_UNTIL(rig.loop, d.over);
    assert_string_equal(d.seen, "ASiiiF");
    assert_int_equal(plane_client_stats(rig.client).connections, 1);
    plane_server_unregister(rig.server, GENERATE(0xa1));
    d = (struct call){0};
    call_worker(&rig, &d);
    LOOP_UNTIL(rig.loop, d.over);
    assert_int_equal(d.kind, PLANE_REFUSED);
    rig.raw_ack = "Server overloaded: worker at capacity";
    d = (struct call){0};
    call_raw(&rig, &d);
    LOOP_UNTIL(rig.loop, d.over);
    assert_int_equal(d.kind, PLANE_REFUSED);
    assert_string_equal(d.text, rig.raw_ack);
    rig_done(&rig);
}

static void test_cannot_send(void **state)
{
    static const char *const bad[] = {"", "nothost:1/a", "1.2.3.4/a", "1.2.3.4:0/a",
                                      "1.2.3.4:70000/a"};
    struct plane_client_conf conf = {.streams_max = 1};
    struct call c = {0}, d = {0};
    AUTO(mem_free) char *gone = NULL;
    struct rig rig;

    (void)state;
    rig_init(&rig, &conf);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        c = (struct call){0};
        call_send(&rig, &c, bad[i]);
        LOOP_UNTIL(rig.loop, c.over);
        assert_int_equal(c.kind, PLANE_BAD_ADDRESS);
    }
    gone = raw_address(&rig);
    rig.raw = tcp_listener_close(rig.raw);
    loop_run_once(rig.loop, 0);
    c = (struct call){0};
    call_send(&rig, &c, gone);
    call_worker(&rig, &d);
    LOOP_UNTIL(rig.loop, c.over && d.over);
    assert_int_equal(c.kind, PLANE_UNREACHABLE);
    assert_int_equal(d.kind, PLANE_OVERLOADED); /* one stream at a time */
    assert_int_equal(plane_client_stats(rig.client).connections, 0);
    rig_done(&rig);
}

/* Each limit alone, so that none that is kept can run out on a busy machine. */
static void test_deadlines(void **state)
{
    static const struct {
        struct plane_client_conf conf;
        bool silent, no_home;
        enum plane_failure kind;
    } cases[] = {{{.ack_ms = 30}, true, false, PLANE_NO_ACK},
                 {{.call_home_ms = 30}, false, true, PLANE_NO_CALL_HOME},
                 {{.first_item_ms = 1000}, false, false, PLANE_NO_FIRST_ITEM}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        bool starts = cases[i].kind == PLANE_NO_FIRST_ITEM; /* and then says nothing */
        struct call c = {0};
        struct rig rig;

        rig_init(&rig, &cases[i].conf);
        rig.raw_silent = cases[i].silent;
        rig.raw_no_home = cases[i].no_home;
        rig.n_items = SIZE_MAX;
        (starts ? call_worker : call_raw)(&rig, &c);
        LOOP_UNTIL(rig.loop, c.over);
        assert_int_equal(c.kind, cases[i].kind);
        if (cases[i].no_home)
            assert_string_equal(c.seen, "AX");
        LOOP_UNTIL(rig.loop, rig.cancels == (starts ? 1 : 0)); /* and the worker was told */
        rig_done(&rig);
    }
}

static void test_worker_dies(void **state)
{
    static const struct {
        size_t items;
        enum plane_failure kind;
    } cases[] = {{0, PLANE_BROKEN_EARLY}, {2, PLANE_BROKEN}};
    struct rig rig;

    (void)state;
    rig_init(&rig, NULL);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct call c = {0};

        rig.n_items = 5;
        rig.abort_after = cases[i].items;
        call_worker(&rig, &c);
        LOOP_UNTIL(rig.loop, c.over);
        assert_int_equal(c.kind, cases[i].kind);
        assert_int_equal(c.n_items, cases[i].items);
        assert_string_equal(c.text, "Stream ended before generation completed");
        assert_int_equal(plane_failure_is_retryable(c.kind), cases[i].items == 0);
    }
    rig_done(&rig);
}

/* What a worker may send behind its handshake, and what becomes of the stream. */
static void test_grammar(void **state)
{
    static const char ITEM[] = "{\"data\":{\"data\":{\"token_ids\":[5]}},\"complete_final\":false}";
    static const char FINAL[] = "{\"complete_final\":true}";
    static const char OK[] = "{\"error\":null}";
    static const struct {
        const char *name;
        const char *frames[6][2]; /* header, body */
        const char *seen;
        enum plane_failure kind;
    } cases[] = {
        {"whole", {{OK}, {0, ITEM}, {0, FINAL}, {"\"sentinel\""}}, "ASiF", 0},
        {"no sentinel", {{OK}, {0, ITEM}, {0, FINAL}}, "ASiF", 0},
        {"no item", {{OK}, {0, FINAL}, {"\"sentinel\""}}, "ASF", 0},
        {"item after final", {{OK}, {0, FINAL}, {0, ITEM}}, "ASF", 0},
        {"handler died", {{"\"sentinel\""}}, "AX", PLANE_BROKEN_EARLY},
        {"no prologue", {{0, ITEM}}, "AX", PLANE_PROTOCOL},
        {"odd prologue", {{"{\"err\":null}"}}, "AX", PLANE_PROTOCOL},
        {"no final", {{OK}, {0, ITEM}, {"\"sentinel\""}}, "ASiX", PLANE_BROKEN},
        {"no end", {{OK}, {0, ITEM}}, "ASiX", PLANE_BROKEN},
        {"nothing", {{OK}}, "ASX", PLANE_BROKEN_EARLY},
        {"word of ours", {{OK}, {"\"stop\""}}, "ASX", PLANE_PROTOCOL},
        {"header and body", {{OK}, {"\"sentinel\"", ITEM}}, "ASX", PLANE_PROTOCOL},
        {"final missing", {{OK}, {0, "{\"data\":{}}"}}, "ASX", PLANE_PROTOCOL},
        {"no data", {{OK}, {0, "{\"complete_final\":false}"}}, "ASX", PLANE_PROTOCOL},
        {"no json", {{OK}, {0, "}{"}}, "ASX", PLANE_PROTOCOL},
        {"error item",
         {{OK},
          {0,
           "{\"data\":{\"event\":\"error\",\"comment\":[\"a\",\"b\"]},\"complete_final\":false}"},
          {0, FINAL}},
         "ASeF",
         0},
    };
    static const size_t steps[] = {0, 1, 7};
    struct rig rig;

    (void)state;
    rig_init(&rig, NULL);
    for (size_t n = 0; n < ARRAY_LEN(cases) * ARRAY_LEN(steps); n++) {
        size_t i = n / ARRAY_LEN(steps);
        struct call c = {0};

        rig.raw_step = steps[n % ARRAY_LEN(steps)];
        buf_clear(&rig.raw_script);
        for (size_t f = 0; cases[i].frames[f][0] || cases[i].frames[f][1]; f++)
            script(&rig, cases[i].frames[f][0], cases[i].frames[f][1]);
        call_raw(&rig, &c);
        LOOP_UNTIL(rig.loop, c.over);
        if (strcmp(c.seen, cases[i].seen) != 0 || (c.kind != cases[i].kind))
            fail_msg("%s, step %zu: saw %s, %s %s", cases[i].name, rig.raw_step, c.seen,
                     plane_failure_name(c.kind), c.text);
        LOOP_UNTIL(rig.loop, !rig.raw_home);
    }
    assert_int_equal(plane_client_stats(rig.client).streams, 0);
    rig_done(&rig);
}

static void test_frame_too_large(void **state)
{
    struct plane_client_conf conf = {.frame_max = 1000};
    struct call c = {0};
    struct rig rig;

    (void)state;
    rig_init(&rig, &conf);
    script(&rig, "{\"error\":null}", NULL);
    buf_put_u64be(&rig.raw_script, 0);
    buf_put_u64be(&rig.raw_script, UINT64_MAX - 10);
    buf_put_u64be(&rig.raw_script, 0);
    call_raw(&rig, &c);
    LOOP_UNTIL(rig.loop, c.over);
    assert_int_equal(c.kind, PLANE_PROTOCOL);
    rig_done(&rig);
}

static void test_reset(void **state)
{
    struct call c = {0};
    struct rig rig;

    (void)state;
    rig_init(&rig, NULL);
    rig.raw_reset = true;
    rig.raw_step = 20;
    script(&rig, "{\"error\":null}", NULL);
    call_raw(&rig, &c);
    LOOP_UNTIL(rig.loop, c.over);
    assert_true(c.kind == PLANE_BROKEN_EARLY || c.kind == PLANE_NO_CALL_HOME);
    rig_done(&rig);
}

static void test_cancel(void **state)
{
    struct call c = {.cancel_at = 2}, d = {0}, f = {0};
    struct plane_stats st;
    struct rig rig;

    (void)state;
    rig_init(&rig, NULL);
    rig.n_items = 1000000;
    rig.wait_for_drain = true;
    rig.item_bytes = 1000;
    call_worker(&rig, &c);
    LOOP_UNTIL(rig.loop, rig.cancels == 1);
    assert_string_equal(c.seen, "ASii");
    call_worker(&rig, &d); /* cancelled before anything left */
    d.stream = plane_stream_cancel(d.stream);
    call_worker(&rig, &f); /* and when the ack was there */
    LOOP_UNTIL(rig.loop, strcmp(f.seen, "") != 0);
    f.stream = plane_stream_cancel(f.stream);
    LOOP_UNTIL(rig.loop, plane_server_running(rig.server) == 0);
    assert_string_equal(d.seen, "");
    st = plane_client_stats(rig.client);
    assert_int_equal(st.cancelled, 3);
    assert_int_equal(st.streams, 0);
    rig_done(&rig);
}

static void test_back_pressure(void **state)
{
    struct call c = {.pause_at = 3};
    size_t sent;
    struct rig rig;

    (void)state;
    rig_init(&rig, NULL);
    rig.n_items = 200000;
    rig.item_bytes = 200;
    rig.wait_for_drain = true;
    call_worker(&rig, &c);
    LOOP_UNTIL(rig.loop, c.n_items == 3);
    /* The worker fills the sockets' buffers and then stops. */
    do {
        sent = rig.sent;
        for (int i = 0; i < 5; i++)
            loop_run_once(rig.loop, 1);
    } while (rig.sent != sent);
    assert_true(sent < rig.n_items);
    assert_int_equal(c.n_items, 3);
    plane_stream_resume(c.stream);
    LOOP_UNTIL(rig.loop, c.over);
    assert_int_equal(c.n_items, rig.n_items);
    assert_int_equal(rig.sent, rig.n_items);
    rig_done(&rig);
}

/* A worker that heeds no backlog, and a frontend that does not read: given up, memory bounded. */
static void test_flood(void **state)
{
    static char item[1 << 20];
    struct call c = {.pause_at = 1};
    struct rig rig;

    (void)state;
    rig_init(&rig, NULL);
    rig.n_items = SIZE_MAX;
    memset(item, '7', sizeof(item));
    call_worker(&rig, &c);
    LOOP_UNTIL(rig.loop, rig.held);
    plane_request_item(rig.held, STR("1"));
    LOOP_UNTIL(rig.loop, c.n_items == 1);
    for (size_t i = 0; i < 200; i++)
        plane_request_item(rig.held, str_slice(item, sizeof(item)));
    LOOP_UNTIL(rig.loop, rig.cancels == 1);
    assert_true(plane_server_stats(rig.server).items < 100);
    plane_stream_resume(c.stream);
    LOOP_UNTIL(rig.loop, c.over);
    assert_int_equal(c.kind, PLANE_BROKEN);
    rig_done(&rig);
}

static void test_pool(void **state)
{
    struct plane_client_conf conf = {.pool_max = 1};
    struct call c[20] = {{0}};
    struct rig rig;

    (void)state;
    rig_init(&rig, &conf);
    for (size_t i = 0; i < ARRAY_LEN(c); i++)
        call_worker(&rig, &c[i]);
    assert_int_equal(plane_client_stats(rig.client).connections, 1);
    for (size_t i = 0; i < ARRAY_LEN(c); i++) {
        LOOP_UNTIL(rig.loop, c[i].over);
        assert_string_equal(c[i].seen, "ASiiiF");
    }
    AUTO(mem_free) char *address = address_of(&rig, "a1/generate");

    plane_client_forget(rig.client, str_from(address));
    assert_int_equal(plane_client_stats(rig.client).connections, 0);
    rig_done(&rig);
}

/* A worker that hangs up after each ack: the next request finds out and connects anew. */
static void test_stale_connection(void **state)
{
    struct call c = {0};
    struct rig rig;

    (void)state;
    rig_init(&rig, NULL);
    rig.raw_no_home = true;
    call_raw(&rig, &c);
    LOOP_UNTIL(rig.loop, strcmp(c.seen, "A") == 0);
    rig.raw_conn = tcp_abort(rig.raw_conn); /* we have not noticed yet */
    struct call d = {0};

    call_raw(&rig, &d);
    LOOP_UNTIL(rig.loop, strcmp(d.seen, "A") == 0);
    assert_int_equal(rig.raw_frames, 2);
    c.stream = plane_stream_cancel(c.stream);
    d.stream = plane_stream_cancel(d.stream);
    rig_done(&rig);
}

static void test_server_limits(void **state)
{
    struct plane_server_conf conf = {.host = "127.0.0.1", .running_max = 1};
    struct plane_server *small = NULL;
    struct call c = {0}, d = {0};
    AUTO(mem_free) char *address = NULL;
    struct rig rig;
    struct err e;

    (void)state;
    rig_init(&rig, NULL);
    EXPECT_OK(plane_server_new(&small, rig.loop, &conf, &e), &e);
    plane_server_register(small, GENERATE(0xb2), serve, &rig);
    plane_server_register(small, GENERATE(0xb3), serve, &rig);
    rig.n_items = SIZE_MAX;
    address = xasprintf("%s/b2/generate", plane_server_address(small));
    call_send(&rig, &c, address);
    LOOP_UNTIL(rig.loop, rig.served == 1);
    call_send(&rig, &d, address);
    LOOP_UNTIL(rig.loop, d.over);
    assert_int_equal(d.kind, PLANE_REFUSED);
    assert_non_null(strstr(d.text, "Server overloaded: "));
    c.stream = plane_stream_cancel(c.stream);
    LOOP_UNTIL(rig.loop, plane_server_running(small) == 0);
    assert_int_equal(plane_server_stats(small).overloaded, 1);
    small = plane_server_free(small);
    rig_done(&rig);
}

static void test_free_in_flight(void **state)
{
    struct call c[4] = {{0}};
    struct rig rig;

    (void)state;
    rig_init(&rig, NULL);
    rig.n_items = SIZE_MAX;
    call_worker(&rig, &c[0]);
    LOOP_UNTIL(rig.loop, strcmp(c[0].seen, "AS") == 0);
    call_worker(&rig, &c[1]);
    call_send(&rig, &c[2], "");
    rig.client = plane_client_free(rig.client);
    LOOP_UNTIL(rig.loop, rig.cancels >= 1);
    assert_false(c[0].over || c[1].over || c[2].over);
    rig_done(&rig);
}

int main(void)
{
    return TEST_RUN(T(test_normal), T(test_engine_refuses), T(test_refused), T(test_cannot_send),
                    T(test_deadlines), T(test_worker_dies), T(test_grammar),
                    T(test_frame_too_large), T(test_reset), T(test_cancel), T(test_back_pressure),
                    T(test_flood), T(test_pool), T(test_stale_connection), T(test_server_limits),
                    T(test_free_in_flight));
}
