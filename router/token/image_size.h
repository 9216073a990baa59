/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How large an image is, by the first bytes of its file: PNG, JPEG, GIF, WebP, BMP. Pixels are never
 * decoded. What is cut off before it says so, or says nothing, is no image here. Pure, thread safe.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

struct image_size {
    uint32_t width, height; /* in pixels, at least one */
};

/* Behind so many bytes of a file none is looked for. */
enum { IMAGE_HEAD_MAX = 1 << 20 };

MUST_CHECK bool image_size_read(struct str file, struct image_size *ret);
/* Of a file that the URL itself holds, "data:…;base64,…"; false for all others. */
MUST_CHECK bool image_size_of_url(struct str url, struct image_size *ret);
