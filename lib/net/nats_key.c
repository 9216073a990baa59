/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/nats_key.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>

#include "lib/base/str.h"

/*
 * Both halves are base32 without padding: a role, 32 bytes, and a CRC-16 (XMODEM), low byte first. The
 * seed's role takes two bytes: that it is a seed, and whose.
 */
enum {
    RAW_LEN = 32,
    CRC_LEN = 2,
    SEED_ROLE_LEN = 2,
    SEED_BYTES = SEED_ROLE_LEN + RAW_LEN + CRC_LEN,
    PUBLIC_BYTES = 1 + RAW_LEN + CRC_LEN,
    ROLE_SEED = 18 << 3, /* 'S' */
    ROLE_USER = 20 << 3, /* 'U' */
};
static const char LETTERS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

static uint16_t crc16(const uint8_t *bytes, size_t n)
{
    uint16_t crc = 0;

    for (size_t i = 0; i < n; i++) {
        crc = (uint16_t)(crc ^ bytes[i] << 8);
        for (int bit = 0; bit < 8; bit++)
            crc = (uint16_t)(crc << 1 ^ (crc & 0x8000 ? 0x1021 : 0));
    }
    return crc;
}

/* @text has as many letters as @n bytes take. */
static bool base32_decode(const char *text, uint8_t *ret, size_t n)
{
    uint32_t held = 0;
    unsigned bits = 0;
    size_t at = 0;

    for (; *text; text++) {
        const char *letter = strchr(LETTERS, *text);

        if (!letter)
            return false;
        held = held << 5 | (uint32_t)(letter - LETTERS);
        bits += 5;
        if (bits < 8)
            continue;
        bits -= 8;
        if (at < n)
            ret[at++] = (uint8_t)(held >> bits);
    }
    return at == n;
}

static void base32_encode(const uint8_t *bytes, size_t n, char *ret)
{
    uint32_t held = 0;
    unsigned bits = 0;

    for (size_t i = 0; i < n; i++) {
        held = held << 8 | bytes[i];
        for (bits += 8; bits >= 5; bits -= 5)
            *ret++ = LETTERS[held >> (bits - 5) & 31];
    }
    if (bits)
        *ret++ = LETTERS[held << (5 - bits) & 31];
    *ret = '\0';
}

static bool decode_seed(const char *seed, uint8_t ret_raw[RAW_LEN])
{
    uint8_t bytes[SEED_BYTES] = {0};
    bool good = base32_decode(seed, bytes, SEED_BYTES);
    uint16_t crc = crc16(bytes, SEED_BYTES - CRC_LEN);

    good = good && bytes[0] == (ROLE_SEED | ROLE_USER >> 5) && bytes[1] == (ROLE_USER & 31) << 3 &&
           bytes[SEED_BYTES - 2] == (crc & 0xff) && bytes[SEED_BYTES - 1] == crc >> 8;
    memcpy(ret_raw, bytes + SEED_ROLE_LEN, RAW_LEN);
    OPENSSL_cleanse(bytes, sizeof(bytes));
    return good;
}

static bool derive_public(const uint8_t raw[RAW_LEN], char ret[NATS_KEY_PUBLIC_LEN + 1])
{
    EVP_PKEY *key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, raw, RAW_LEN);
    uint8_t bytes[PUBLIC_BYTES] = {ROLE_USER};
    size_t n = RAW_LEN;
    bool good = key && EVP_PKEY_get_raw_public_key(key, bytes + 1, &n) == 1 && n == RAW_LEN;
    uint16_t crc = crc16(bytes, PUBLIC_BYTES - CRC_LEN);

    EVP_PKEY_free(key);
    bytes[PUBLIC_BYTES - 2] = (uint8_t)(crc & 0xff);
    bytes[PUBLIC_BYTES - 1] = (uint8_t)(crc >> 8);
    base32_encode(bytes, PUBLIC_BYTES, ret);
    return good;
}

int nats_key_parse(struct nats_key *ret, const char *seed, struct err *e)
{
    struct str text = str_trim(str_from(seed));
    uint8_t raw[RAW_LEN];
    bool good = text.len == NATS_KEY_SEED_LEN;

    *ret = (struct nats_key){.seed = ""};
    if (good)
        memcpy(ret->seed, text.ptr, text.len);
    good = good && decode_seed(ret->seed, raw) && derive_public(raw, ret->public_half);
    OPENSSL_cleanse(raw, sizeof(raw));
    if (good)
        return 0;
    nats_key_wipe(ret);
    return err_set(e, -EINVAL, "the NKey is no seed of a user, which begins with SU");
}

void nats_key_wipe(struct nats_key *k)
{
    OPENSSL_cleanse(k, sizeof(*k));
}
