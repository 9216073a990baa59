/* SPDX-License-Identifier: Apache-2.0 */
#include "router/discovery/card.h"

#include <errno.h>
#include <sys/stat.h>

#include "lib/base/digest.h"
#include "lib/base/test.h"
#include "router/discovery/model_cache.h"
#include "router/wire/walk.h"

#define X64(d) d d d d d d d d

/* wire.md §3.4, both worked sums. */
static void test_sum(void **state)
{
    static const struct {
        const char *json, *sum;
    } cases[] = {
        {"{\"display_name\":\"m\",\"slug\":\"m\",\"model_info\":{\"hf_config_json\":{\"path\":"
         "\"c\","
         "\"checksum\":\"blake3:" X64(
             "00000000") "\"}},\"tokenizer\":{\"hf_tokenizer_json\":{"
                         "\"path\":\"t\",\"checksum\":\"blake3:" X64(
                             "11111111") "\"}},\"context_length\":2048,"
                                         "\"kv_cache_block_size\":16,\"migration_limit\":0,\"model_"
                                         "type\":\"Chat\","
                                         "\"model_input\":\"Tokens\"}",
         "a15d3c41cac38b802abcabb39e888d1766f3aa2da30cb1333c14d549914d16e1"},
        {"{\"display_name\":\"m\",\"slug\":\"m\",\"source_path\":\"/models/m\",\"model_info\":{"
         "\"hf_config_json\":{\"path\":\"c\",\"checksum\":\"blake3:" X64(
             "00000000") "\"}},"
                         "\"tokenizer\":{\"hf_tokenizer_json\":{\"path\":\"t\",\"checksum\":"
                         "\"blake3:" X64(
                             "11111111") "\"}},\"prompt_formatter\":{\"hf_tokenizer_config_json\":{"
                                         "\"path\":\"p\","
                                         "\"checksum\":\"blake3:" X64(
                                             "22222222") "\"}},\"context_length\":8192,"
                                                         "\"kv_cache_block_size\":64,\"migration_"
                                                         "limit\":0,\"model_type\":\" "
                                                         "Completions|Chat\","
                                                         "\"model_input\":\"Tokens\",\"unknown\":[{"
                                                         "}]}",
         "3aa4b3308e4fe13636f80c82054f296c06d3e970070677ca335aa3ee01e2d32e"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(model_card_unref) struct model_card *c = NULL;
        struct err e;

        EXPECT_OK(model_card_parse(&c, str_from(cases[i].json), &e), &e);
        assert_string_equal(c->mdc_sum, cases[i].sum);
        assert_true(c->flags & MODEL_CHAT);
    }
}

#define REST "\"kv_cache_block_size\":16,\"migration_limit\":0,\"model_input\":\"Tokens\""
#define HEAD "{\"display_name\":\"m\",\"slug\":\"m\","

static void test_read(void **state)
{
    static const struct {
        const char *json;
        const char *wrong; /* word of the error; NULL = good */
        uint32_t context;
        bool is_prefill;
        uint32_t dp_start, dp_size;
        bool is_of_1;
    } cases[] = {
        {HEAD REST ",\"model_type\":\"Chat\",\"context_length\":7}", NULL, 7, 0, 0, 1, false},
        {HEAD REST ",\"model_type\":\"Prefill\",\"context_length\":7}", NULL, 7, 1, 0, 1, false},
        {HEAD REST ",\"model_type\":\"Chat | Novel\",\"worker_type\":\"prefill\","
                   "\"architectural_max_context_length\":9}",
         NULL, 9, 1, 0, 1, true},
        {HEAD REST ",\"model_type\":\"Chat\",\"context_length\":0,\"runtime_config\":{"
                   "\"context_length\":5,\"data_parallel_start_rank\":2,\"data_parallel_size\":4,"
                   "\"runtime_data\":{\"x\":99999999999999999999}}}",
         NULL, 5, 0, 2, 4, true},
        {HEAD REST ",\"model_type\":\"Chat\"}", "context_length", 0, 0, 0, 0, false},
        {HEAD REST ",\"context_length\":7}", "model_type", 0, 0, 0, 0, false},
        {"{\"slug\":\"m\"," REST ",\"model_type\":\"Chat\",\"context_length\":7}", "display_name",
         0, 0, 0, 0, false},
        {"{\"display_name\":\"m\",\"slug\":\"M!\"," REST ",\"model_type\":\"Chat\","
         "\"context_length\":7}",
         "slug", 0, 0, 0, 0, false},
        {HEAD REST ",\"model_type\":\"Chat\",\"context_length\":-7}", "range", 0, 0, 0, 0, false},
        {HEAD REST ",\"model_type\":7,\"context_length\":7}", "string", 0, 0, 0, 0, false},
        {"{\"display_name\":\"a\\u0000b\",\"slug\":\"m\"," REST ",\"model_type\":\"Chat\","
         "\"context_length\":7}",
         "NUL", 0, 0, 0, 0, false},
        {"null", "display_name", 0, 0, 0, 0, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(model_card_unref) struct model_card *c = NULL;
        struct err e = {""};
        int r = model_card_parse(&c, str_from(cases[i].json), &e);

        if (cases[i].wrong) {
            assert_int_equal(r, -EINVAL);
            if (!strstr(e.text, cases[i].wrong))
                fail_msg("case %zu: %s", i, e.text);
            continue;
        }
        EXPECT_OK(r, &e);
        assert_int_equal(c->context_length, cases[i].context);
        assert_int_equal(c->is_prefill, cases[i].is_prefill);
        assert_int_equal(c->dp_start, cases[i].dp_start);
        assert_int_equal(c->dp_size, cases[i].dp_size);
        assert_int_equal(c->is_of_1, cases[i].is_of_1);
    }
}

/* Names are kept, whatever else is in the list; they come out as they went in. */
static void test_taints(void **state)
{
    static const char json[] = HEAD REST ",\"model_type\":\"Chat\",\"context_length\":7,"
                                         "\"runtime_config\":{\"taints\":[\"zone=a\",null,"
                                         "\"gpu=h100\"]}}";
    AUTO(model_card_unref) struct model_card *c = NULL;
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct err e;

    (void)state;
    EXPECT_OK(model_card_parse(&c, STR(json), &e), &e);
    assert_int_equal(c->n_taints, 2);
    assert_string_equal(c->taints[0], "zone=a");
    assert_string_equal(c->taints[1], "gpu=h100");
    model_card_put(&out, c);
    assert_non_null(strstr(buf_cstr(&out), "\"taints\":[\"zone=a\",\"gpu=h100\"]"));
}

/* The first is what dynamo.vllm 1.6.1 said. */
static void test_token_budget(void **state)
{
#define BUDGET(data)                                                                               \
    HEAD REST ",\"model_type\":\"Chat\",\"context_length\":7,"                                     \
              "\"runtime_config\":{\"runtime_data\":{\"token_budget\":" data "}}}"
    static const struct {
        const char *json;
        uint64_t budget;
    } cases[] = {
        {BUDGET("{\"combined_limit\":4096,\"reject_prompt_overflow\":true,"
                "\"reject_total_overflow\":true},\"stream_interval\":1"),
         4096},
        {BUDGET("{\"combined_limit\":4096,\"reject_total_overflow\":false}"), 0},
        {BUDGET("{\"combined_limit\":-1,\"reject_total_overflow\":true}"), 0},
        {BUDGET("{\"reject_total_overflow\":true}"), 0},
        {BUDGET("null"), 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(model_card_unref) struct model_card *c = NULL;
        struct err e;

        EXPECT_OK(model_card_parse(&c, str_from(cases[i].json), &e), &e);
        assert_int_equal(c->token_budget, cases[i].budget);
    }
#undef BUDGET
}

/* As SGLang's workers of 1.6.1 say it; what lacks a member, or is no object, says nothing. */
static void test_hicache(void **state)
{
#define OF_RUNTIME(data)                                                                           \
    HEAD REST ",\"model_type\":\"Chat\",\"context_length\":7,"                                     \
              "\"runtime_config\":{\"runtime_data\":" data "}}"
#define LAYOUT                                                                                     \
    "\"page_size\":64,\"tp_size\":2,\"pp_size\":1,\"is_mla_model\":false,\"tp_lcm_size\":4,"       \
    "\"should_split_heads\":true,\"extra_backend_tag\":\"t\","
#define HICACHE(more)                                                                              \
    OF_RUNTIME("{\"other\":[1],\"sglang_hicache_mooncake\":{\"backend\":\"mooncake\"," LAYOUT more \
               "}}")
    static const struct {
        const char *json, *prefix, *endpoint;
    } cases[] = {
        {HICACHE("\"is_eagle\":true,\"key_prefix\":\"t_m\",\"kv_events_endpoint\":\"tcp://h:1\""),
         "t_m", "tcp://h:1"},
        {HICACHE("\"is_eagle\":true,\"key_prefix\":null,\"kv_events_endpoint\":null"), "t", NULL},
        {HICACHE("\"is_eagle\":true,\"key_prefix\":\"\""), "", NULL},
        {HICACHE("\"is_eagle\":null"), NULL, NULL},
        {OF_RUNTIME("{\"sglang_hicache_mooncake\":\"text\"}"), NULL, NULL},
        {OF_RUNTIME("{\"sglang_hicache_mooncake\":{\"page_size\":\"x\"}}"), NULL, NULL},
        {OF_RUNTIME("null"), NULL, NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(model_card_unref) struct model_card *c = NULL;
        const struct card_hicache *h;
        struct err e;

        EXPECT_OK(model_card_parse(&c, str_from(cases[i].json), &e), &e);
        h = &c->hicache;
        assert_int_equal(h->present, cases[i].prefix != NULL);
        if (!h->present)
            continue;
        assert_true(h->is_mooncake && h->splits_heads && h->is_eagle && !h->is_mla);
        assert_int_equal(h->page_size, 64);
        assert_int_equal(h->tp_size, 2);
        assert_int_equal(h->pp_size, 1);
        assert_int_equal(h->tp_lcm_size, 4);
        assert_string_equal(h->prefix, cases[i].prefix);
        assert_int_equal(!h->events_endpoint, !cases[i].endpoint);
        if (cases[i].endpoint)
            assert_string_equal(h->events_endpoint, cases[i].endpoint);
    }
}

static void put_file(const char *dir, const char *name, const char *text)
{
    AUTO(mem_free) char *path = xasprintf("%s/%s", dir, name);
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    (void)fputs(text, f);
    (void)fclose(f);
}

static void test_build_and_resolve(void **state)
{
    char root[] = "/tmp/card_test.XXXXXX";
    AUTO(model_card_unref) struct model_card *c = NULL;
    AUTO(model_card_unref) struct model_card *moved = NULL;
    AUTO(model_files_done) struct model_files f = {0};
    AUTO(model_files_done) struct model_files g = {0};
    AUTO(buf_done) struct buf json = BUF_NULL;
    AUTO(buf_done) struct buf elsewhere = BUF_NULL;
    AUTO(mem_free) char *dir = NULL, *want = NULL;
    struct model_card_spec spec = {.name = "My/Model", .kv_cache_block_size = 64, .dp_size = 2};
    const struct model_places nowhere = {.model_root = NULL}, in_root = {.model_root = root};
    char hex[DIGEST_HEX_SIZE];
    struct err e;

    (void)state;
    assert_non_null(mkdtemp(root));
    dir = xasprintf("%s/my_model", root);
    assert_int_equal(mkdir(dir, 0755), 0);
    spec.dir = dir;
    assert_int_equal(model_card_build(&c, &spec, &e), -ENOENT);
    put_file(dir, "config.json", "{\"max_position_embeddings\":4096}");
    put_file(dir, "tokenizer.json", "{}");
    put_file(dir, "chat_template.jinja", "{{x}}");
    EXPECT_OK(model_card_build(&c, &spec, &e), &e);
    assert_string_equal(c->slug, "my_model");
    assert_int_equal(c->context_length, 4096);
    assert_null(c->gen_config.path);
    digest_blake3_hex(STR("{{x}}"), hex);
    assert_string_equal(c->chat_template.checksum + strlen("blake3:"), hex);

    EXPECT_OK(model_files_resolve(c, &nowhere, NULL, 0, &f, &e), &e);
    want = xasprintf("%s/chat_template.jinja", dir);
    assert_string_equal(f.chat_template, want);
    assert_null(f.generation_config);

    /* The same card from a worker whose disk is another one, as a path and as a name at the hub. */
    model_card_put(&json, c);
    for (const char *at = buf_cstr(&json), *hit; *at; at = hit + strlen(dir)) {
        hit = strstr(at, dir);
        if (!hit) {
            buf_put_cstr(&elsewhere, at);
            break;
        }
        buf_put(&elsewhere, at, (size_t)(hit - at));
        buf_put_cstr(&elsewhere, "hf://My/Model");
    }
    EXPECT_OK(model_card_parse(&moved, buf_str(&elsewhere), &e), &e);
    assert_string_equal(moved->mdc_sum, c->mdc_sum);
    assert_int_equal(model_files_resolve(moved, &nowhere, NULL, 0, &g, &e), -ENOENT);
    assert_non_null(strstr(e.text, "hf://My/Model/config.json"));
    EXPECT_OK(model_files_resolve(moved, &in_root, NULL, 0, &g, &e), &e);
    assert_string_equal(g.chat_template, want);
    remove_tree(root);
}

/* Which file of a folder is the tokenizer, and by which name the card gives it. */
static void assert_tokenizer(const char *dir, const char *name, const char *tag)
{
    AUTO(model_card_unref) struct model_card *c = NULL;
    AUTO(buf_done) struct buf json = BUF_NULL;
    struct model_card_spec spec = {.dir = dir, .name = "m"};
    struct err e;

    EXPECT_OK(model_card_build(&c, &spec, &e), &e);
    assert_string_equal(strrchr(c->tokenizer.path, '/') + 1, name);
    model_card_put(&json, c);
    assert_non_null(strstr(buf_cstr(&json), tag));
}

static void test_tokenizers_of_a_folder(void **state)
{
    char dir[] = "/tmp/card_test_XXXXXX";
    AUTO(model_card_unref) struct model_card *c = NULL;
    struct model_card_spec spec = {.dir = dir, .name = "m"};
    struct err e;

    (void)state;
    assert_non_null(mkdtemp(dir));
    put_file(dir, "config.json", "{}");
    put_file(dir, "tokenizer.model", "x");
    assert_tokenizer(dir, "tokenizer.model", "\"tik_token_model\":{\"path\"");
    put_file(dir, "qwen.tiktoken", "x");
    assert_tokenizer(dir, "qwen.tiktoken", "\"tik_token_model\":{\"path\"");
    put_file(dir, "other.tiktoken", "x");
    assert_int_equal(model_card_build(&c, &spec, &e), -EINVAL);
    put_file(dir, "tiktoken.model", "x");
    assert_tokenizer(dir, "tiktoken.model", "\"tik_token_model\":{\"path\"");
    put_file(dir, "tokenizer.json", "{}");
    assert_tokenizer(dir, "tokenizer.json", "\"hf_tokenizer_json\":{\"path\"");
    remove_tree(dir);
}

static void test_default_thinking(void **state)
{
    static const struct {
        const char *json;
        bool set, on;
    } cases[] = {
        {OF_RUNTIME("{\"default_thinking_mode\":\"enabled\"}"), true, true},
        {OF_RUNTIME("{\"x\":1,\"default_thinking_mode\":\"disabled\"}"), true, false},
        {OF_RUNTIME("{\"default_thinking_mode\":\"on\"}"), false, false},
        {OF_RUNTIME("{\"default_thinking_mode\":true}"), false, false},
        {OF_RUNTIME("{}"), false, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(model_card_unref) struct model_card *c = NULL;
        struct err e;

        EXPECT_OK(model_card_parse(&c, str_from(cases[i].json), &e), &e);
        assert_int_equal(c->thinks.set, cases[i].set);
        assert_int_equal(c->thinks.v, cases[i].on);
    }
}

#define TAGS(members)                                                                              \
    HEAD REST ",\"model_type\":\"Chat\",\"context_length\":7,\"runtime_config\":{" members "}}"

static void test_tags(void **state)
{
    static const struct {
        const char *json;
        bool on, always, strict;
    } cases[] = {
        {TAGS(""), false, false, false},
        {TAGS("\"structural_tag_mode\":\"off\""), false, false, false},
        {TAGS("\"structural_tag_mode\":\"on\""), true, false, false},
        {TAGS("\"structural_tag_mode\":\"on\",\"structural_tag_scope\":\"always\","
              "\"structural_tag_schema\":\"strict\""),
         true, true, true},
        {TAGS("\"structural_tag\":{}"), true, false, false},
        {TAGS("\"structural_tag\":{\"scope\":\"always\",\"schema\":\"strict\"}"), true, true, true},
        {TAGS("\"structural_tag\":{\"scope\":\"auto\"},\"structural_tag_mode\":\"on\","
              "\"structural_tag_scope\":\"always\""),
         true, false, false},
        {TAGS("\"structural_tag\":null,\"structural_tag_mode\":\"on\","
              "\"structural_tag_scope\":\"always\""),
         true, true, false},
        {TAGS("\"structural_tag_mode\":1,\"structural_tag_scope\":[]"), false, false, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(model_card_unref) struct model_card *c = NULL;
        struct err e;

        EXPECT_OK(model_card_parse(&c, str_from(cases[i].json), &e), &e);
        assert_int_equal(c->tags_on, cases[i].on);
        assert_int_equal(c->tags_always, cases[i].always);
        assert_int_equal(c->tags_strict, cases[i].strict);
    }
}

int main(void)
{
    return TEST_RUN(T(test_sum), T(test_read), T(test_taints), T(test_hicache),
                    T(test_token_budget), T(test_default_thinking), T(test_tags),
                    T(test_build_and_resolve), T(test_tokenizers_of_a_folder));
}
