/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/image_size.h"

#include "lib/base/buf.h"
#include "lib/base/digest.h"

/* --- numbers ---------------------------------------------------------------------------------- */

/* @n bytes from @at on, the most significant first or last; 0 behind the end. */
static uint32_t number(struct str s, size_t at, size_t n, bool big)
{
    uint32_t v = 0;

    if (at > s.len || s.len - at < n)
        return 0;
    for (size_t i = 0; i < n; i++)
        v = v << 8 | (uint8_t)s.ptr[at + (big ? i : n - 1 - i)];
    return v;
}

static uint32_t big(struct str s, size_t at, size_t n)
{
    return number(s, at, n, true);
}

static uint32_t little(struct str s, size_t at, size_t n)
{
    return number(s, at, n, false);
}

static bool says(struct str s, size_t at, struct str word)
{
    return at <= s.len && str_starts(str_skip(s, at), word);
}

/* --- formats ---------------------------------------------------------------------------------- */

static bool read_png(struct str s, struct image_size *ret)
{
    if (!says(s, 0, STR("\x89PNG\r\n\x1a\n")) || !says(s, 12, STR("IHDR")))
        return false;
    *ret = (struct image_size){big(s, 16, 4), big(s, 20, 4)};
    return true;
}

static bool read_gif(struct str s, struct image_size *ret)
{
    if (!says(s, 0, STR("GIF87a")) && !says(s, 0, STR("GIF89a")))
        return false;
    *ret = (struct image_size){little(s, 6, 2), little(s, 8, 2)};
    return true;
}

/* Rows may be stored from the top down, which a negative height says. */
static bool read_bmp(struct str s, struct image_size *ret)
{
    uint32_t height;

    if (!says(s, 0, STR("BM")))
        return false;
    if (little(s, 14, 4) == 12) {
        *ret = (struct image_size){little(s, 18, 2), little(s, 20, 2)};
        return true;
    }
    height = little(s, 22, 4);
    *ret = (struct image_size){little(s, 18, 4), height > INT32_MAX ? 0 - height : height};
    return true;
}

static bool read_webp(struct str s, struct image_size *ret)
{
    enum { LOSSY_MASK = 0x3fff };
    uint32_t packed = little(s, 21, 4);

    if (!says(s, 0, STR("RIFF")) || !says(s, 8, STR("WEBP")))
        return false;
    if (says(s, 12, STR("VP8 ")) && says(s, 23, STR("\x9d\x01\x2a")))
        *ret = (struct image_size){little(s, 26, 2) & LOSSY_MASK, little(s, 28, 2) & LOSSY_MASK};
    else if (says(s, 12, STR("VP8L")) && says(s, 20, STR("\x2f")) && s.len >= 25)
        *ret = (struct image_size){(packed & LOSSY_MASK) + 1, (packed >> 14 & LOSSY_MASK) + 1};
    else if (says(s, 12, STR("VP8X")) && s.len >= 30)
        *ret = (struct image_size){little(s, 24, 3) + 1, little(s, 27, 3) + 1};
    else
        return false;
    return true;
}

/* Frames of all kinds of coding; between them lie tables, whose numbers are like theirs. */
static bool is_frame(uint32_t marker)
{
    return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

static bool has_no_length(uint32_t marker)
{
    return marker == 0x01 || (marker >= 0xd0 && marker <= 0xd7);
}

/* A chain of segments: FF, a marker, and of most their length. */
static bool read_jpeg(struct str s, struct image_size *ret)
{
    size_t at = 2;

    if (!says(s, 0, STR("\xff\xd8\xff")))
        return false;
    while (s.len - at >= 2 && big(s, at, 1) == 0xff) {
        uint32_t marker = big(s, at + 1, 1);
        size_t length = big(s, at + 2, 2);

        if (is_frame(marker)) {
            *ret = (struct image_size){big(s, at + 7, 2), big(s, at + 5, 2)};
            return true;
        }
        if (marker == 0xff) { /* a filler */
            at++;
            continue;
        }
        if (has_no_length(marker)) {
            at += 2;
            continue;
        }
        if (length < 2 || length > s.len - at - 2)
            return false;
        at += 2 + length;
    }
    return false;
}

bool image_size_read(struct str file, struct image_size *ret)
{
    static bool (*const formats[])(struct str, struct image_size *) = {
        read_png, read_jpeg, read_webp, read_gif, read_bmp};
    struct image_size size = {0, 0};

    for (size_t i = 0; i < ARRAY_LEN(formats); i++)
        if (formats[i](file, &size))
            break;
    if (!size.width || !size.height || size.width > INT32_MAX || size.height > INT32_MAX)
        return false;
    *ret = size;
    return true;
}

/* --- URLs ------------------------------------------------------------------------------------- */

/* The size of the file whose first bytes are coded in @head. */
static bool read_head(struct str head, struct image_size *ret)
{
    AUTO(buf_done) struct buf file = BUF_NULL;

    return base64_decode(&file, head) && image_size_read(buf_str(&file), ret);
}

bool image_size_of_url(struct str url, struct image_size *ret)
{
    enum { FIRST_LOOK = 1024 }; /* is enough for most; as all that is cut off, a multiple of four */
    size_t comma = str_index(url, ',');
    struct str payload;

    if (!str_starts(url, STR("data:")) || comma == url.len ||
        !str_ends(str_head(url, comma), STR(";base64")))
        return false;
    payload = str_skip(url, comma + 1);
    if (payload.len % 4 != 0)
        return false;
    return read_head(str_head(payload, FIRST_LOOK), ret) ||
           (payload.len > FIRST_LOOK && read_head(str_head(payload, IMAGE_HEAD_MAX), ret));
}
