/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes made with msgspec from structs as vLLM defines them. */
#include "router/wire/engine_batch.h"

#include <errno.h>

#include "lib/base/msgpack.h"
#include "lib/base/test.h"

static const uint8_t ARRAYS[] = {
    0x93, 0xcb, 0x3f, 0xf8, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x93, 0x9c, 0xab, 0x42, 0x6c, 0x6f,
    0x63, 0x6b, 0x53, 0x74, 0x6f, 0x72, 0x65, 0x64, 0x92, 0xff, 0xcf, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xfe, 0x07, 0x98, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x04, 0xc0, 0xa3,
    0x47, 0x50, 0x55, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0x94, 0xac, 0x42, 0x6c, 0x6f, 0x63, 0x6b, 0x52,
    0x65, 0x6d, 0x6f, 0x76, 0x65, 0x64, 0x91, 0x09, 0xa3, 0x43, 0x50, 0x55, 0xc0, 0x91, 0xb0, 0x41,
    0x6c, 0x6c, 0x42, 0x6c, 0x6f, 0x63, 0x6b, 0x73, 0x43, 0x6c, 0x65, 0x61, 0x72, 0x65, 0x64, 0x03};
static const uint8_t GROUPS[] = {
    0x93, 0xcb, 0x3f, 0xf8, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x94, 0x9c, 0xab, 0x42, 0x6c,
    0x6f, 0x63, 0x6b, 0x53, 0x74, 0x6f, 0x72, 0x65, 0x64, 0x91, 0x01, 0xc0, 0x94, 0x01, 0x02,
    0x03, 0x04, 0x04, 0xc0, 0xc0, 0xc0, 0xc0, 0x00, 0xae, 0x66, 0x75, 0x6c, 0x6c, 0x5f, 0x61,
    0x74, 0x74, 0x65, 0x6e, 0x74, 0x69, 0x6f, 0x6e, 0xc0, 0x9c, 0xab, 0x42, 0x6c, 0x6f, 0x63,
    0x6b, 0x53, 0x74, 0x6f, 0x72, 0x65, 0x64, 0x91, 0x02, 0xc0, 0x94, 0x01, 0x02, 0x03, 0x04,
    0x04, 0xc0, 0xc0, 0xc0, 0xc0, 0x01, 0xae, 0x73, 0x6c, 0x69, 0x64, 0x69, 0x6e, 0x67, 0x5f,
    0x77, 0x69, 0x6e, 0x64, 0x6f, 0x77, 0xcc, 0x80, 0x94, 0xac, 0x42, 0x6c, 0x6f, 0x63, 0x6b,
    0x52, 0x65, 0x6d, 0x6f, 0x76, 0x65, 0x64, 0x91, 0x02, 0xc0, 0x01, 0x94, 0xac, 0x42, 0x6c,
    0x6f, 0x63, 0x6b, 0x52, 0x65, 0x6d, 0x6f, 0x76, 0x65, 0x64, 0x91, 0x01, 0xc0, 0x00, 0xc0};
static const uint8_t RAW_HASHES[] = {
    0x93, 0xcb, 0x3f, 0xf8, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x92, 0x9c, 0xab, 0x42, 0x6c, 0x6f,
    0x63, 0x6b, 0x53, 0x74, 0x6f, 0x72, 0x65, 0x64, 0x91, 0xc4, 0x10, 0x30, 0x31, 0x32, 0x33, 0x34,
    0x35, 0x36, 0x37, 0x38, 0x39, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0xc0, 0x94, 0x01, 0x02, 0x03,
    0x04, 0x04, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0x94, 0xac, 0x42, 0x6c, 0x6f, 0x63, 0x6b,
    0x52, 0x65, 0x6d, 0x6f, 0x76, 0x65, 0x64, 0x91, 0xc4, 0x01, 0x78, 0xc0, 0xc0, 0xc0};
static const uint8_t MAPS[] = {
    0x84, 0xa2, 0x74, 0x73, 0xcb, 0x40, 0x04, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xa6, 0x65, 0x76,
    0x65, 0x6e, 0x74, 0x73, 0x94, 0x88, 0xa4, 0x74, 0x79, 0x70, 0x65, 0xab, 0x42, 0x6c, 0x6f, 0x63,
    0x6b, 0x53, 0x74, 0x6f, 0x72, 0x65, 0x64, 0xac, 0x62, 0x6c, 0x6f, 0x63, 0x6b, 0x5f, 0x68, 0x61,
    0x73, 0x68, 0x65, 0x73, 0x91, 0x05, 0xb1, 0x70, 0x61, 0x72, 0x65, 0x6e, 0x74, 0x5f, 0x62, 0x6c,
    0x6f, 0x63, 0x6b, 0x5f, 0x68, 0x61, 0x73, 0x68, 0xc0, 0xa9, 0x74, 0x6f, 0x6b, 0x65, 0x6e, 0x5f,
    0x69, 0x64, 0x73, 0x94, 0x01, 0x02, 0x03, 0x04, 0xaa, 0x62, 0x6c, 0x6f, 0x63, 0x6b, 0x5f, 0x73,
    0x69, 0x7a, 0x65, 0x04, 0xa9, 0x6c, 0x6f, 0x72, 0x61, 0x5f, 0x6e, 0x61, 0x6d, 0x65, 0xa7, 0x61,
    0x64, 0x61, 0x70, 0x74, 0x65, 0x72, 0xa6, 0x6d, 0x65, 0x64, 0x69, 0x75, 0x6d, 0xa4, 0x4e, 0x56,
    0x4d, 0x45, 0xa7, 0x6e, 0x65, 0x77, 0x5f, 0x6b, 0x65, 0x79, 0x92, 0x01, 0x81, 0xa1, 0x61, 0x02,
    0x82, 0xac, 0x62, 0x6c, 0x6f, 0x63, 0x6b, 0x5f, 0x68, 0x61, 0x73, 0x68, 0x65, 0x73, 0x91, 0x05,
    0xa4, 0x74, 0x79, 0x70, 0x65, 0xac, 0x42, 0x6c, 0x6f, 0x63, 0x6b, 0x52, 0x65, 0x6d, 0x6f, 0x76,
    0x65, 0x64, 0x82, 0xa4, 0x74, 0x79, 0x70, 0x65, 0xaa, 0x42, 0x6c, 0x6f, 0x63, 0x6b, 0x4d, 0x6f,
    0x76, 0x65, 0x64, 0xa1, 0x78, 0x01, 0x81, 0xa4, 0x74, 0x79, 0x70, 0x65, 0xb0, 0x41, 0x6c, 0x6c,
    0x42, 0x6c, 0x6f, 0x63, 0x6b, 0x73, 0x43, 0x6c, 0x65, 0x61, 0x72, 0x65, 0x64, 0xb2, 0x64, 0x61,
    0x74, 0x61, 0x5f, 0x70, 0x61, 0x72, 0x61, 0x6c, 0x6c, 0x65, 0x6c, 0x5f, 0x72, 0x61, 0x6e, 0x6b,
    0x02, 0xa4, 0x6d, 0x6f, 0x72, 0x65, 0xc0};
static const uint8_t SHORT[] = {0x92, 0xcb, 0x3f, 0xf8, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                0x92, 0x95, 0xab, 0x42, 0x6c, 0x6f, 0x63, 0x6b, 0x53, 0x74,
                                0x6f, 0x72, 0x65, 0x64, 0x91, 0x0b, 0xc0, 0x94, 0x01, 0x02,
                                0x03, 0x04, 0x04, 0x92, 0xac, 0x42, 0x6c, 0x6f, 0x63, 0x6b,
                                0x52, 0x65, 0x6d, 0x6f, 0x76, 0x65, 0x64, 0x91, 0x0b};

/* vLLM 0.32.0 itself, of a request with a cache_salt and a session_id: the example's tokenizer, random
 * weights. */
static const uint8_t VLLM_0_32[] = {
    0x93, 0xcb, 0x41, 0xda, 0xc1, 0x0f, 0x78, 0xb0, 0xc2, 0x59, 0x91, 0x8c, 0xa4, 0x74, 0x79, 0x70,
    0x65, 0xab, 0x42, 0x6c, 0x6f, 0x63, 0x6b, 0x53, 0x74, 0x6f, 0x72, 0x65, 0x64, 0xac, 0x62, 0x6c,
    0x6f, 0x63, 0x6b, 0x5f, 0x68, 0x61, 0x73, 0x68, 0x65, 0x73, 0x91, 0xcf, 0x40, 0xc0, 0xa2, 0xc9,
    0x94, 0x87, 0xb9, 0x6a, 0xb1, 0x70, 0x61, 0x72, 0x65, 0x6e, 0x74, 0x5f, 0x62, 0x6c, 0x6f, 0x63,
    0x6b, 0x5f, 0x68, 0x61, 0x73, 0x68, 0xc0, 0xa9, 0x74, 0x6f, 0x6b, 0x65, 0x6e, 0x5f, 0x69, 0x64,
    0x73, 0xdc, 0x00, 0x20, 0xcd, 0x0d, 0x2b, 0x0f, 0xcd, 0x05, 0x8f, 0x10, 0xcd, 0x05, 0x8f, 0x11,
    0xcd, 0x05, 0x8f, 0x12, 0xcd, 0x05, 0x8f, 0x13, 0xcd, 0x05, 0x8f, 0x14, 0xcd, 0x05, 0x8f, 0x15,
    0xcd, 0x05, 0x8f, 0x16, 0xcd, 0x05, 0x8f, 0x17, 0xcd, 0x05, 0x8f, 0x18, 0xcd, 0x05, 0x8f, 0xcd,
    0x07, 0x4b, 0xcd, 0x05, 0x8f, 0xcd, 0x0c, 0x17, 0xcd, 0x05, 0x8f, 0xcd, 0x07, 0x65, 0xcd, 0x05,
    0x8f, 0xcd, 0x09, 0x6e, 0xcd, 0x05, 0x8f, 0xcd, 0x09, 0xa3, 0xcd, 0x05, 0x8f, 0xcd, 0x08, 0xb0,
    0xaa, 0x62, 0x6c, 0x6f, 0x63, 0x6b, 0x5f, 0x73, 0x69, 0x7a, 0x65, 0x20, 0xa7, 0x6c, 0x6f, 0x72,
    0x61, 0x5f, 0x69, 0x64, 0xc0, 0xa6, 0x6d, 0x65, 0x64, 0x69, 0x75, 0x6d, 0xa3, 0x47, 0x50, 0x55,
    0xa9, 0x6c, 0x6f, 0x72, 0x61, 0x5f, 0x6e, 0x61, 0x6d, 0x65, 0xc0, 0xaa, 0x65, 0x78, 0x74, 0x72,
    0x61, 0x5f, 0x6b, 0x65, 0x79, 0x73, 0x91, 0x91, 0xa5, 0x73, 0x61, 0x6c, 0x74, 0x79, 0xa9, 0x67,
    0x72, 0x6f, 0x75, 0x70, 0x5f, 0x69, 0x64, 0x78, 0x00, 0xb2, 0x6b, 0x76, 0x5f, 0x63, 0x61, 0x63,
    0x68, 0x65, 0x5f, 0x73, 0x70, 0x65, 0x63, 0x5f, 0x6b, 0x69, 0x6e, 0x64, 0xae, 0x66, 0x75, 0x6c,
    0x6c, 0x5f, 0x61, 0x74, 0x74, 0x65, 0x6e, 0x74, 0x69, 0x6f, 0x6e, 0xaa, 0x73, 0x65, 0x73, 0x73,
    0x69, 0x6f, 0x6e, 0x5f, 0x69, 0x64, 0xa2, 0x73, 0x31, 0x00};

struct seen {
    size_t n;
    struct engine_event at[4];
    uint64_t hashes[4], tokens[4];
    struct opt_u64 rank;
};

static void on_event(void *arg, const struct engine_batch *b, const struct engine_event *ev)
{
    struct seen *s = arg;

    assert_true(s->n < ARRAY_LEN(s->at));
    s->at[s->n] = *ev;
    s->hashes[s->n] = ev->n_hashes ? ev->hashes[ev->n_hashes - 1] : 0;
    s->tokens[s->n] = ev->n_tokens ? ev->tokens[ev->n_tokens - 1] : 0;
    s->rank = b->dp_rank;
    s->n++;
}

static struct engine_batch decode(struct engine_reader *r, const uint8_t *bytes, size_t size,
                                  struct seen *seen)
{
    struct engine_batch b;
    struct err e;

    EXPECT_OK(engine_batch_decode(r, str_slice(bytes, size), on_event, seen, &b, &e), &e);
    return b;
}

static void arrays_of_vllm_are_read(void **state)
{
    AUTO(engine_reader_done) struct engine_reader r = {0};
    struct seen s = {0};

    (void)state;
    decode(&r, ARRAYS, sizeof(ARRAYS), &s);
    assert_int_equal(s.n, 3);
    assert_true(s.rank.set && s.rank.v == 3);
    assert_int_equal(s.at[0].kind, KV_STORED);
    assert_int_equal(s.at[0].n_hashes, 2);
    assert_true(s.hashes[0] == UINT64_MAX - 1);
    assert_true(s.at[0].parent_hash.set && s.at[0].parent_hash.v == 7);
    assert_int_equal(s.at[0].n_tokens, 8);
    assert_int_equal(s.tokens[0], 8);
    assert_int_equal(s.at[0].block_size, 4);
    assert_int_equal(s.at[0].tier, KV_TIER_DEVICE);
    assert_int_equal(s.at[1].kind, KV_REMOVED);
    assert_int_equal(s.at[1].tier, KV_TIER_HOST);
    assert_int_equal(s.hashes[1], 9);
    assert_int_equal(s.at[2].kind, KV_CLEARED);
}

static void what_is_missing_behind_has_its_default(void **state)
{
    AUTO(engine_reader_done) struct engine_reader r = {0};
    struct seen s = {0};

    (void)state;
    decode(&r, SHORT, sizeof(SHORT), &s);
    assert_int_equal(s.n, 2);
    assert_false(s.rank.set);
    assert_int_equal(s.at[0].tier, KV_TIER_DEVICE);
    assert_true(s.at[0].main_attention && s.at[1].main_attention);
    assert_int_equal(s.hashes[1], 11);
}

static void maps_are_read_and_what_is_new_is_skipped(void **state)
{
    AUTO(engine_reader_done) struct engine_reader r = {0};
    struct seen s = {0};

    (void)state;
    assert_int_equal(decode(&r, MAPS, sizeof(MAPS), &s).n_unknown, 1);
    assert_int_equal(s.n, 3);
    assert_true(s.rank.set && s.rank.v == 2);
    assert_true(str_is(s.at[0].lora_name, "adapter"));
    assert_int_equal(s.at[0].tier, KV_TIER_DISK);
    assert_int_equal(s.at[1].kind, KV_REMOVED);
    assert_int_equal(s.hashes[1], 5);
    assert_int_equal(s.at[2].kind, KV_CLEARED);
}

static void frames_of_the_real_vllm_are_read(void **state)
{
    AUTO(engine_reader_done) struct engine_reader r = {0};
    struct seen s = {0};

    (void)state;
    assert_int_equal(decode(&r, VLLM_0_32, sizeof(VLLM_0_32), &s).n_unknown, 0);
    assert_int_equal(s.n, 1);
    assert_true(s.rank.set && s.rank.v == 0);
    assert_int_equal(s.at[0].kind, KV_STORED);
    assert_int_equal(s.at[0].tier, KV_TIER_DEVICE);
    assert_true(s.at[0].main_attention);
    assert_false(s.at[0].parent_hash.set);
    assert_int_equal(s.at[0].n_hashes, 1);
    assert_true(s.hashes[0] == UINT64_C(4665908200619882858));
    assert_int_equal(s.at[0].n_tokens, 32);
    assert_int_equal(s.tokens[0], 2224);
    assert_int_equal(s.at[0].block_size, 32);
    assert_int_equal(s.at[0].lora_name.len, 0);
    assert_true(str_is(s.at[0].first_salt, "salty") && !s.at[0].salt.len);
}

static void groups_that_forget_tokens_are_told(void **state)
{
    static const bool main[] = {true, false, false, true};
    AUTO(engine_reader_done) struct engine_reader r = {0};
    struct seen s = {0};

    (void)state;
    decode(&r, GROUPS, sizeof(GROUPS), &s);
    assert_int_equal(s.n, 4);
    for (size_t i = 0; i < s.n; i++)
        assert_int_equal(s.at[i].main_attention, main[i]);
}

static void raw_hashes_are_told_and_not_given(void **state)
{
    AUTO(engine_reader_done) struct engine_reader r = {0};
    struct seen s = {0};

    (void)state;
    decode(&r, RAW_HASHES, sizeof(RAW_HASHES), &s);
    assert_int_equal(s.n, 2);
    assert_true(s.at[0].raw_hashes && s.at[1].raw_hashes);
    assert_int_equal(s.at[0].n_hashes + s.at[1].n_hashes, 0);
}

static void what_was_written_is_read(void **state)
{
    static const uint64_t hashes[] = {1, UINT64_MAX};
    static const uint32_t tokens[] = {1, 2, 3, UINT32_MAX};
    const struct engine_event stored = {.kind = KV_STORED,
                                        .tier = KV_TIER_HOST,
                                        .parent_hash = OPT_U64(5),
                                        .hashes = hashes,
                                        .n_hashes = 2,
                                        .tokens = tokens,
                                        .n_tokens = 4,
                                        .block_size = 2,
                                        .first_salt = STR("salty")};
    AUTO(engine_reader_done) struct engine_reader r = {0};
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct seen s = {0};

    (void)state;
    engine_batch_begin_put(&out, 1.5, 1);
    engine_event_put(&out, &stored);
    engine_batch_end_put(&out, 1);
    decode(&r, (const uint8_t *)buf_data(&out), out.len, &s);
    assert_int_equal(s.n, 1);
    assert_true(s.hashes[0] == UINT64_MAX && s.tokens[0] == UINT32_MAX);
    assert_true(s.at[0].main_attention && str_is(s.at[0].first_salt, "salty") && !s.at[0].salt.len);
    assert_int_equal(s.at[0].tier, KV_TIER_HOST);
}

#define HEX48 "abcdefabcdefabcdefABCDEFabcdefabcdefabcdefabcdef"

static void stored_begin_put(struct buf *out, const char *member)
{
    engine_batch_begin_put(out, 1.5, 1);
    msgpack_put_map(out, 3);
    msgpack_put_cstr(out, "type");
    msgpack_put_cstr(out, "BlockStored");
    msgpack_put_cstr(out, "parent_block_hash");
    msgpack_put_nil(out);
    msgpack_put_cstr(out, member);
}

static void pair_put(struct buf *out, const char *name, uint64_t place)
{
    msgpack_put_array(out, 2);
    msgpack_put_cstr(out, name);
    msgpack_put_u64(out, place);
}

static struct engine_event decode_one(struct engine_reader *r, struct buf *out)
{
    struct seen s = {0};

    engine_batch_end_put(out, 1);
    decode(r, (const uint8_t *)buf_data(out), out->len, &s);
    assert_int_equal(s.n, 1);
    return s.at[0];
}

static void images_are_told_by_keys_of_blocks(void **state)
{
    AUTO(engine_reader_done) struct engine_reader r = {0};
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct engine_event ev;

    (void)state;
    stored_begin_put(&out, "extra_keys");
    msgpack_put_array(&out, 4);
    msgpack_put_array(&out, 2);
    pair_put(&out, "00000000000000ff" HEX48, 3);
    msgpack_put_cstr(&out, "salty");
    msgpack_put_nil(&out);
    msgpack_put_array(&out, 3);
    pair_put(&out, "FEDCBA9876543210" HEX48, 3);
    pair_put(&out, "000000000000000z" HEX48, 3);
    msgpack_put_cstr(&out, "0000000000000007" HEX48);
    msgpack_put_array(&out, 2);
    pair_put(&out, "my-image", 1);
    msgpack_put_cstr(&out, "0000000000000007");
    ev = decode_one(&r, &out);
    assert_true(ev.media_of_keys && str_is(ev.first_salt, "salty"));
    assert_int_equal(ev.n_media, 3);
    assert_true(ev.media[0].block == 0 && ev.media[0].mm_hash == 255);
    assert_true(ev.media[1].block == 2 && ev.media[1].mm_hash == UINT64_C(0xFEDCBA9876543210));
    assert_true(ev.media[2].block == 2 && ev.media[2].mm_hash == 7);
}

#define ZEROS48 "000000000000000000000000000000000000000000000000"

/* As texts, too, of a prompt's first block, where a text is no salt. */
static void images_of_ai_dynamo_have_padded_names(void **state)
{
    AUTO(engine_reader_done) struct engine_reader r = {.media.padded_only = true};
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct engine_event ev;

    (void)state;
    stored_begin_put(&out, "extra_keys");
    msgpack_put_array(&out, 3);
    msgpack_put_array(&out, 2);
    msgpack_put_cstr(&out, "00000000000000ff" ZEROS48);
    msgpack_put_cstr(&out, "0000000000000008" HEX48);
    msgpack_put_nil(&out);
    msgpack_put_array(&out, 3);
    pair_put(&out, "FEDCBA9876543210" ZEROS48, 3);
    pair_put(&out, "0000000000000007" HEX48, 3);
    pair_put(&out, "0000000000000009" ZEROS48 "0", 3);
    ev = decode_one(&r, &out);
    assert_int_equal(ev.n_media, 2);
    assert_true(ev.media[0].block == 0 && ev.media[0].mm_hash == 255);
    assert_true(ev.media[1].block == 2 && ev.media[1].mm_hash == UINT64_C(0xFEDCBA9876543210));
}

/* block_mm_infos without any go before keys, too. */
static void an_engine_may_say_that_there_are_no_media(void **state)
{
    (void)state;
    for (int keys_first = 0; keys_first < 2; keys_first++) {
        AUTO(engine_reader_done) struct engine_reader r = {0};
        AUTO(buf_done) struct buf out = BUF_NULL;
        struct engine_event ev;

        engine_batch_begin_put(&out, 1.5, 1);
        msgpack_put_map(&out, 3);
        msgpack_put_cstr(&out, "type");
        msgpack_put_cstr(&out, "BlockStored");
        for (int i = 0; i < 2; i++) {
            msgpack_put_cstr(&out, i == keys_first ? "block_mm_infos" : "extra_keys");
            msgpack_put_array(&out, 1);
            if (i == keys_first) {
                msgpack_put_nil(&out);
                continue;
            }
            msgpack_put_array(&out, 1);
            pair_put(&out, "00000000000000ff" HEX48, 3);
        }
        ev = decode_one(&r, &out);
        assert_true(ev.n_media == 0 && !ev.media_of_keys);
    }
}

static void what_the_engine_says_of_media_goes_before_keys(void **state)
{
    static const struct engine_medium media[] = {{1, 5}, {1, UINT64_MAX}};
    AUTO(engine_reader_done) struct engine_reader r = {0};
    struct engine_event ev;

    (void)state;
    for (int keys_first = 0; keys_first < 2; keys_first++) {
        AUTO(buf_done) struct buf out = BUF_NULL;

        engine_batch_begin_put(&out, 1.5, 1);
        msgpack_put_map(&out, 3);
        msgpack_put_cstr(&out, "type");
        msgpack_put_cstr(&out, "BlockStored");
        for (int i = 0; i < 2; i++)
            if (i == keys_first) {
                msgpack_put_cstr(&out, "block_mm_infos");
                engine_media_put(&out, media, 2);
            } else {
                msgpack_put_cstr(&out, "extra_keys");
                msgpack_put_array(&out, 1);
                msgpack_put_array(&out, 1);
                pair_put(&out, "00000000000000ff" HEX48, 3);
            }
        ev = decode_one(&r, &out);
        assert_false(ev.media_of_keys);
        assert_int_equal(ev.n_media, 2);
        assert_memory_equal(ev.media, media, sizeof(media));
    }
}

static void of_media_that_are_said_twice_the_last_count(void **state)
{
    static const struct engine_medium media[] = {{1, 5}, {2, 6}};
    AUTO(engine_reader_done) struct engine_reader r = {0};
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct engine_event ev;

    (void)state;
    engine_batch_begin_put(&out, 1.5, 1);
    msgpack_put_map(&out, 3);
    msgpack_put_cstr(&out, "type");
    msgpack_put_cstr(&out, "BlockStored");
    for (size_t i = 2; i > 0; i--) {
        msgpack_put_cstr(&out, "block_mm_infos");
        engine_media_put(&out, media, i);
    }
    ev = decode_one(&r, &out);
    assert_int_equal(ev.n_media, 1);
    assert_memory_equal(ev.media, media, sizeof(media[0]));
}

/* Where 0.9.0 and 1.6.1 have block_mm_infos in their arrays. */
static void media_are_read_from_arrays(void **state)
{
    static const struct engine_medium media[] = {{1, 5}};
    AUTO(engine_reader_done) struct engine_reader r = {0};

    (void)state;
    for (uint32_t at = 8; at <= 9; at++) {
        AUTO(buf_done) struct buf out = BUF_NULL;
        struct engine_event ev;

        engine_batch_begin_put(&out, 1.5, 1);
        msgpack_put_array(&out, at + 1);
        msgpack_put_cstr(&out, "BlockStored");
        msgpack_put_array(&out, 0);
        msgpack_put_nil(&out);
        msgpack_put_array(&out, 0);
        msgpack_put_u64(&out, 4);
        for (uint32_t i = 5; i < at; i++)
            msgpack_put_nil(&out);
        engine_media_put(&out, media, 1);
        ev = decode_one(&r, &out);
        assert_int_equal(ev.n_media, 1);
        assert_memory_equal(ev.media, media, sizeof(media));
        assert_true(ev.main_attention && !ev.media_of_keys);
    }
}

/* With block_mm_infos before it, what is said of the group stands one further behind. */
static void groups_are_read_from_arrays_of_ai_dynamo(void **state)
{
    static const char *const kinds[] = {"full_attention", "sliding_window"};

    (void)state;
    for (uint32_t shift = 0; shift < 2; shift++)
        for (size_t kind = 0; kind < ARRAY_LEN(kinds); kind++) {
            AUTO(engine_reader_done) struct engine_reader r = {0};
            AUTO(buf_done) struct buf out = BUF_NULL;

            engine_batch_begin_put(&out, 1.5, 1);
            msgpack_put_array(&out, 12 + shift);
            msgpack_put_cstr(&out, "BlockStored");
            msgpack_put_array(&out, 0);
            msgpack_put_nil(&out);
            msgpack_put_array(&out, 0);
            msgpack_put_u64(&out, 4);
            for (uint32_t i = 5; i < 9 + shift; i++)
                msgpack_put_nil(&out);
            msgpack_put_u64(&out, 3);
            msgpack_put_cstr(&out, kinds[kind]);
            msgpack_put_u64(&out, 128);
            assert_int_equal(decode_one(&r, &out).main_attention, kind == 0);
            assert_int_equal(r.main_groups, kind == 0 ? 1 << 3 : 0);
        }
}

static void every_cut_is_refused(void **state)
{
    static const struct str all[] = {{(const char *)ARRAYS, sizeof(ARRAYS)},
                                     {(const char *)MAPS, sizeof(MAPS)},
                                     {(const char *)GROUPS, sizeof(GROUPS)}};
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        for (size_t n = 0; n < all[i].len; n++) {
            AUTO(engine_reader_done) struct engine_reader r = {0};
            struct seen s = {0};

            assert_int_equal(engine_batch_decode(&r, str_head(all[i], n), on_event, &s, NULL, &e),
                             -EBADMSG);
            assert_int_equal(s.n, 0);
        }
    }
}

int main(void)
{
    return TEST_RUN(T(arrays_of_vllm_are_read), T(what_is_missing_behind_has_its_default),
                    T(maps_are_read_and_what_is_new_is_skipped),
                    T(frames_of_the_real_vllm_are_read), T(groups_that_forget_tokens_are_told),
                    T(raw_hashes_are_told_and_not_given), T(what_was_written_is_read),
                    T(images_are_told_by_keys_of_blocks), T(images_of_ai_dynamo_have_padded_names),
                    T(an_engine_may_say_that_there_are_no_media),
                    T(groups_are_read_from_arrays_of_ai_dynamo),
                    T(what_the_engine_says_of_media_goes_before_keys),
                    T(of_media_that_are_said_twice_the_last_count), T(media_are_read_from_arrays),
                    T(every_cut_is_refused));
}
