/* SPDX-License-Identifier: Apache-2.0 */
#include "router/discovery/model_text.h"

#include <errno.h>
#include <unistd.h>

#include "lib/base/test.h"
#include "router/discovery/model_cache.h"
#include "router/wire/walk.h"

#define BPE "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}"

struct folder {
    char path[32];
};

static void put(const struct folder *f, const char *name, const char *text)
{
    AUTO(mem_free) char *path = xasprintf("%s/%s", f->path, name);
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static struct folder folder_new(const char *config)
{
    struct folder f = {"/tmp/model-text-XXXXXX"};

    assert_non_null(mkdtemp(f.path));
    put(&f, "config.json", config);
    put(&f, "tokenizer.json", BPE);
    return f;
}

static int load(const struct folder *f, struct model_text *ret, struct err *e)
{
    AUTO(model_card_unref) struct model_card *card = NULL;
    const struct model_card_spec spec = {.dir = f->path, .name = "m", .context_length = 100};
    const struct model_places here = {.model_root = NULL};

    EXPECT_OK(model_card_build(&card, &spec, e), e);
    return model_text_load(ret, card, &here, NULL, 0, TEMPLATE_TRANSFORMERS, CHAT_OF_1, e);
}

static void the_first_file_that_names_ends_counts(void **state)
{
    static const struct {
        const char *config, *generation;
        uint32_t ids[2];
        size_t n;
    } cases[] = {
        {"{\"eos_token_id\":7}", NULL, {7}, 1},
        {"{\"eos_token_id\":7}", "{\"eos_token_id\":[8,9]}", {8, 9}, 2},
        {"{\"eos_token_id\":7}", "{}", {7}, 1},
        {"{\"text_config\":{\"eos_token_id\":[5,6]}}", NULL, {5, 6}, 2},
        {"{}", NULL, {0}, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct folder f = folder_new(cases[i].config);
        AUTO(model_text_done) struct model_text t = {.tokenizer = NULL};
        struct err e;

        if (cases[i].generation)
            put(&f, "generation_config.json", cases[i].generation);
        EXPECT_OK(load(&f, &t, &e), &e);
        assert_non_null(t.tokenizer);
        assert_int_equal(t.n_eos_ids, cases[i].n);
        assert_memory_equal(t.eos_ids, cases[i].ids, cases[i].n * sizeof(*t.eos_ids));
        remove_tree(f.path);
    }
}

static void the_vocabulary_is_the_larger_one(void **state)
{
    static const struct {
        const char *config;
        uint32_t want;
    } cases[] = {
        {"{}", 2},
        {"{\"vocab_size\":1}", 2},
        {"{\"vocab_size\":9}", 9},
        {"{\"text_config\":{\"vocab_size\":8}}", 8},
        {"{\"vocab_size\":9,\"text_config\":{\"vocab_size\":8}}", 8},
        {"{\"vocab_size\":99999999999}", UINT32_MAX},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct folder f = folder_new(cases[i].config);
        AUTO(model_text_done) struct model_text t = {.tokenizer = NULL};
        struct err e;

        EXPECT_OK(load(&f, &t, &e), &e);
        assert_int_equal(t.vocabulary, cases[i].want);
        remove_tree(f.path);
    }
}

static void prompts_keep_their_length(void **state)
{
    struct folder f = folder_new("{}");
    AUTO(model_text_done) struct model_text t = {.tokenizer = NULL};
    AUTO(token_ids_done) struct token_ids ids = {0};
    struct tokenizer_scratch *scratch;
    struct err e;

    (void)state;
    put(&f, "tokenizer.json",
        "{\"truncation\":{\"direction\":\"Right\",\"max_length\":1,\"strategy\":"
        "\"LongestFirst\",\"stride\":0},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,"
        "\"b\":1},\"merges\":[]}}");
    EXPECT_OK(load(&f, &t, &e), &e);
    scratch = tokenizer_scratch_new(t.tokenizer);
    EXPECT_OK(tokenizer_encode(t.tokenizer, scratch, STR("ab"), &ids, &e), &e);
    assert_int_equal(ids.len, 2);
    tokenizer_scratch_free(scratch);
    remove_tree(f.path);
}

static void a_template_in_error_leaves_completions(void **state)
{
    struct folder f = folder_new("{}");
    AUTO(model_text_done) struct model_text t = {.tokenizer = NULL};
    struct err e;

    (void)state;
    put(&f, "tokenizer_config.json", "{\"chat_template\":\"{% if %}\"}");
    EXPECT_OK(load(&f, &t, &e), &e);
    assert_null(t.chat);
    assert_non_null(strstr(t.lacks.text, "no chat completions"));
    remove_tree(f.path);
}

static void errors_name_the_file_and_leave_nothing(void **state)
{
    struct folder f = folder_new("{}");
    AUTO(model_text_done) struct model_text t = {.tokenizer = NULL};
    struct err e;

    (void)state;
    put(&f, "tokenizer.json", "{\"model\":{\"type\":\"Oracle\"}}");
    assert_true(load(&f, &t, &e) < 0);
    assert_non_null(strstr(e.text, "tokenizer"));
    put(&f, "tokenizer.json", BPE);
    put(&f, "generation_config.json", "{");
    assert_true(load(&f, &t, &e) < 0);
    assert_non_null(strstr(e.text, "generation_config.json"));
    assert_null(t.tokenizer);
    remove_tree(f.path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_file_that_names_ends_counts),
        cmocka_unit_test(the_vocabulary_is_the_larger_one),
        cmocka_unit_test(prompts_keep_their_length),
        cmocka_unit_test(a_template_in_error_leaves_completions),
        cmocka_unit_test(errors_name_the_file_and_leave_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
