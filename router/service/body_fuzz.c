/* SPDX-License-Identifier: Apache-2.0 */
/* Any text is refused or read within bounds; what is read stays readable. As a content-type it is long enough. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "router/service/body.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct all {
    struct str name, object;
    struct opt_u64 number;
    struct opt_f64 share;
    struct u32_list tokens;
    struct u64_list hashes;
    struct str_list strings;
    struct number_list numbers;
    struct media_list media;
};

static const struct body_field TABLE[] = {
    {"s", BODY_STR, offsetof(struct all, name), false},
    {"o", BODY_OBJECT, offsetof(struct all, object), false},
    {"n", BODY_U32, offsetof(struct all, number), false},
    {"f", BODY_F64, offsetof(struct all, share), false},
    {"t", BODY_TOKENS, offsetof(struct all, tokens), true},
    {"h", BODY_HASHES, offsetof(struct all, hashes), false},
    {"w", BODY_STRINGS, offsetof(struct all, strings), false},
    {"m", BODY_NUMBERS, offsetof(struct all, numbers), false},
    {"i", BODY_MEDIA, offsetof(struct all, media), false},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(arena_free) struct arena *a = arena_new();
    struct all v = {.share = {false, 0}};
    struct err e;
    uint64_t sum = 0;

    assert(!body_is_json(str_slice(data, size)) || size >= strlen("application/json"));
    if (body_parse(a, str_slice(data, size), TABLE, ARRAY_LEN(TABLE), &v, &e) != 0)
        return 0;
    assert(v.tokens.len <= size && v.hashes.len <= size);
    for (size_t i = 0; i < v.tokens.len; i++)
        sum += v.tokens.ptr[i];
    for (size_t i = 0; i < v.hashes.len; i++)
        sum += v.hashes.ptr[i];
    for (size_t i = 0; i < v.strings.len; i++)
        sum += v.strings.ptr[i].len;
    for (size_t i = 0; i < v.numbers.len; i++)
        sum += v.numbers.ptr[i].name.len + !isnan(v.numbers.ptr[i].v);
    for (size_t i = 1; i < v.media.len; i++)
        assert(v.media.ptr[i - 1].block <= v.media.ptr[i].block);
    assert(v.media.len <= size);
    assert(sum || !sum);
    assert(v.number.v <= UINT32_MAX);
    return 0;
}
