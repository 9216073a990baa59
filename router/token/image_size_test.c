/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/image_size.h"

#include "lib/base/buf.h"
#include "lib/base/digest.h"
#include "lib/base/test.h"

#define PNG(width, height) "\x89PNG\r\n\x1a\n\0\0\0\rIHDR" width height "\b\2\0\0\0"
#define SOF(marker) "\xff" marker "\0\x11\b\1\xe0\2\x80\3"
#define TABLE "\xff\xc4\0\6\xff\xc0\0\x11"
#define BMP(header, rest) "BM\0\0\0\0\0\0\0\0\0\0\0\0" header "\0\0\0" rest

static const struct {
    struct str file;
    struct image_size want; /* 0 = none is found */
} FILES[] = {
    {STR(PNG("\0\0\2\x80", "\0\0\1\xe0")), {640, 480}},
    {STR(PNG("\0\0\2\x80", "\0\0\1")), {640, 264}}, /* what follows counts for the height */
    {STR(PNG("\0\0\2\x80", "\0\0\0\0")), {0, 0}},
    {STR(PNG("\xff\xff\xff\xff", "\0\0\0\1")), {0, 0}},
    {STR("\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\2\x80\0\0\1"), {0, 0}},
    {STR("\xff\xd8\xff\xe0\0\4ab" TABLE SOF("\xc0")), {640, 480}},
    {STR("\xff\xd8\xff\xff\xff\xe1\0\2\xff\x01" SOF("\xc2")), {640, 480}},
    {STR("\xff\xd8" SOF("\xcf")), {640, 480}},
    {STR("\xff\xd8\xff\xe0\0\1" SOF("\xc0")), {0, 0}},
    {STR("\xff\xd8\xff\xe0\xff\xff" SOF("\xc0")), {0, 0}},
    {STR("\xff\xd8" TABLE), {0, 0}},
    {STR("\xff\xd8\xff\xc0\0\x11\b\1\xe0\2"), {0, 0}},
    {STR("\xff\xd8\xff"), {0, 0}},
    {STR("GIF89a\x80\2\xe0\1"), {640, 480}},
    {STR("GIF87a\x80\2\xe0\1"), {640, 480}},
    {STR("GIF88a\x80\2\xe0\1"), {0, 0}},
    {STR("GIF89a\x80\2\xe0"), {0, 0}},
    {STR("RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\1\x2a\x80\x42\xe0\x81"), {640, 480}},
    {STR("RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f\x7f\xc2\x77\0"), {640, 480}},
    {STR("RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f\x7f\xc2\x77"), {0, 0}},
    {STR("RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0\x7f\2\0\xdf\1\0"), {640, 480}},
    {STR("RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0\x7f\2\0\xdf\1"), {0, 0}},
    {STR("RIFF\0\0\0\0WAVEfmt "), {0, 0}},
    {STR(BMP("\x28", "\x80\2\0\0\xe0\1\0\0")), {640, 480}},
    {STR(BMP("\x28", "\x80\2\0\0\x20\xfe\xff\xff")), {640, 480}},
    {STR(BMP("\x0c", "\x80\2\xe0\1")), {640, 480}},
    {STR(BMP("\x28", "\x80\2\0\0")), {0, 0}},
    {STR("hi"), {0, 0}},
    {STR(""), {0, 0}},
};

static void assert_size(bool found, struct image_size got, struct image_size want, const char *what)
{
    if (found != (want.width != 0) ||
        (found && (got.width != want.width || got.height != want.height)))
        fail_msg("%s: %u x %u, not %u x %u", what, got.width, got.height, want.width, want.height);
}

static void sizes_of_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(FILES); i++) {
        AUTO(buf_done) struct buf url = BUF_NULL;
        struct image_size got = {0, 0};
        char what[32];

        (void)snprintf(what, sizeof(what), "file %zu", i);
        assert_size(image_size_read(FILES[i].file, &got), got, FILES[i].want, what);
        buf_put_str(&url, STR("data:any/thing;x=y;base64,"));
        base64_encode(&url, FILES[i].file);
        assert_size(image_size_of_url(buf_str(&url), &got), got, FILES[i].want, what);
    }
}

/* Photographs begin with much that is no picture. */
static void behind_other_segments(void **state)
{
    AUTO(buf_done) struct buf file = BUF_NULL, url = BUF_NULL;
    struct image_size got = {0, 0};

    (void)state;
    buf_put_str(&file, STR("\xff\xd8"));
    for (int i = 0; i < 5; i++) {
        buf_put_str(&file, STR("\xff\xe1\x7f\xff"));
        memset(buf_reserve(&file, 0x7ffd), 'x', 0x7ffd);
        buf_commit(&file, 0x7ffd);
    }
    buf_put_str(&file, STR(SOF("\xc0")));
    buf_put_str(&url, STR("data:image/jpeg;base64,"));
    base64_encode(&url, buf_str(&file));
    assert_size(image_size_of_url(buf_str(&url), &got), got, (struct image_size){640, 480}, "JPEG");
}

static void other_urls(void **state)
{
    static const char *const urls[] = {
        "http://a/b.gif",
        "data:image/gif,R0lGODlhgALgAQ==",
        "data:image/gif;BASE64,R0lGODlhgALgAQ==",
        "data:image/gif;base64,R0lGODlhgALgAQ",
        "data:image/gif;base64,R0lG ODlhgALgAQ=",
        "data:image/gif;base64,R0lGODlhgALgA%3D=",
        "data:image/gif;base64",
        "data:",
        "",
    };
    struct image_size got;

    (void)state;
    assert_true(image_size_of_url(STR("data:;base64,R0lGODlhgALgAQ=="), &got));
    for (size_t i = 0; i < ARRAY_LEN(urls); i++)
        if (image_size_of_url(str_from(urls[i]), &got))
            fail_msg("%s", urls[i]);
}

int main(void)
{
    return TEST_RUN(T(sizes_of_files), T(behind_other_segments), T(other_urls));
}
