/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/image_tokens.h"

#include <math.h>
#include <string.h>

#include "lib/base/json_tree.h"

enum { TILE = 336, TILE_TOKENS = 576, TILES_MAX = 16 };

/* --- which family ----------------------------------------------------------------------------- */

/* Parts of names, in small letters; numbers are those that count where the files say nothing. */
static const struct kind {
    const char *names[8];
    const char *placeholder; /* in config.json, where image_token_id is not there */
    bool by_edges;           /* size.{shortest,longest}_edge may say how many pixels */
    struct image_tokens as;
} KINDS[] = {
    {.names = {"llava-next", "llava_next", "llava-v1.6"},
     .placeholder = "image_token_index",
     .as = {.family = IMAGES_LLAVA_NEXT}},
    {.names = {"llava-1.5", "llava-v1.5"},
     .placeholder = "image_token_index",
     .as = {.family = IMAGES_LLAVA, .patch = 14, .side = 336}},
    {.names = {"qwen3-omni", "qwen3_omni"},
     .by_edges = true,
     .as = {.family = IMAGES_QWEN, 0, 0, 16, 2, 3136, 12845056}},
    {.names = {"qwen3-vl", "qwen3_vl", "qwen3.5", "qwen3_5", "qwen3.6", "qwen3_6"},
     .by_edges = true,
     .as = {.family = IMAGES_QWEN, 0, 0, 16, 2, 65536, 16777216}},
    {.names = {"qwen2-vl", "qwen2_vl", "qwen2.5-vl", "qwen2_5-vl", "qwen2_5_vl"},
     .as = {.family = IMAGES_QWEN, 0, 0, 14, 2, 200704, 1003520}},
    {.names = {"phi-3-vision", "phi3-vision", "phi3_v"}, .as = {.family = IMAGES_PHI3}},
    {.names = {"llama-4", "llama4"},
     .placeholder = "image_token_index",
     .as = {.family = IMAGES_LLAMA4}},
    {.names = {"kimi-k2", "kimi_k2"},
     .placeholder = "media_placeholder_token_id",
     .as = {.family = IMAGES_KIMI, .patch = 14, .merge = 2, .max_patches = 16384, .max_side = 512}},
};

static bool contains(struct str s, const char *part)
{
    struct str wanted = str_from(part);

    for (; s.len >= wanted.len; s = str_skip(s, 1))
        if (str_eq_nocase(str_head(s, wanted.len), wanted))
            return true;
    return false;
}

static const struct kind *kind_named(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(KINDS); i++)
        for (size_t k = 0; k < ARRAY_LEN(KINDS[i].names) && KINDS[i].names[k]; k++)
            if (contains(name, KINDS[i].names[k]))
                return &KINDS[i];
    return NULL;
}

static const struct kind *kind_of(struct str model, const struct json *config)
{
    const struct kind *k = kind_named(model);

    return k ? k : kind_named(str_from(json_get_cstr(config, "model_type")));
}

/* --- its numbers ------------------------------------------------------------------------------ */

/* Sides, limits and counts are below; a product of two of them does not overflow. */
enum { NUMBER_MAX = 1 << 30 };

static void take(uint64_t *ret, const struct json *object, const char *key)
{
    int64_t v;

    if (json_get_i64(object, key, &v) && v >= 1 && v <= NUMBER_MAX)
        *ret = (uint64_t)v;
}

/* A number, or {"height": …}. */
static void take_patch(uint64_t *ret, const struct json *from)
{
    take(ret, from, "patch_size");
    take(ret, json_get(from, "patch_size"), "height");
}

static void take_numbers(struct image_tokens *t, const struct kind *k, const struct json *from)
{
    const struct json *media = json_get(from, "media_proc_cfg"), *size = json_get(from, "size");

    if (t->family == IMAGES_KIMI)
        take(&t->merge, media, "merge_kernel_size");
    take_patch(&t->patch, media);
    take_patch(&t->patch, from);
    take(&t->merge, from, "merge_size");
    take(&t->max_patches, media, "in_patch_limit");
    take(&t->max_side, media, "patch_limit_on_one_side");
    take(&t->side, size, "shortest_edge");
    take(&t->side, size, "height");
    if (k->by_edges) {
        take(&t->min_pixels, size, "shortest_edge");
        take(&t->max_pixels, size, "longest_edge");
    }
    take(&t->min_pixels, from, "min_pixels");
    take(&t->max_pixels, from, "max_pixels");
}

static void take_placeholder(struct image_tokens *t, const struct json *config, const char *key)
{
    int64_t id;

    if (!t->has_placeholder && json_get_i64(config, key, &id) && id >= 0 && id <= UINT32_MAX) {
        t->placeholder = (uint32_t)id;
        t->has_placeholder = true;
    }
}

void image_tokens_read(struct image_tokens *ret, struct str model, const struct json *config,
                       const struct json *preprocessor)
{
    const struct kind *k = preprocessor ? kind_of(model, config) : NULL;
    struct image_tokens t = {.family = IMAGES_UNKNOWN};

    if (k)
        t = k->as;
    take_placeholder(&t, config, "image_token_id");
    if (k && k->placeholder)
        take_placeholder(&t, config, k->placeholder);
    if (k)
        take_numbers(&t, k, preprocessor);
    *ret = t;
}

/* --- counting --------------------------------------------------------------------------------- */

/* Cells of patch × merge pixels a side, the image made as large as the limits want it. */
static uint64_t count_qwen(const struct image_tokens *t, double w, double h)
{
    double cell = (double)(t->patch * t->merge), max = (double)t->max_pixels;
    double min = (double)t->min_pixels, across, down, scale;

    if (fmax(w, h) / fmin(w, h) > 200)
        return 1;
    across = fmax(rint(w / cell), 1);
    down = fmax(rint(h / cell), 1);
    if (across * down * cell * cell > max) {
        scale = sqrt(w * h / max);
        across = fmax(floor(w / scale / cell), 1);
        down = fmax(floor(h / scale / cell), 1);
    } else if (across * down * cell * cell < min) {
        scale = sqrt(min / (w * h));
        across = ceil(w * scale / cell);
        down = ceil(h * scale / cell);
    }
    return (uint64_t)across * (uint64_t)down;
}

static uint64_t count_llava(const struct image_tokens *t)
{
    uint64_t across = t->side / t->patch;

    return across * across;
}

/* Of the canvases, in tiles, the one that shows most of the image and wastes the least. */
static void choose_canvas(float w, float h, uint32_t *ret_width, uint32_t *ret_height)
{
    static const uint32_t canvases[][2] = {{1, 2}, {2, 1}, {2, 2}, {3, 1}, {1, 3}};
    uint64_t most = 0, least = UINT64_MAX;

    *ret_width = *ret_height = 0;
    for (size_t i = 0; i < ARRAY_LEN(canvases); i++) {
        uint32_t width = canvases[i][0] * TILE, height = canvases[i][1] * TILE;
        float scale = fminf((float)width / w, (float)height / h);
        uint64_t all = (uint64_t)width * height;
        uint64_t scaled = (uint64_t)(w * scale) * (uint64_t)(h * scale);
        uint64_t shown = MIN(scaled, (uint64_t)w * (uint64_t)h);

        if (shown > most || (shown == most && all - shown < least)) {
            *ret_width = width;
            *ret_height = height;
            most = shown;
            least = all - shown;
        }
    }
}

/* Patches of a canvas's side without the margin, which is the same on both sides. */
static uint64_t without_margin(uint64_t patches, float image)
{
    uint64_t shown = MIN((uint64_t)roundf(image), patches);

    return patches - (patches - shown) / 2 * 2;
}

/* The whole in one tile, then the canvas without its margins, a mark behind each row. */
static uint64_t count_llava_next(float w, float h)
{
    enum { PATCH = 14 };
    uint32_t width, height;
    uint64_t across, down;

    choose_canvas(w, h, &width, &height);
    across = width / PATCH;
    down = height / PATCH;
    if (w * (float)down > h * (float)across)
        down = without_margin(down, h * (float)across / w);
    else
        across = without_margin(across, w * (float)down / h);
    return TILE_TOKENS + (across + 1) * down;
}

/* Tiles of the canvas that enlarges the image least, else diminishes it least; then the whole in one. */
static uint64_t count_llama4(double w, double h)
{
    double best = 0;
    uint64_t tiles = TILES_MAX;

    for (uint64_t n = 1; n <= TILES_MAX; n++)
        for (uint64_t across = 1; across <= n; across++) {
            double scale;

            if (n % across)
                continue;
            scale = fmin((double)(across * TILE) / w, (double)(n / across * TILE) / h);
            if (best == 0 ||
                (scale >= 1 ? best < 1 || scale < best - 1e-9 : best < 1 && scale > best + 1e-9)) {
                best = scale;
                tiles = n;
            }
        }
    return (tiles > 1 ? tiles + 1 : 1) * TILE_TOKENS;
}

/* Tiles across the longer side, as many as are allowed; a row of them ends with a mark for each of 12 rows. */
static uint64_t count_phi3(double w, double h)
{
    double ratio = fmax(w, h) / fmin(w, h), across = 1;
    uint64_t rows, columns;

    while ((across + 1) * ceil((across + 1) / ratio) <= TILES_MAX)
        across++;
    rows = (uint64_t)ceil(floor(across * TILE / ratio) / TILE);
    columns = (uint64_t)across;
    if (w < h) {
        columns = rows;
        rows = (uint64_t)across;
    }
    return (rows * columns + 1) * 144 + 1 + (rows + 1) * 12;
}

/* Never enlarged; what is left of a cell is filled up. */
static uint64_t count_kimi(const struct image_tokens *t, struct image_size size)
{
    uint64_t limit = t->max_side * t->patch, cell = t->patch * t->merge;
    double w = size.width, h = size.height, patch = (double)t->patch;
    double patches = fmax(floor(w / patch), 1) * fmax(floor(h / patch), 1);
    double scale = fmin(1, sqrt((double)t->max_patches / patches));
    uint64_t across, down;

    scale = fmin(scale, fmin((double)limit / w, (double)limit / h));
    across = MIN((uint64_t)fmax(w * scale, 1), limit);
    down = MIN((uint64_t)fmax(h * scale, 1), limit);
    return ((across + cell - 1) / cell) * ((down + cell - 1) / cell);
}

uint64_t image_tokens_count(const struct image_tokens *t, struct image_size size)
{
    double w = size.width, h = size.height;

    switch (t->family) {
    case IMAGES_QWEN:
        return count_qwen(t, w, h);
    case IMAGES_LLAVA:
        return count_llava(t);
    case IMAGES_LLAVA_NEXT:
        return count_llava_next((float)w, (float)h);
    case IMAGES_LLAMA4:
        return count_llama4(w, h);
    case IMAGES_PHI3:
        return count_phi3(w, h);
    case IMAGES_KIMI:
        return count_kimi(t, size);
    case IMAGES_UNKNOWN:
        break;
    }
    return 0;
}
