/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/worker_answer.h"

#include <errno.h>

#include "lib/base/err.h"
#include "lib/base/test.h"

#define HEAD "{\"id\":\"a\",\"created\":1,\"model\":\"m\",\"foo\":[2],\"object\":\"o\","
#define SAYS(choice) HEAD "\"choices\":[{\"index\":0," choice "}]}"

static const struct chunk_style *const STYLES[] = {&CHUNKS_OF_0_9, &CHUNKS_OF_1};

/* Chunks as the frontends of both releases wrote what a worker told them. */
static void chunks_are_those_of_the_reference(void **state)
{
    static const struct {
        enum api api;
        const char *told, *want[2];
    } cases[] = {
        {API_CHAT,
         SAYS("\"delta\":{\"role\":\"assistant\",\"content\":\"he\",\"x\":1},\"finish_reason\":"
              "null"),
         {"{\"id\":\"a\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"he\",\"function_call\":"
          "null,\"tool_calls\":null,\"role\":\"assistant\",\"refusal\":null,\"reasoning_content\":"
          "null}}],\"created\":1,\"model\":\"m\",\"service_tier\":null,\"system_fingerprint\":null,"
          "\"object\":\"o\",\"usage\":null}",
          "{\"id\":\"a\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"he\",\"role\":"
          "\"assistant\"},\"finish_reason\":null,\"logprobs\":null}],\"created\":1,\"model\":\"m\","
          "\"object\":\"o\"}"}},
        {API_CHAT,
         SAYS("\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\":1}\"}}]},"
              "\"finish_reason\":\"stop\",\"stop_reason\":\"x\""),
         {"{\"id\":\"a\",\"choices\":[{\"index\":0,\"delta\":{\"content\":null,\"function_call\":"
          "null,\"tool_calls\":[{\"index\":0,\"id\":null,\"type\":null,\"function\":{\"name\":null,"
          "\"arguments\":\":1}\"}}],\"role\":null,\"refusal\":null,\"reasoning_content\":null},"
          "\"finish_reason\":\"stop\",\"stop_reason\":\"x\"}],\"created\":1,\"model\":\"m\","
          "\"service_tier\":null,\"system_fingerprint\":null,\"object\":\"o\",\"usage\":null}",
          "{\"id\":\"a\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,"
          "\"function\":{\"arguments\":\":1}\"}}]},\"finish_reason\":\"stop\",\"logprobs\":null}],"
          "\"created\":1,\"model\":\"m\",\"object\":\"o\"}"}},
        {API_COMPLETIONS,
         HEAD "\"choices\":[{\"index\":0,\"text\":\"he\",\"finish_reason\":null,\"logprobs\":null}]"
              ",\"usage\":{\"prompt_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":3}}}",
         {"{\"id\":\"a\",\"choices\":[{\"text\":\"he\",\"index\":2}],\"created\":1,\"model\":\"m\","
          "\"system_fingerprint\":null,\"object\":\"o\",\"usage\":{\"prompt_tokens\":5,"
          "\"prompt_tokens_details\":{\"audio_tokens\":null,\"cached_tokens\":3}}}",
          "{\"id\":\"a\",\"choices\":[{\"text\":\"he\",\"index\":2}],\"created\":1,\"model\":\"m\","
          "\"system_fingerprint\":null,\"object\":\"o\",\"usage\":{\"prompt_tokens\":5,"
          "\"prompt_tokens_details\":{\"audio_tokens\":null,\"cached_tokens\":3}}}"}},
    };
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (size_t k = 0; k < 2; k++) {
            AUTO(worker_answer_free)
            struct worker_answer *w =
                worker_answer_new(cases[i].api, STYLES[k], cases[i].api == API_COMPLETIONS ? 2 : 0);
            AUTO(buf_done) struct buf out = BUF_NULL;

            EXPECT_OK(worker_answer_put_chunk(w, str_from(cases[i].told), &out, &e), &e);
            assert_string_equal(buf_cstr(&out), cases[i].want[k]);
        }
}

static void a_role_is_told_once_by_1_x(void **state)
{
    static const char chunk[] = SAYS("\"delta\":{\"role\":\"assistant\"}");
    struct err e;

    (void)state;
    for (size_t k = 0; k < 2; k++) {
        AUTO(worker_answer_free)
        struct worker_answer *w = worker_answer_new(API_CHAT, STYLES[k], 0);
        AUTO(buf_done) struct buf out = BUF_NULL;

        EXPECT_OK(worker_answer_put_chunk(w, STR(chunk), &out, &e), &e);
        assert_true(str_has(buf_str(&out), STR("\"role\":\"assistant\"")));
        buf_clear(&out);
        EXPECT_OK(worker_answer_put_chunk(w, STR(chunk), &out, &e), &e);
        assert_int_equal(str_has(buf_str(&out), STR("\"role\":\"assistant\"")), k == 0);
    }
}

static void expect_body(enum api api, const struct chunk_style *style, const char *const *told,
                        const char *want)
{
    AUTO(worker_answer_free) struct worker_answer *w = worker_answer_new(api, style, 0);
    AUTO(buf_done) struct buf choices = BUF_NULL, out = BUF_NULL;
    struct err e;

    for (; *told; told++)
        EXPECT_OK(worker_answer_gather(w, str_from(*told), &e), &e);
    worker_answer_put_choices(w, &choices);
    worker_answer_put_body(w, buf_str(&choices), &out);
    assert_string_equal(buf_cstr(&out), want);
}

static void chunks_are_gathered(void **state)
{
    static const char *const chat[] = {
        SAYS("\"delta\":{\"role\":\"assistant\",\"content\":\"a\\\"\",\"reasoning_content\":\"hm\"}"
             ",\"logprobs\":{\"content\":[{\"token\":\"a\"}]}"),
        SAYS("\"delta\":{\"content\":\"b\",\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"type\":"
             "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\"}}]},\"logprobs\":{"
             "\"content\":[{\"token\":\"b\"}]}"),
        SAYS("\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"\\\":1}\"}}]},"
             "\"finish_reason\":\"tool_calls\""),
        HEAD "\"choices\":[],\"usage\":{\"prompt_tokens\":5}}", NULL};
    static const char *const texts[] = {
        HEAD "\"choices\":[{\"index\":1,\"text\":\"b\"},{\"index\":0,\"text\":\"a\"}]}",
        HEAD "\"choices\":[{\"index\":1,\"text\":\"c\",\"finish_reason\":\"stop\"}]}", NULL};

    (void)state;
    expect_body(
        API_CHAT, &CHUNKS_OF_1, chat,
        "{\"id\":\"a\",\"choices\":[{\"index\":0,\"message\":{\"content\":\"a\\\"b\","
        "\"refusal\":null,\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":"
        "{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}}],\"role\":\"assistant\","
        "\"reasoning_content\":\"hm\"},\"finish_reason\":\"tool_calls\",\"logprobs\":{"
        "\"content\":[{\"token\":\"a\"},{\"token\":\"b\"}],\"refusal\":null}}],\"created\":"
        "1,\"model\":\"m\",\"object\":\"chat.completion\",\"usage\":{\"prompt_tokens\":5}}");
    expect_body(API_CHAT, &CHUNKS_OF_0_9, chat + 3,
                "{\"id\":\"a\",\"choices\":[],\"created\":1,\"model\":\"m\",\"object\":"
                "\"chat.completion\",\"usage\":{\"prompt_tokens\":5}}");
    expect_body(
        API_COMPLETIONS, &CHUNKS_OF_1, texts,
        "{\"id\":\"a\",\"choices\":[{\"text\":\"a\",\"index\":0},{\"text\":\"bc\",\"index\":"
        "1,\"finish_reason\":\"stop\"}],\"created\":1,\"model\":\"m\","
        "\"system_fingerprint\":null,\"object\":\"text_completion\",\"usage\":null}");
}

static void what_lacks_a_member_is_refused(void **state)
{
    static const struct {
        const char *json, *why;
    } cases[] = {
        {"[]", "missing field `id`"},
        {"{\"id\":\"a\"", "it is no JSON"},
        {"{\"id\":\"a\",\"created\":1,\"model\":\"m\",\"choices\":[]}", "missing field `object`"},
        {SAYS("\"text\":\"a\""), "missing field `delta`"},
        {HEAD "\"choices\":[{\"delta\":{}}]}", "missing field `index`"},
        {HEAD "\"choices\":[{\"index\":128,\"delta\":{}}]}", "choice 128"},
    };
    AUTO(worker_answer_free)
    struct worker_answer *w = worker_answer_new(API_CHAT, &CHUNKS_OF_1, 0);
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(worker_answer_put_chunk(w, str_from(cases[i].json), &out, &e), -EINVAL);
        assert_string_equal(e.text, cases[i].why);
        assert_int_equal(worker_answer_gather(w, str_from(cases[i].json), &e), -EINVAL);
        assert_string_equal(e.text, cases[i].why);
    }
    assert_int_equal(out.len, 0);
    assert_int_equal(
        worker_answer_gather(w, STR(SAYS("\"delta\":{\"tool_calls\":[{\"index\":1024}]}")), &e),
        -EMSGSIZE);
}

int main(void)
{
    return TEST_RUN(T(chunks_are_those_of_the_reference), T(a_role_is_told_once_by_1_x),
                    T(chunks_are_gathered), T(what_lacks_a_member_is_refused));
}
