/* SPDX-License-Identifier: Apache-2.0 */
#include "router/discovery/hub_answer.h"

#include "lib/base/test.h"

/* Lines "name: value"; a line "-" begins a further answer. */
static struct hub_answer read_lines(const char *lines)
{
    struct hub_answer a = hub_answer_none();
    struct str rest = str_from(lines), line, name;

    for (bool more = *lines != '\0'; more;) {
        more = str_cut(&rest, '\n', &line);
        if (str_is(line, "-")) {
            hub_answer_add(&a, STR(""), STR("HTTP/1.1 200 OK"));
        } else {
            (void)str_cut(&line, ':', &name);
            hub_answer_add(&a, name, str_trim(line));
        }
    }
    return a;
}

static void test_headers(void **state)
{
    static const struct {
        const char *lines, *etag, *commit, *location;
        uint64_t size, from;
    } cases[] = {
        {"", "", "", "", HUB_SIZE_UNKNOWN, 0},
        {"-\netag: \"ab12\"\ncontent-length: 7\nx-repo-commit: c0", "ab12", "c0", "", 7, 0},
        {"-\netag: W/\"ab\"", "ab", "", "", HUB_SIZE_UNKNOWN, 0},
        {"-\netag: ab", "ab", "", "", HUB_SIZE_UNKNOWN, 0},
        /* names that would leave the folder, or be none */
        {"-\netag: \"../x\"\nx-repo-commit: ..", "", "", "", HUB_SIZE_UNKNOWN, 0},
        {"-\netag: \"\"\nx-repo-commit: a/b", "", "", "", HUB_SIZE_UNKNOWN, 0},
        /* a large file: what the redirect says of it holds, its own length does not */
        {"-\ncontent-length: 1200\netag: \"page\"\nx-linked-etag: \"5e\"\nx-linked-size: 99\n"
         "location: http://elsewhere/x",
         "5e", "", "http://elsewhere/x", 99, 0},
        {"-\nx-linked-size: 99\nx-linked-etag: \"5e\"\ncontent-length: 12\n-\ncontent-length: 99\n"
         "etag: \"cdn\"",
         "5e", "", "", 99, 0},
        {"-\nx-linked-etag: \"5e\"\ncontent-length: 12", "5e", "", "", HUB_SIZE_UNKNOWN, 0},
        /* a part of it */
        {"-\ncontent-length: 5\ncontent-range: bytes 5-9/10", "", "", "", 10, 5},
        {"-\ncontent-range: bytes 5-9/10\ncontent-length: 5", "", "", "", 10, 5},
        {"-\ncontent-range: bytes 5-9/*\ncontent-length: 5", "", "", "", HUB_SIZE_UNKNOWN, 5},
        {"-\ncontent-range: lines 5-9/10", "", "", "", HUB_SIZE_UNKNOWN, 0},
        {"-\ncontent-range: bytes -9/10", "", "", "", HUB_SIZE_UNKNOWN, 0},
        {"-\ncontent-length: -1", "", "", "", HUB_SIZE_UNKNOWN, 0},
        {"-\nlocation: /new/name\ncontent-length: 3\n-\ncontent-length: 8", "", "", "", 8, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct hub_answer a = read_lines(cases[i].lines);

        assert_string_equal(a.etag, cases[i].etag);
        assert_string_equal(a.commit, cases[i].commit);
        assert_string_equal(a.location, cases[i].location);
        assert_true(a.size == cases[i].size);
        assert_true(a.from == cases[i].from);
    }
}

static void test_names(void **state)
{
    static const struct {
        const char *name;
        bool word, repo;
    } cases[] = {
        {"gpt2", true, true},
        {"Qwen/Qwen3-0.6B", false, true},
        {"a/b/c", false, false},
        {"", false, false},
        {".", false, false},
        {"..", false, false},
        {"../x", false, false},
        {"a/..", false, false},
        {"/etc", false, false},
        {"a--b", true, false},
        {"a b", false, false},
        {"a/", false, false},
        {"tokenizer.json", true, true},
        {"caf\xc3\xa9", false, false},
        {"a\\b", false, false},
    };
    char word[HUB_WORD_MAX + 2];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(hub_word_is_valid(str_from(cases[i].name)), cases[i].word);
        assert_int_equal(hub_name_is_valid(str_from(cases[i].name)), cases[i].repo);
    }
    memset(word, 'a', sizeof(word));
    assert_true(hub_word_is_valid(str_slice(word, HUB_WORD_MAX)));
    assert_false(hub_word_is_valid(str_slice(word, HUB_WORD_MAX + 1)));
}

int main(void)
{
    return TEST_RUN(T(test_headers), T(test_names));
}
