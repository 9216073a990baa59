/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Digests of the contracts: sha256 (last-applied-hash, model hashes; OpenSSL), git's names of files
 * (model hubs), BLAKE3 (file checksums of model cards; own, as Debian 12 has no library; source:
 * the BLAKE3 paper, §2), SipHash-1-3 (instance ids of pods; wire.md §2.6), base64, random bytes and
 * UUIDs.
 * Thread safe.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/str.h"

enum { DIGEST_HEX_SIZE = 65, UUID_TEXT_SIZE = 37 };

void digest_sha256(struct str data, uint8_t ret_sum[32]);
void digest_sha256_hex(struct str data, char ret_hex[DIGEST_HEX_SIZE]);
/* What git calls a blob of these bytes: SHA-1 (40 digits) of "blob <length>", a NUL, and them. */
void digest_git_blob_hex(struct str data, char ret_hex[DIGEST_HEX_SIZE]);
void digest_blake3_hex(struct str data, char ret_hex[DIGEST_HEX_SIZE]);
/* Keyed: nobody without the key can tell what @data was, or make the same. */
void digest_blake3_keyed(const uint8_t key[32], struct str data, uint8_t ret_sum[32]);
/* Lower-case hex of 32 bytes. */
void digest_hex(const uint8_t sum[32], char ret_hex[DIGEST_HEX_SIZE]);
/* SipHash-1-3 with both keys zero over @data. */
uint64_t digest_siphash13(struct str data);
void base64_encode(struct buf *out, struct str data);
MUST_CHECK bool base64_decode(struct buf *out, struct str text);
/* From the kernel; aborts if it has none. Not for pure folders. */
uint64_t random_u64(void);
/* Version 4, lower case, NUL-terminated. */
void random_uuid(char ret_text[UUID_TEXT_SIZE]);
bool uuid_is_valid(struct str s);
