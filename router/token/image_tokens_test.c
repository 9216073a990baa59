/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/image_tokens.h"

#include "lib/base/json_tree.h"
#include "lib/base/test.h"

static const struct image_size SIZES[] = {{640, 480}, {100, 100},  {1, 1},       {3000, 2000},
                                          {6000, 20}, {37, 4000},  {448, 448},   {350, 350},
                                          {3120, 7},  {364, 324},  {20, 1220},   {299, 151},
                                          {2832, 54}, {562, 3116}, {4636, 2667}, {293, 4246}};

/* What the frontend of ai-dynamo 1.6.1 told a worker of images of these sizes, in their order. */
static const struct measured {
    const char *config, *preprocessor;
    uint64_t tokens[ARRAY_LEN(SIZES)];
} MEASURED[] = {
    {"{\"model_type\":\"qwen2_vl\",\"image_token_id\":6144}",
     "{\"min_pixels\":3136,\"max_pixels\":12845056,\"patch_size\":14,\"merge_size\":2,\"temporal_"
     "patch_size\":2}",
     {391, 16, 4, 7597, 1, 143, 256, 144, 1, 156, 44, 55, 202, 2220, 15770, 1520}},
    {"{\"model_type\":\"qwen2_5_vl\",\"image_token_id\":6144}",
     "{}",
     {391, 256, 256, 1247, 1, 334, 256, 256, 1, 272, 375, 276, 348, 1260, 1269, 1224}},
    {"{\"model_type\":\"qwen3_vl\",\"image_token_id\":6144}",
     "{\"size\":{\"shortest_edge\":65536,\"longest_edge\":16777216},\"patch_size\":16,\"merge_"
     "size\":2}",
     {300, 64, 64, 5828, 1, 125, 196, 121, 1, 110, 126, 72, 176, 1746, 12035, 1197}},
    {"{\"model_type\":\"qwen3_omni_moe\",\"image_token_id\":6144}",
     "{}",
     {300, 9, 4, 5828, 1, 125, 196, 121, 1, 110, 38, 45, 176, 1746, 12035, 1197}},
    {"{\"model_type\":\"llava_next\",\"image_token_id\":6144}",
     "{\"size\":{\"shortest_edge\":336}}",
     {2340, 1176, 1176, 2144, 576, 792, 2928, 2928, 576, 1272, 792, 876, 722, 1656, 1948, 1080}},
    {"{\"model_type\":\"llama4\",\"image_token_id\":6144}",
     "{}",
     {2880, 576, 576, 9216, 9792, 7488, 2880, 2880, 6336, 1728, 2880, 576, 5760, 9792, 9216, 8064}},
    {"{\"model_type\":\"phi3_v\",\"image_token_id\":6144}",
     "{}",
     {1921, 2509, 2509, 1921, 2473, 2653, 2509, 2509, 2473, 2509, 2653, 2353, 2473, 2557, 2353,
      2341}},
    {"{\"model_type\":\"kimi_k25\",\"media_placeholder_token_id\":6144}",
     "{}",
     {414, 16, 1, 4187, 215, 286, 256, 169, 112, 156, 44, 66, 204, 2352, 4165, 1672}},
    {"{\"model_type\":\"kimi_k2\",\"image_token_id\":6144}",
     "{\"media_proc_cfg\":{\"in_patch_limit\":4096,\"patch_limit_on_one_side\":512,\"patch_size\":"
     "14,\"merge_kernel_size\":2}}",
     {414, 16, 1, 1080, 215, 286, 256, 169, 112, 156, 44, 66, 204, 1064, 1075, 1125}},
};

static struct json *parsed(const char *text)
{
    struct json *ret = NULL;
    struct err e;

    if (text && json_parse(&ret, str_from(text), &e) < 0)
        fail_msg("%s: %s", text, e.text);
    return ret;
}

static struct image_tokens tokens_of(const char *model, const char *config,
                                     const char *preprocessor)
{
    AUTO(json_free) struct json *c = parsed(config), *p = parsed(preprocessor);
    struct image_tokens ret;

    image_tokens_read(&ret, str_from(model), c, p);
    return ret;
}

static void counts_are_the_references(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(MEASURED); i++) {
        const struct measured *m = &MEASURED[i];
        struct image_tokens t = tokens_of("models/mine", m->config, m->preprocessor);

        assert_true(t.has_placeholder);
        assert_int_equal(t.placeholder, 6144);
        for (size_t k = 0; k < ARRAY_LEN(SIZES); k++)
            if (image_tokens_count(&t, SIZES[k]) != m->tokens[k])
                fail_msg("%s: %u x %u is %llu tokens, not %llu", m->config, SIZES[k].width,
                         SIZES[k].height, (unsigned long long)image_tokens_count(&t, SIZES[k]),
                         (unsigned long long)m->tokens[k]);
    }
}

static void where_it_is_from_goes_first(void **state)
{
    const char *config = "{\"model_type\":\"qwen2_vl\",\"image_token_index\":7}";
    struct image_tokens t = tokens_of("/m/LLaVA-1.5-7b-hf", config, "{\"size\":{\"height\":28}}");

    (void)state;
    assert_int_equal(t.family, IMAGES_LLAVA);
    assert_int_equal(t.placeholder, 7);
    assert_int_equal(image_tokens_count(&t, (struct image_size){9, 999}), 4);
    t = tokens_of("/m/other", config, "{}");
    assert_int_equal(t.family, IMAGES_QWEN);
    assert_false(t.has_placeholder);
}

static void without_a_processor_nobody_knows(void **state)
{
    struct image_tokens t =
        tokens_of(NULL, "{\"model_type\":\"qwen2_vl\",\"image_token_id\":7}", NULL);

    (void)state;
    assert_int_equal(t.family, IMAGES_UNKNOWN);
    assert_true(t.has_placeholder);
    assert_int_equal(t.placeholder, 7);
    assert_int_equal(image_tokens_count(&t, (struct image_size){9, 9}), 0);
    t = tokens_of(NULL, "{\"model_type\":\"gemma3\",\"image_token_id\":-7}", "{}");
    assert_int_equal(t.family, IMAGES_UNKNOWN);
    assert_false(t.has_placeholder);
}

/* Numbers that cannot be meant are as if they were not there. */
static void absurd_numbers_do_not_count(void **state)
{
    static const char *const absurd[] = {
        "{\"patch_size\":0,\"merge_size\":0,\"min_pixels\":-1,\"max_pixels\":9007199254740000}",
        "{\"patch_size\":\"x\",\"merge_size\":null,\"size\":[],\"min_pixels\":0.5}",
    };
    const char *config = "{\"model_type\":\"qwen2_vl\",\"image_token_id\":7}";
    struct image_tokens usual = tokens_of(NULL, config, "{}");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(absurd); i++) {
        struct image_tokens t = tokens_of(NULL, config, absurd[i]);

        assert_int_equal(t.patch, usual.patch);
        assert_int_equal(t.merge, usual.merge);
        assert_int_equal(t.min_pixels, usual.min_pixels);
        assert_int_equal(t.max_pixels, usual.max_pixels);
    }
}

int main(void)
{
    return TEST_RUN(T(counts_are_the_references), T(where_it_is_from_goes_first),
                    T(without_a_processor_nobody_knows), T(absurd_numbers_do_not_count));
}
