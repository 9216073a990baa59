/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/chat_extras.h"

#include "lib/base/test.h"

#define TEXT "{\"type\":\"text\",\"text\":\"a\"}"
#define IMAGE(url, more) "{\"type\":\"image_url\",\"image_url\":{\"url\":\"" url "\"" more "}}"
#define SOUND "{\"type\":\"audio_url\",\"audio_url\":{\"url\":\"a:s\",\"detail\":\"low\"}}"
#define SEEN "{\"type\":\"image_url\",\"image_url\":null,\"uuid\":\"u\"}"
#define USER(parts) "{\"role\":\"user\",\"content\":[" parts "],\"name\":null}"
#define CHAT(messages, more) "{\"model\":\"m\",\"messages\":[" messages "]" more "}"
#define OTHERS "{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"tool_calls\":[]},"

struct telling {
    const char *body;
    bool of_1, has_thoughts;
    const char *media, *uuids, *args; /* "" = nothing */
};

static void assert_told(const struct telling *c)
{
    AUTO(arena_free) struct arena *a = arena_new();
    const struct chat_extras_conf conf = {
        .of_1 = c->of_1, .has_thoughts = c->has_thoughts, .prompt = STR("<p>")};
    struct chat_extras told;
    struct openai_request r;
    struct api_error e;

    if (!openai_request_parse(API_CHAT, str_from(c->body), a, &r, &e))
        fail_msg("%s: %s", c->body, e.text);
    chat_extras_make(&r, &conf, a, &told);
    if (!str_is(told.media, c->media) || !str_is(told.uuids, c->uuids) ||
        !str_is(told.args, c->args))
        fail_msg("%s:\n%.*s\n%.*s\n%.*s", c->body, STR_ARG(told.media), STR_ARG(told.uuids),
                 STR_ARG(told.args));
    openai_request_done(&r);
}

static void media_by_kind(void **state)
{
    static const struct telling cases[] = {
        {CHAT(OTHERS USER(TEXT), ""), true, true, "", "", ""},
        {CHAT(OTHERS USER(SOUND "," IMAGE("a:i", "")) "," USER(IMAGE("a:j", "")), ""), true, false,
         "{\"image_url\":[{\"Url\":\"a:i\"},{\"Url\":\"a:j\"}],\"audio_url\":[{\"Url\":\"a:s\"}]}",
         "",
         "{\"messages\":[" OTHERS
         "{\"role\":\"user\",\"content\":[{\"type\":\"audio_url\",\"audio_url\":{\"url\":\"a:s\"}},"
         "{\"type\":\"image_url\",\"image_url\":{\"url\":\"a:i\",\"detail\":null}}]},"
         "{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"a:j\","
         "\"detail\":null}}]}],\"formatted_prompt\":\"<p>\"}"},
        {CHAT(USER(SEEN "," TEXT "," IMAGE("a:i", "")), ""), true, false,
         "{\"image_url\":[{\"UuidOnly\":\"u\"},{\"Url\":\"a:i\"}]}", "{\"image_url\":[\"u\",null]}",
         "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":"
         "null,\"uuid\":\"u\"}," TEXT ",{\"type\":\"image_url\",\"image_url\":{\"url\":\"a:i\","
         "\"detail\":null}}]}],\"formatted_prompt\":\"<p>\"}"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_told(&cases[i]);
}

static void data_is_told_once_to_workers_of_1(void **state)
{
    static const char *const body =
        CHAT(USER(IMAGE("data:image/png;base64,aGk=", ",\"detail\":\"low\",\"x\":1")), "");
#define MEDIA "{\"image_url\":[{\"Url\":\"data:image/png;base64,aGk=\"}]}"
#define TOLD(url)                                                                                  \
    "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":"        \
    "{\"url\":\"" url "\",\"detail\":\"low\"}}]}]"

    (void)state;
    assert_told(
        &(struct telling){body, true, false, MEDIA, "", TOLD("") ",\"formatted_prompt\":\"<p>\"}"});
    assert_told(
        &(struct telling){body, false, true, MEDIA, "", TOLD("data:image/png;base64,aGk=") "}"});
}

static void what_the_template_was_told(void **state)
{
    static const char *const body = CHAT(USER(TEXT), ",\"chat_template_args\":{\"a\":1}"),
                             *const both =
                                 CHAT(USER(TEXT), ",\"chat_template_args\":{\"a\":1},"
                                                  "\"nvext\":{\"extra_fields\":[\"timing\"]}");
#define OWN "\"nvext\":{\"extra_fields\":[\"timing\"]}"
#define ARGS "\"reasoning_parser_kwargs\":{\"chat_template_kwargs\":{\"a\":1}}"

    (void)state;
    assert_told(&(struct telling){body, true, true, "", "", "{" ARGS "}"});
    assert_told(&(struct telling){both, true, true, "", "", "{" OWN "," ARGS "}"});
    assert_told(&(struct telling){both, true, false, "", "", "{" OWN "}"});
    assert_told(&(struct telling){body, false, true, "", "", ""});
}

static void hashes_of_known_images(void **state)
{
    AUTO(arena_free) struct arena *a = arena_new();
    static const uint64_t hashes[] = {UINT64_MAX, 10};
    const struct chat_extras_conf conf = {
        .of_1 = true, .prompt = STR("<p>"), .mm_hashes = hashes, .n_mm_hashes = 2};
    struct chat_image *images;
    struct chat_extras told;
    struct openai_request r;
    struct api_error e;
    bool others;

    (void)state;
    assert_true(openai_request_parse(
        API_CHAT, STR(CHAT(OTHERS USER(IMAGE("a:i", "")) "," USER(SEEN), "")), a, &r, &e));
    chat_extras_make(&r, &conf, a, &told);
    assert_true(str_ends(told.args, STR(",\"formatted_prompt\":\"<p>\",\"mm_hashes\":["
                                        "\"ffffffffffffffff\",\"000000000000000a\"]}")));
    assert_int_equal(chat_images(&r, a, &images, &others), 2);
    assert_false(others);
    assert_true(str_is(images[0].url, "a:i") && !images[0].uuid.len);
    assert_true(!images[1].url.len && str_is(images[1].uuid, "u"));
    openai_request_done(&r);
    assert_true(openai_request_parse(API_CHAT, STR(CHAT(USER(SOUND "," TEXT), "")), a, &r, &e));
    assert_int_equal(chat_images(&r, a, &images, &others), 0);
    assert_true(others);
    openai_request_done(&r);
}

int main(void)
{
    return TEST_RUN(T(hashes_of_known_images), T(media_by_kind),
                    T(data_is_told_once_to_workers_of_1), T(what_the_template_was_told));
}
