/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/image_tokens.h"

#include "lib/base/json_tree.h"
#include "lib/base/test.h"

struct sized {
    struct image_size size;
    uint64_t tokens;
};

/* What the frontend of ai-dynamo 1.6.1 told a worker of images of these sizes. */
static const struct measured {
    const char *config, *preprocessor;
    struct sized sizes[16];
} MEASURED[] = {
    {"{\"model_type\":\"qwen2_vl\",\"image_token_id\":6144}",
     "{\"min_pixels\":3136,\"max_pixels\":12845056,\"patch_size\":14,\"merge_size\":2,\"temporal_"
     "patch_size\":2}",
     {{{640, 480}, 391},
      {{100, 100}, 16},
      {{1, 1}, 4},
      {{3000, 2000}, 7597},
      {{6000, 20}, 1},
      {{37, 4000}, 143},
      {{448, 448}, 256},
      {{350, 350}, 144},
      {{3120, 7}, 1},
      {{364, 324}, 156},
      {{20, 1220}, 44},
      {{299, 151}, 55},
      {{2832, 54}, 202},
      {{562, 3116}, 2220},
      {{4636, 2667}, 15770},
      {{293, 4246}, 1520}}},
    {"{\"model_type\":\"qwen2_5_vl\",\"image_token_id\":6144}",
     "{}",
     {{{640, 480}, 391},
      {{100, 100}, 256},
      {{1, 1}, 256},
      {{3000, 2000}, 1247},
      {{6000, 20}, 1},
      {{37, 4000}, 334},
      {{448, 448}, 256},
      {{350, 350}, 256},
      {{3120, 7}, 1},
      {{364, 324}, 272},
      {{20, 1220}, 375},
      {{299, 151}, 276},
      {{2832, 54}, 348},
      {{562, 3116}, 1260},
      {{4636, 2667}, 1269},
      {{293, 4246}, 1224}}},
    {"{\"model_type\":\"qwen3_vl\",\"image_token_id\":6144}",
     "{\"size\":{\"shortest_edge\":65536,\"longest_edge\":16777216},\"patch_size\":16,\"merge_"
     "size\":2}",
     {{{640, 480}, 300},
      {{100, 100}, 64},
      {{1, 1}, 64},
      {{3000, 2000}, 5828},
      {{6000, 20}, 1},
      {{37, 4000}, 125},
      {{448, 448}, 196},
      {{350, 350}, 121},
      {{3120, 7}, 1},
      {{364, 324}, 110},
      {{20, 1220}, 126},
      {{299, 151}, 72},
      {{2832, 54}, 176},
      {{562, 3116}, 1746},
      {{4636, 2667}, 12035},
      {{293, 4246}, 1197}}},
    {"{\"model_type\":\"qwen3_omni_moe\",\"image_token_id\":6144}",
     "{}",
     {{{640, 480}, 300},
      {{100, 100}, 9},
      {{1, 1}, 4},
      {{3000, 2000}, 5828},
      {{6000, 20}, 1},
      {{37, 4000}, 125},
      {{448, 448}, 196},
      {{350, 350}, 121},
      {{3120, 7}, 1},
      {{364, 324}, 110},
      {{20, 1220}, 38},
      {{299, 151}, 45},
      {{2832, 54}, 176},
      {{562, 3116}, 1746},
      {{4636, 2667}, 12035},
      {{293, 4246}, 1197}}},
    {"{\"model_type\":\"llava_next\",\"image_token_id\":6144}",
     "{\"size\":{\"shortest_edge\":336}}",
     {{{640, 480}, 2340},
      {{100, 100}, 1176},
      {{1, 1}, 1176},
      {{3000, 2000}, 2144},
      {{6000, 20}, 576},
      {{37, 4000}, 792},
      {{448, 448}, 2928},
      {{350, 350}, 2928},
      {{3120, 7}, 576},
      {{364, 324}, 1272},
      {{20, 1220}, 792},
      {{299, 151}, 876},
      {{2832, 54}, 722},
      {{562, 3116}, 1656},
      {{4636, 2667}, 1948},
      {{293, 4246}, 1080}}},
    {"{\"model_type\":\"llama4\",\"image_token_id\":6144}",
     "{}",
     {{{640, 480}, 2880},
      {{100, 100}, 576},
      {{1, 1}, 576},
      {{3000, 2000}, 9216},
      {{6000, 20}, 9792},
      {{37, 4000}, 7488},
      {{448, 448}, 2880},
      {{350, 350}, 2880},
      {{3120, 7}, 6336},
      {{364, 324}, 1728},
      {{20, 1220}, 2880},
      {{299, 151}, 576},
      {{2832, 54}, 5760},
      {{562, 3116}, 9792},
      {{4636, 2667}, 9216},
      {{293, 4246}, 8064}}},
    {"{\"model_type\":\"phi3_v\",\"image_token_id\":6144}",
     "{}",
     {{{640, 480}, 1921},
      {{100, 100}, 2509},
      {{1, 1}, 2509},
      {{3000, 2000}, 1921},
      {{6000, 20}, 2473},
      {{37, 4000}, 2653},
      {{448, 448}, 2509},
      {{350, 350}, 2509},
      {{3120, 7}, 2473},
      {{364, 324}, 2509},
      {{20, 1220}, 2653},
      {{299, 151}, 2353},
      {{2832, 54}, 2473},
      {{562, 3116}, 2557},
      {{4636, 2667}, 2353},
      {{293, 4246}, 2341}}},
    {"{\"model_type\":\"kimi_k25\",\"media_placeholder_token_id\":6144}",
     "{}",
     {{{640, 480}, 414},
      {{100, 100}, 16},
      {{1, 1}, 1},
      {{3000, 2000}, 4187},
      {{6000, 20}, 215},
      {{37, 4000}, 286},
      {{448, 448}, 256},
      {{350, 350}, 169},
      {{3120, 7}, 112},
      {{364, 324}, 156},
      {{20, 1220}, 44},
      {{299, 151}, 66},
      {{2832, 54}, 204},
      {{562, 3116}, 2352},
      {{4636, 2667}, 4165},
      {{293, 4246}, 1672}}},
    {"{\"model_type\":\"kimi_k2\",\"image_token_id\":6144}",
     "{\"media_proc_cfg\":{\"in_patch_limit\":4096,\"patch_limit_on_one_side\":512,\"patch_size\":"
     "14,\"merge_kernel_size\":2}}",
     {{{640, 480}, 414},
      {{100, 100}, 16},
      {{1, 1}, 1},
      {{3000, 2000}, 1080},
      {{6000, 20}, 215},
      {{37, 4000}, 286},
      {{448, 448}, 256},
      {{350, 350}, 169},
      {{3120, 7}, 112},
      {{364, 324}, 156},
      {{20, 1220}, 44},
      {{299, 151}, 66},
      {{2832, 54}, 204},
      {{562, 3116}, 1064},
      {{4636, 2667}, 1075},
      {{293, 4246}, 1125}}},
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
        for (const struct sized *s = m->sizes; s < m->sizes + 16 && s->tokens; s++)
            if (image_tokens_count(&t, s->size) != s->tokens)
                fail_msg("%s: %u x %u is %llu tokens, not %llu", m->config, s->size.width,
                         s->size.height, (unsigned long long)image_tokens_count(&t, s->size),
                         (unsigned long long)s->tokens);
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
