/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/msgpack.h"

#include <errno.h>
#include <glob.h>
#include <msgpack.h>

#include "lib/base/json_pull.h"
#include "lib/base/test.h"

static struct msgpack_reader reader_on(struct str bytes)
{
    struct msgpack_reader r;

    msgpack_reader_init(&r, bytes);
    return r;
}

static void put_hex(struct buf *out, const char *hex)
{
    unsigned byte;

    while (*hex) {
        if (*hex == ' ') {
            hex++;
            continue;
        }
        assert_int_equal(sscanf(hex, "%2x", &byte), 1);
        buf_put_char(out, (char)byte);
        hex += 2;
    }
}

/* Reads one value and writes it again. */
static void copy_value(struct msgpack_reader *r, struct buf *out)
{
    enum msgpack_kind kind = msgpack_peek(r);
    uint32_t n = 0;
    struct str s;
    int64_t i;
    uint64_t u;
    double f;
    bool b;

    if (kind == MSGPACK_NIL) {
        assert_true(msgpack_read_nil(r));
        msgpack_put_nil(out);
    } else if (kind == MSGPACK_BOOL) {
        assert_true(msgpack_read_bool(r, &b));
        msgpack_put_bool(out, b);
    } else if (kind == MSGPACK_INT) {
        struct msgpack_reader again = *r;

        if (msgpack_read_u64(&again, &u)) {
            *r = again;
            msgpack_put_u64(out, u);
        } else {
            assert_true(msgpack_read_i64(r, &i));
            msgpack_put_i64(out, i);
        }
    } else if (kind == MSGPACK_FLOAT) {
        assert_true(msgpack_read_f64(r, &f));
        msgpack_put_f64(out, f);
    } else if (kind == MSGPACK_STR || kind == MSGPACK_BIN) {
        assert_true(msgpack_read_str(r, &s));
        if (kind == MSGPACK_STR)
            msgpack_put_str(out, s);
        else
            msgpack_put_bin(out, s);
    } else if (kind == MSGPACK_ARRAY) {
        assert_true(msgpack_read_array(r, &n));
        msgpack_put_array(out, n);
    } else {
        assert_int_equal(kind, MSGPACK_MAP);
        assert_true(msgpack_read_map(r, &n));
        msgpack_put_map(out, n);
        n *= 2;
    }
    while (n-- > 0)
        copy_value(r, out);
}

static void assert_copies(struct str bytes)
{
    AUTO(buf_done) struct buf copy = BUF_NULL;
    struct msgpack_reader r = reader_on(bytes), skipped = r;
    struct err e;

    copy_value(&r, &copy);
    EXPECT_OK(msgpack_end(&r, &e), &e);
    assert_true(str_eq(buf_str(&copy), bytes));
    assert_true(msgpack_skip(&skipped));
    EXPECT_OK(msgpack_end(&skipped, &e), &e);
}

/* wire.md §7.8: what a 0.9.0 worker published. */
static const char envelope_hex[] =
    "85 ac 7075626c69736865725f6964 cf 488c6f34f9b66e5b a8 73657175656e6365 03"
    "ac 7075626c69736865645f6174 cf 000001a1fd5e6fd4 a5 746f706963 a9 6b762d6576656e7473"
    "a7 7061796c6f6164 c4 c3"
    "82 a9 776f726b65725f6964 cf 488c6f34f9b66e5b a5 6576656e74 83"
    "a8 6576656e745f6964 03 a4 64617461 81 a6 73746f726564 82 ab 706172656e745f68617368 c0"
    "a6 626c6f636b73 92"
    "83 aa 626c6f636b5f68617368 cf cb38e4d7fb2dca5c ab 746f6b656e735f68617368 cf cb38e4d7fb2dca5c"
    "ad 6d6d5f65787472615f696e666f c0"
    "83 aa 626c6f636b5f68617368 cf 44a2b2379d6d3c3d ab 746f6b656e735f68617368 cf e8d3ec39b907b74c"
    "ad 6d6d5f65787472615f696e666f c0"
    "a7 64705f72616e6b 00";

static void test_worked_bytes_of_the_wire(void **state)
{
    AUTO(buf_done) struct buf envelope = BUF_NULL;
    struct msgpack_reader r;
    struct str key, payload = STR_NULL, topic = STR_NULL;
    uint64_t publisher = 0, published_at = 0;
    uint32_t n;

    (void)state;
    put_hex(&envelope, envelope_hex);
    assert_int_equal(envelope.len, 276);
    assert_copies(buf_str(&envelope));

    r = reader_on(buf_str(&envelope));
    assert_true(msgpack_read_map(&r, &n));
    while (n-- > 0 && msgpack_read_str(&r, &key)) {
        if (str_is(key, "publisher_id"))
            assert_true(msgpack_read_u64(&r, &publisher));
        else if (str_is(key, "published_at"))
            assert_true(msgpack_read_u64(&r, &published_at));
        else if (str_is(key, "topic"))
            assert_true(msgpack_read_str(&r, &topic));
        else if (str_is(key, "payload"))
            assert_true(msgpack_read_str(&r, &payload));
        else
            assert_true(msgpack_skip(&r));
    }
    assert_int_equal(msgpack_end(&r, NULL), 0);
    assert_true(publisher == UINT64_C(0x488c6f34f9b66e5b));
    assert_true(published_at == UINT64_C(0x1a1fd5e6fd4));
    assert_true(str_is(topic, "kv-events"));
    assert_int_equal(payload.len, 195);
    assert_copies(payload);
}

static struct str payload_of(struct str envelope)
{
    struct msgpack_reader r = reader_on(envelope);
    struct str key, payload = STR_NULL;
    uint32_t n = 0;

    assert_true(msgpack_read_map(&r, &n));
    while (n-- > 0 && msgpack_read_str(&r, &key)) {
        if (str_is(key, "payload"))
            assert_true(msgpack_read_str(&r, &payload));
        else
            assert_true(msgpack_skip(&r));
    }
    assert_int_equal(msgpack_end(&r, NULL), 0);
    return payload;
}

/* Events of the event plane are MessagePack, those of JetStream JSON. */
static void test_captured_events_copy_byte_for_byte(void **state)
{
    const char *shared = test_shared();
    AUTO(mem_free)
    char *pattern = xasprintf("%s/data/wire/*/*/events-nats/*kv*events*.bin", shared);
    glob_t files;
    int packed = 0, json = 0;

    (void)state;
    assert_int_equal(glob(pattern, 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        AUTO(buf_done) struct buf bytes = BUF_NULL;
        struct json_pull p;

        assert_true(test_read_file(files.gl_pathv[i], &bytes));
        if (buf_data(&bytes)[0] == '{') {
            json_pull_init(&p, buf_str(&bytes));
            assert_true(json_pull_skip(&p, NULL));
            assert_int_equal(json_pull_end(&p, NULL), 0);
            json++;
            continue;
        }
        assert_copies(buf_str(&bytes));
        assert_copies(payload_of(buf_str(&bytes)));
        packed++;
    }
    globfree(&files);
    assert_true(packed > 0 && json > 0);
}

static void test_integers_in_every_format(void **state)
{
    static const struct {
        const char *hex;
        bool is_u64, is_i64;
        uint64_t bits;
        double f64;
    } cases[] = {
        {"00", true, true, 0, 0},
        {"7f", true, true, 127, 127},
        {"ff", false, true, UINT64_MAX, -1},
        {"e0", false, true, (uint64_t)-32, -32},
        {"cc ff", true, true, 255, 255},
        {"cd 0100", true, true, 256, 256},
        {"ce ffffffff", true, true, UINT32_MAX, 4294967295.0},
        {"cf ffffffffffffffff", true, false, UINT64_MAX, 18446744073709551615.0},
        {"d0 80", false, true, (uint64_t)-128, -128},
        {"d0 05", true, true, 5, 5}, /* signed formats carry positive numbers too */
        {"d1 ff7f", false, true, (uint64_t)-129, -129},
        {"d2 80000000", false, true, (uint64_t)INT32_MIN, INT32_MIN},
        {"d3 8000000000000000", false, true, (uint64_t)INT64_MIN, -9223372036854775808.0},
        {"d3 7fffffffffffffff", true, true, INT64_MAX, 9223372036854775808.0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf bytes = BUF_NULL;
        struct msgpack_reader u, s, h, f;
        uint64_t unsigned_got = 7, hash = 7;
        int64_t signed_got = 7;
        double number = 7;

        put_hex(&bytes, cases[i].hex);
        u = s = h = f = reader_on(buf_str(&bytes));
        assert_int_equal(msgpack_read_u64(&u, &unsigned_got), cases[i].is_u64);
        assert_true(unsigned_got == (cases[i].is_u64 ? cases[i].bits : 7));
        assert_int_equal(msgpack_read_i64(&s, &signed_got), cases[i].is_i64);
        assert_true(signed_got == (cases[i].is_i64 ? (int64_t)cases[i].bits : 7));
        assert_true(msgpack_read_hash(&h, &hash) && hash == cases[i].bits);
        assert_true(msgpack_read_f64(&f, &number) && number == cases[i].f64);
        assert_int_equal(msgpack_end(&f, NULL), 0);
    }
}

static void test_numbers_are_written_in_their_shortest_form(void **state)
{
    static const struct {
        int64_t in;
        const char *hex;
    } cases[] = {
        {0, "00"},
        {127, "7f"},
        {128, "cc80"},
        {255, "ccff"},
        {256, "cd0100"},
        {65535, "cdffff"},
        {65536, "ce00010000"},
        {INT64_C(4294967296), "cf0000000100000000"},
        {-1, "ff"},
        {-32, "e0"},
        {-33, "d0df"},
        {-128, "d080"},
        {-129, "d1ff7f"},
        {-32768, "d18000"},
        {-32769, "d2ffff7fff"},
        {INT32_MIN, "d280000000"},
        {INT64_C(-2147483649), "d3ffffffff7fffffff"},
        {INT64_MIN, "d38000000000000000"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf want = BUF_NULL;
        AUTO(buf_done) struct buf got = BUF_NULL;

        put_hex(&want, cases[i].hex);
        msgpack_put_i64(&got, cases[i].in);
        if (!str_eq(buf_str(&got), buf_str(&want)))
            fail_msg("%lld is not %s", (long long)cases[i].in, cases[i].hex);
    }
}

static void test_lengths_at_the_edges_of_formats(void **state)
{
    static const uint32_t lengths[] = {0, 1, 15, 16, 31, 32, 255, 256, 65535, 65536, 70000};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        AUTO(buf_done) struct buf out = BUF_NULL;
        AUTO(mem_free) char *zeros = xcalloc(lengths[i], 1);

        msgpack_put_array(&out, 4);
        msgpack_put_str(&out, str_slice(zeros, lengths[i]));
        msgpack_put_bin(&out, str_slice(zeros, lengths[i]));
        msgpack_put_array(&out, lengths[i]);
        buf_put(&out, zeros, lengths[i]); /* each byte is the integer 0 */
        msgpack_put_map(&out, lengths[i] / 2);
        buf_put(&out, zeros, lengths[i] / 2 * 2);
        assert_copies(buf_str(&out));
    }
}

static void test_extensions_are_only_skipped(void **state)
{
    static const char *const cases[] = {
        "d4 01 aa",        "d5 01 aaaa", "d6 01 aaaaaaaa", "d7 01 aaaaaaaaaaaaaaaa",
        "c7 03 01 aaaaaa", "c7 00 01",   "c8 0001 01 aa",  "c9 00000001 01 aa"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf bytes = BUF_NULL;
        struct msgpack_reader r;

        put_hex(&bytes, cases[i]);
        r = reader_on(buf_str(&bytes));
        assert_int_equal(msgpack_peek(&r), MSGPACK_EXT);
        assert_true(msgpack_skip(&r));
        assert_int_equal(msgpack_end(&r, NULL), 0);
    }
}

static void test_malformed_bytes(void **state)
{
    static const struct {
        const char *hex;
        const char *why;
    } cases[] = {
        {"", "byte 0: the bytes end early"},
        {"c1", "byte 0: 0xc1 is no format"},
        {"cd 01", "byte 0: the bytes end early"},
        {"a3 6162", "byte 0: a length or count exceeds what is left"},
        {"c6 ffffffff 00", "byte 0: a length or count exceeds what is left"},
        {"d8 01 00", "byte 0: a length or count exceeds what is left"},
        {"dd ffffffff 00", "byte 0: a length or count exceeds what is left"},
        {"82 00 00 00", "byte 0: a length or count exceeds what is left"},
        {"92 00 c1", "byte 2: 0xc1 is no format"},
        {"00 00", "byte 1: something follows the value"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf bytes = BUF_NULL;
        struct msgpack_reader r;
        struct err e;

        put_hex(&bytes, cases[i].hex);
        r = reader_on(buf_str(&bytes));
        (void)msgpack_skip(&r);
        assert_int_equal(msgpack_end(&r, &e), -EBADMSG);
        assert_string_equal(e.text, cases[i].why);
    }
}

static void test_wrong_kind_sticks_and_leaves_results_alone(void **state)
{
    struct msgpack_reader r = reader_on(STR("\x01\xc0"));
    struct str s = STR("before");
    uint64_t u;
    struct err e;

    (void)state;
    assert_false(msgpack_read_nil(&r)); /* no error */
    assert_false(msgpack_read_str(&r, &s));
    assert_true(str_is(s, "before"));
    assert_false(msgpack_read_u64(&r, &u));
    assert_int_equal(msgpack_peek(&r), MSGPACK_NONE);
    msgpack_fail(&r, "later");
    assert_int_equal(msgpack_end(&r, &e), -EBADMSG);
    assert_string_equal(e.text, "byte 0: expected text or bytes");
}

static void test_depth_is_limited(void **state)
{
    char deep[MSGPACK_DEPTH + 2];
    struct msgpack_reader r;

    (void)state;
    memset(deep, '\x91', sizeof(deep));
    deep[MSGPACK_DEPTH] = '\x00';
    r = reader_on(str_slice(deep, MSGPACK_DEPTH + 1));
    assert_true(msgpack_skip(&r));
    deep[MSGPACK_DEPTH] = '\x91';
    deep[MSGPACK_DEPTH + 1] = '\x00';
    r = reader_on(str_slice(deep, sizeof(deep)));
    assert_false(msgpack_skip(&r));
}

/* --- against msgpack-c ----------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void pack_random(msgpack_packer *pk, uint64_t *seed, int depth)
{
    static const char text[300] = "text";
    uint64_t bits = next_random(seed) >> next_random(seed) % 64;
    size_t n = next_random(seed) % 40 == 0 ? 300 : next_random(seed) % 40;

    switch (next_random(seed) % (depth > 5 ? 7 : 9)) {
    case 0:
        msgpack_pack_nil(pk);
        break;
    case 1:
        msgpack_pack_true(pk);
        break;
    case 2:
        msgpack_pack_uint64(pk, bits);
        break;
    case 3:
        msgpack_pack_int64(pk, -(int64_t)(bits >> 1));
        break;
    case 4:
        msgpack_pack_double(pk, (double)bits / 3);
        break;
    case 5:
        msgpack_pack_str_with_body(pk, text, n);
        break;
    case 6:
        msgpack_pack_bin_with_body(pk, text, n);
        break;
    case 7:
        msgpack_pack_array(pk, n % 20);
        for (size_t i = n % 20; i > 0; i--)
            pack_random(pk, seed, depth + 1);
        break;
    default:
        msgpack_pack_map(pk, n % 5);
        for (size_t i = n % 5 * 2; i > 0; i--)
            pack_random(pk, seed, depth + 1);
        break;
    }
}

static void test_random_values_copy_as_msgpack_c_writes_them(void **state)
{
    uint64_t seed = 42;

    (void)state;
    for (int i = 0; i < 500; i++) {
        msgpack_sbuffer bytes;
        msgpack_packer pk;

        msgpack_sbuffer_init(&bytes);
        msgpack_packer_init(&pk, &bytes, msgpack_sbuffer_write);
        pack_random(&pk, &seed, 0);
        assert_copies(str_slice(bytes.data, bytes.size));
        msgpack_sbuffer_destroy(&bytes);
    }
}

static void test_what_is_accepted_msgpack_c_accepts_too(void **state)
{
    uint64_t seed = 43;
    int accepted = 0, refused = 0;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        uint64_t bytes[4] = {next_random(&seed), next_random(&seed), next_random(&seed), 0};
        struct msgpack_reader r = reader_on(str_slice(bytes, sizeof(bytes)));
        msgpack_unpacked theirs;
        size_t used = 0;

        msgpack_unpacked_init(&theirs);
        if (msgpack_skip(&r)) {
            accepted++;
            assert_int_equal(
                msgpack_unpack_next(&theirs, (const char *)bytes, sizeof(bytes), &used),
                MSGPACK_UNPACK_SUCCESS);
            assert_int_equal(used, r.at - r.begin);
        } else {
            refused++;
        }
        msgpack_unpacked_destroy(&theirs);
    }
    assert_true(accepted > 1000 && refused > 1000);
}

int main(void)
{
    return TEST_RUN(T(test_worked_bytes_of_the_wire), T(test_captured_events_copy_byte_for_byte),
                    T(test_integers_in_every_format),
                    T(test_numbers_are_written_in_their_shortest_form),
                    T(test_lengths_at_the_edges_of_formats), T(test_extensions_are_only_skipped),
                    T(test_malformed_bytes), T(test_wrong_kind_sticks_and_leaves_results_alone),
                    T(test_depth_is_limited), T(test_random_values_copy_as_msgpack_c_writes_them),
                    T(test_what_is_accepted_msgpack_c_accepts_too));
}
