/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/digest.h"
#include "lib/base/test.h"

static void sha256_of_known_texts(void **state)
{
    char hex[DIGEST_HEX_SIZE];

    (void)state;
    digest_sha256_hex(STR("{}"), hex); /* the constant of operator-observed.md §3.2 */
    assert_string_equal(hex, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
    digest_sha256_hex(STR_NULL, hex);
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

/* Inputs of the published BLAKE3 vectors: byte i is i % 251. Outputs are the first 32 bytes. */
static void blake3_with_the_published_key(void **state)
{
    static const struct {
        size_t len;
        const char *hex;
    } cases[] = {
        {0, "92b2b75604ed3c761f9d6f62392c8a9227ad0ea3f09573e783f1498a4ed60d26"},
        {1, "6d7878dfff2f485635d39013278ae14f1454b8c0a3a2d34bc1ab38228a80c95b"},
        {1024, "75c46f6f3d9eb4f55ecaaee480db732e6c2105546f1e675003687c31719c7ba4"},
        {1025, "357dc55de0c7e382c900fd6e320acc04146be01db6a8ce7210b7189bd664ea69"},
        {3073, "68dede9bef00ba89e43f31a6825f4cf433389fedae75c04ee9f0cf16a427c95a"},
    };
    static const char key[] = "whats the Elvish word for friend";
    uint8_t input[3073], sum[32];
    char hex[DIGEST_HEX_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof(input); i++)
        input[i] = (uint8_t)(i % 251);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        digest_blake3_keyed((const uint8_t *)key, str_slice((char *)input, cases[i].len), sum);
        digest_hex(sum, hex);
        assert_string_equal(hex, cases[i].hex);
    }
}

static void blake3_of_published_lengths(void **state)
{
    static const struct {
        size_t len;
        const char *hex;
    } cases[] = {
        {0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
        {1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"},
        {1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11"},
        {1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"},
        {1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"},
        {2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a"},
        {31744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47"},
    };
    static uint8_t input[31744];
    char hex[DIGEST_HEX_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof(input); i++)
        input[i] = (uint8_t)(i % 251);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        digest_blake3_hex(str_slice(input, cases[i].len), hex);
        assert_string_equal(hex, cases[i].hex);
    }
}

/* wire.md §2.6: the pod name with 0xFF behind it, cut to 53 bits. */
static void siphash_gives_instance_ids(void **state)
{
    const uint64_t mask = UINT64_C(0x001FFFFFFFFFFFFF);

    (void)state;
    assert_int_equal(digest_siphash13(STR("worker-0\xff")) & mask, UINT64_C(1186445869714687));
    assert_int_equal(digest_siphash13(STR("my-pod\xff")) & mask, UINT64_C(1946204189446897));
    assert_int_equal(digest_siphash13(STR("dynamo-vllm-decode-7c9d8b6f5-abcde\xff")) & mask,
                     UINT64_C(990986643881157));
}

static void base64_both_ways(void **state)
{
    static const struct {
        struct str plain, coded;
    } cases[] = {{STR(""), STR("")},
                 {STR("f"), STR("Zg==")},
                 {STR("fo"), STR("Zm8=")},
                 {STR("foo"), STR("Zm9v")},
                 {STR("foob"), STR("Zm9vYg==")}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf coded = BUF_NULL, plain = BUF_NULL;

        base64_encode(&coded, cases[i].plain);
        assert_true(str_eq(buf_str(&coded), cases[i].coded));
        assert_true(base64_decode(&plain, cases[i].coded));
        assert_true(str_eq(buf_str(&plain), cases[i].plain));
    }
    AUTO(buf_done) struct buf out = BUF_NULL;
    assert_false(base64_decode(&out, STR("Zg=")));
    assert_false(base64_decode(&out, STR("Z!==")));
}

static void uuids_are_version_4_and_differ(void **state)
{
    char a[UUID_TEXT_SIZE], b[UUID_TEXT_SIZE];

    (void)state;
    random_uuid(a);
    random_uuid(b);
    assert_string_not_equal(a, b);
    assert_true(uuid_is_valid(str_from(a)));
    assert_int_equal(a[14], '4');
    assert_false(uuid_is_valid(STR("11111111-2222-4333-8444-55555555555")));
    assert_false(uuid_is_valid(STR("11111111-2222-4333-8444-55555555555g")));
}

/* git hash-object */
static void git_names_blobs(void **state)
{
    char hex[DIGEST_HEX_SIZE];

    (void)state;
    digest_git_blob_hex(STR("hello\n"), hex);
    assert_string_equal(hex, "ce013625030ba8dba906f756967f9e9ca394464a");
    digest_git_blob_hex(STR_NULL, hex);
    assert_string_equal(hex, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
}

int main(void)
{
    return TEST_RUN(T(git_names_blobs), T(sha256_of_known_texts), T(blake3_of_published_lengths),
                    T(blake3_with_the_published_key), T(siphash_gives_instance_ids),
                    T(base64_both_ways), T(uuids_are_version_4_and_differ));
}
