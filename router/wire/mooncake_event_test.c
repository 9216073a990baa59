/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/mooncake_event.h"

#include <errno.h>

#include "lib/base/err.h"
#include "lib/base/msgpack.h"
#include "lib/base/test.h"

static void note(void *arg, const struct mooncake_event *ev)
{
    buf_printf(arg, "%c %.*s %.*s;", "SRC"[ev->change], STR_ARG(ev->object), STR_ARG(ev->tenant));
}

/* Of mooncake_master 0.3.14 (--kv_events_emit_legacy_compat and _object_key), shortened to what it
 * says of one stored object: a map with members that nobody asks for. */
static void put_of_master(struct buf *b)
{
    static const char *const nils[] = {"model_name", "block_size", "group_id", "token_ids"};

    msgpack_put_map(b, 7 + ARRAY_LEN(nils));
    msgpack_put_cstr(b, "event_id");
    msgpack_put_u64(b, 1);
    msgpack_put_cstr(b, "event_type");
    msgpack_put_cstr(b, "stored");
    msgpack_put_cstr(b, "type");
    msgpack_put_cstr(b, "BlockStored");
    for (size_t i = 0; i < ARRAY_LEN(nils); i++) {
        msgpack_put_cstr(b, nils[i]);
        msgpack_put_nil(b);
    }
    msgpack_put_cstr(b, "tenant_id");
    msgpack_put_cstr(b, "default");
    msgpack_put_cstr(b, "medium");
    msgpack_put_cstr(b, "cpu");
    msgpack_put_cstr(b, "object_key");
    msgpack_put_cstr(b, "abc_0_k");
    msgpack_put_cstr(b, "seq_hashes");
    msgpack_put_array(b, 0);
}

static void reads_what_a_master_sends(void **state)
{
    AUTO(buf_done) struct buf b = BUF_NULL, log = BUF_NULL;
    struct err e;

    (void)state;
    mooncake_batch_begin_put(&b, 1795416371151, 3);
    put_of_master(&b);
    mooncake_event_put(&b, &(struct mooncake_event){MOONCAKE_CLEARED, STR_NULL, STR("default")});
    mooncake_event_put(&b, &(struct mooncake_event){MOONCAKE_REMOVED, STR("x"), STR("")});
    mooncake_batch_end_put(&b);
    EXPECT_OK(mooncake_batch_decode(buf_str(&b), note, &log, &e), &e);
    assert_string_equal(buf_cstr(&log), "S abc_0_k default;C  default;R x ;");
}

/* As 1.6.1 takes and refuses them (measured): {batch, what comes of it or NULL}. */
static void takes_and_refuses_as_the_reference(void **state)
{
    static const struct {
        struct str batch;
        const char *says;
    } cases[] = {
        {STR("\x93\x01\x91\x92\xa6stored\xa1k\x00"), "S k ;"},
        {STR("\x93\x01\x91\x92\xa6stored\xa1k\x00\xc0\xc0"), "S k ;"}, /* more behind it */
        {STR("\x93\x01\x91\x94\xa6stored\xa1k\xa1t\xc0\x00"), "S k t;"},
        {STR("\x93\x01\x91\x91\xa6stored\x00"), "S  ;"},
        {STR("\x93\x01\x91\x92\xa3new\xa1k\x00"), ""},
        {STR("\x93\x01\x90\x00"), ""},
        {STR("\x93\x01\x91\x95\xa6stored\xa1k\xa1t\xc0\x00\x00"), NULL}, /* one part too many */
        {STR("\x93\x01\x92\x92\xa6stored\xa1k\x92\x03\xa1k\x00"), NULL}, /* the second is bad */
        {STR("\x93\x01\x91\x93\xa6stored\xa1k\xc0\x00"), NULL},          /* a tenant of nil */
        {STR("\x93\x01\x91\x90\x00"), NULL},                             /* no type */
        {STR("\x92\x01\x90"), NULL},
        {STR("\x94\x01\x90\x00\x00"), NULL},
        {STR("\x93\x01\x90\xc0"), NULL},
        {STR("\x93\x01\x90\xff"), NULL}, /* rank -1 */
        {STR("\x93\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00\x90\x00"), NULL},
        {STR("\x93\xcf\xff\xff\xff\xff\xff\xff\xff\xff\x90\x00"), NULL},
        {STR("\x83\xa1t\x01\xa1"
             "e\x90\xa1r\x00"),
         NULL},
        {STR("\xc1\xff"), NULL},
        {STR(""), NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf log = BUF_NULL;
        struct err e = {""};
        int r = mooncake_batch_decode(cases[i].batch, NULL, NULL, &e);

        if (r == 0)
            r = mooncake_batch_decode(cases[i].batch, note, &log, &e);
        if (r != (cases[i].says ? 0 : -EBADMSG))
            fail_msg("case %zu: %d %s", i, r, e.text);
        if (strcmp(buf_cstr(&log), cases[i].says ? cases[i].says : "") != 0)
            fail_msg("case %zu: %s", i, buf_cstr(&log));
    }
}

int main(void)
{
    return TEST_RUN(T(reads_what_a_master_sends), T(takes_and_refuses_as_the_reference));
}
