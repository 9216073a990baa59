/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/digest.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <sys/random.h>

static void put_hex(const uint8_t *bytes, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * n] = '\0';
}

void digest_sha256(struct str data, uint8_t ret_sum[32])
{
    unsigned n = 32;

    if (EVP_Digest(data.len ? data.ptr : "", data.len, ret_sum, &n, EVP_sha256(), NULL) != 1)
        abort(); /* only without memory */
}

void digest_sha256_hex(struct str data, char ret_hex[DIGEST_HEX_SIZE])
{
    uint8_t sum[32];

    digest_sha256(data, sum);
    put_hex(sum, sizeof(sum), ret_hex);
}

void digest_git_blob_hex(struct str data, char ret_hex[DIGEST_HEX_SIZE])
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    char head[32];
    uint8_t sum[20];
    int n = snprintf(head, sizeof(head), "blob %zu", data.len);

    /* with the NUL that ends the head */
    if (!ctx || EVP_DigestInit_ex(ctx, EVP_sha1(), NULL) != 1 ||
        EVP_DigestUpdate(ctx, head, (size_t)n + 1) != 1 ||
        EVP_DigestUpdate(ctx, data.len ? data.ptr : "", data.len) != 1 ||
        EVP_DigestFinal_ex(ctx, sum, NULL) != 1)
        abort(); /* only without memory */
    EVP_MD_CTX_free(ctx);
    put_hex(sum, sizeof(sum), ret_hex);
}

void digest_hex(const uint8_t sum[32], char ret_hex[DIGEST_HEX_SIZE])
{
    put_hex(sum, 32, ret_hex);
}

static uint64_t rotl64(uint64_t x, unsigned n)
{
    return x << n | x >> (64 - n);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotl64(v[1], 13) ^ v[0];
    v[0] = rotl64(v[0], 32);
    v[2] += v[3];
    v[3] = rotl64(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotl64(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotl64(v[1], 17) ^ v[2];
    v[2] = rotl64(v[2], 32);
}

uint64_t digest_siphash13(struct str data)
{
    uint64_t v[4] = {UINT64_C(0x736f6d6570736575), UINT64_C(0x646f72616e646f6d),
                     UINT64_C(0x6c7967656e657261), UINT64_C(0x7465646279746573)};
    uint64_t word = 0;

    for (size_t i = 0; i < data.len; i++) {
        word |= (uint64_t)(uint8_t)data.ptr[i] << (8 * (i % 8));
        if (i % 8 == 7) {
            v[3] ^= word;
            sip_round(v);
            v[0] ^= word;
            word = 0;
        }
    }
    word |= (uint64_t)data.len << 56;
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void base64_encode(struct buf *out, struct str data)
{
    size_t size = 4 * ((data.len + 2) / 3);

    (void)EVP_EncodeBlock((unsigned char *)buf_reserve(out, size + 1),
                          (const unsigned char *)(data.len ? data.ptr : ""), (int)data.len);
    buf_commit(out, size);
}

bool base64_decode(struct buf *out, struct str text)
{
    size_t padding = 0;
    int n;

    text = str_trim(text);
    if (text.len % 4 != 0 || text.len > (1u << 30))
        return false;
    if (text.len == 0)
        return true;
    while (padding < 2 && text.ptr[text.len - 1 - padding] == '=')
        padding++;
    n = EVP_DecodeBlock((unsigned char *)buf_reserve(out, text.len),
                        (const unsigned char *)text.ptr, (int)text.len);
    if (n < (int)padding)
        return false;
    buf_commit(out, (size_t)n - padding);
    return true;
}

static void random_bytes(void *out, size_t n)
{
    uint8_t *at = out;

    while (n) {
        ssize_t got = getrandom(at, n, 0);

        if (got < 0)
            abort();
        at += got;
        n -= (size_t)got;
    }
}

uint64_t random_u64(void)
{
    uint64_t v;

    random_bytes(&v, sizeof(v));
    return v;
}

void random_uuid(char ret_text[UUID_TEXT_SIZE])
{
    uint8_t b[16];
    char hex[33];

    random_bytes(b, sizeof(b));
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
    put_hex(b, sizeof(b), hex);
    (void)snprintf(ret_text, UUID_TEXT_SIZE, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12,
                   hex + 16, hex + 20);
}

bool uuid_is_valid(struct str s)
{
    static const char digits[] = "0123456789abcdefABCDEF";

    if (s.len != UUID_TEXT_SIZE - 1)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;

        if (dash ? s.ptr[i] != '-' : !memchr(digits, s.ptr[i], sizeof(digits) - 1))
            return false;
    }
    return true;
}
