/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/stop.h"

#include "lib/base/test.h"

/* Pushes texts as tokens 1, 2, 3 ...; returns how it ended, all text that was let out in @out. */
static enum stop_result run(const struct stop_rules *rules, const char *const *texts,
                            struct buf *out, size_t *ret_matched)
{
    AUTO(stop_done) struct stop s;
    enum stop_result r = STOP_GO_ON;

    stop_init(&s, rules);
    for (uint32_t id = 1; texts[id - 1] && r == STOP_GO_ON; id++) {
        r = stop_count(&s, id);
        if (r == STOP_GO_ON)
            r = stop_push(&s, str_from(texts[id - 1]), out);
    }
    if (r != STOP_AT_STRING)
        stop_flush(&s, out);
    *ret_matched = s.matched;
    return r;
}

static void test_strings(void **state)
{
    static const struct {
        const char *texts[6];
        const char *stops[3];
        enum stop_result want;
        const char *text, *text_included;
        size_t matched;
    } cases[] = {
        {{"hello ", "wor", "ld"}, {"xyz"}, STOP_GO_ON, "hello world", "hello world", 0},
        {{"hel", "lo wor", "ld"}, {"lo wor"}, STOP_AT_STRING, "hel", "hello wor", 0},
        {{"hel", "lo", " wo", "rld"}, {"lo world"}, STOP_AT_STRING, "hel", "hello world", 0},
        {{"ab", "ac", "ad"}, {"aba", "acad"}, STOP_AT_STRING, "", "aba", 0},
        {{"aab", "x"}, {"ab"}, STOP_AT_STRING, "a", "aab", 0},
        {{"a", "a", "a", "b"}, {"aab"}, STOP_AT_STRING, "a", "aaab", 0},
        {{"\nHuman:"}, {"Human:", "\n"}, STOP_AT_STRING, "\n", "\nHuman:", 0},
        {{"x\n\ny"}, {"zz", "\n\n"}, STOP_AT_STRING, "x", "x\n\n", 1},
        {{"ends in a st", ""}, {"stop"}, STOP_GO_ON, "ends in a st", "ends in a st", 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (int include = 0; include < 2; include++) {
            AUTO(buf_done) struct buf out = BUF_NULL;
            struct str stops[3];
            struct stop_rules rules = {.strings = stops, .include_string = include};
            size_t matched;

            while (rules.n_strings < 3 && cases[i].stops[rules.n_strings]) {
                stops[rules.n_strings] = str_from(cases[i].stops[rules.n_strings]);
                rules.n_strings++;
            }
            assert_int_equal(run(&rules, cases[i].texts, &out, &matched), cases[i].want);
            assert_string_equal(buf_cstr(&out), include ? cases[i].text_included : cases[i].text);
            assert_int_equal(matched, cases[i].matched);
        }
}

static void test_nothing_leaks(void **state)
{
    struct str stops[] = {STR("lo world")};
    struct stop_rules rules = {.strings = stops, .n_strings = 1};
    AUTO(buf_done) struct buf out = BUF_NULL;
    AUTO(stop_done) struct stop s;

    (void)state;
    stop_init(&s, &rules);
    assert_int_equal(stop_push(&s, STR("hello wor"), &out), STOP_GO_ON);
    assert_string_equal(buf_cstr(&out), "hel");
    assert_int_equal(stop_push(&s, STR("n"), &out), STOP_GO_ON); /* it was none */
    assert_string_equal(buf_cstr(&out), "hello worn");
}

/* What is sent in any case need not wait; a stop string is still found over tokens. */
static void test_included_text_is_not_held(void **state)
{
    struct str stops[] = {STR("lo world"), STR("wore")};
    struct stop_rules rules = {.strings = stops, .n_strings = 2, .include_string = true};
    AUTO(buf_done) struct buf out = BUF_NULL;
    AUTO(stop_done) struct stop s;

    (void)state;
    stop_init(&s, &rules);
    assert_int_equal(stop_push(&s, STR("hello "), &out), STOP_GO_ON);
    assert_string_equal(buf_cstr(&out), "hello ");
    assert_int_equal(stop_push(&s, STR("wor"), &out), STOP_GO_ON);
    assert_string_equal(buf_cstr(&out), "hello wor");
    assert_int_equal(stop_push(&s, STR("es"), &out), STOP_AT_STRING);
    assert_string_equal(buf_cstr(&out), "hello wore");
}

static void test_hidden_ids(void **state)
{
    uint32_t hidden[] = {9, 3};
    struct str stops[] = {STR("abc")};
    struct stop_rules rules = {
        .hidden_ids = hidden, .n_hidden_ids = 2, .strings = stops, .n_strings = 1};
    const char *const texts[] = {"x", "ab", "<eos>", "y", NULL};
    AUTO(buf_done) struct buf out = BUF_NULL;
    size_t matched;

    (void)state;
    assert_int_equal(run(&rules, texts, &out, &matched), STOP_AT_ID);
    assert_string_equal(buf_cstr(&out), "xab"); /* held text is let go, the id's is not */
}

static void test_min_tokens(void **state)
{
    uint32_t hidden[] = {2};
    struct str stops[] = {STR("a")};
    struct stop_rules rules = {
        .hidden_ids = hidden, .n_hidden_ids = 1, .strings = stops, .n_strings = 1, .min_tokens = 4};
    const char *const texts[] = {"a", "<eos>", "a", "xay", "z", NULL};
    AUTO(buf_done) struct buf out = BUF_NULL;
    size_t matched;

    (void)state;
    assert_int_equal(run(&rules, texts, &out, &matched), STOP_AT_STRING);
    assert_string_equal(buf_cstr(&out), "a<eos>ax");
}

/* Random texts over two letters, cut anywhere: same end and same text as with all of it at once. */
static void test_cuts_do_not_matter(void **state)
{
    unsigned seed = 1;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        char text[24], stop[2][4];
        struct str stops[] = {{stop[0], 1 + seed % 3}, {stop[1], 1 + seed / 3 % 3}};
        bool include = round % 2;
        struct stop_rules rules = {.strings = stops, .n_strings = 2, .include_string = include};
        AUTO(buf_done) struct buf out = BUF_NULL;
        AUTO(stop_done) struct stop s;
        enum stop_result r = STOP_GO_ON;
        const char *first = NULL;

        for (size_t i = 0; i < sizeof(text); i++)
            text[i] = (char)('a' + (seed = seed * 1103515245 + 12345) / 65536 % 2);
        for (int i = 0; i < 8; i++)
            stop[i / 4][i % 4] = (char)('a' + (seed = seed * 1103515245 + 12345) / 65536 % 2);
        stop_init(&s, &rules);
        for (size_t at = 0, n; at < sizeof(text) && r == STOP_GO_ON; at += n) {
            n = MIN(1 + (seed = seed * 1103515245 + 12345) / 65536 % 4, sizeof(text) - at);
            r = stop_push(&s, str_slice(text + at, n), &out);
        }
        stop_flush(&s, &out);
        for (int i = 0; i < 2; i++)
            if (memmem(text, sizeof(text), stops[i].ptr, stops[i].len))
                first = text;
        assert_int_equal(r, first ? STOP_AT_STRING : STOP_GO_ON);
        if (r == STOP_AT_STRING) { /* what is out is the text up to the match, no more */
            size_t at = out.len - (include ? stops[s.matched].len : 0);

            assert_memory_equal(buf_data(&out), text, out.len);
            assert_memory_equal(text + at, stops[s.matched].ptr, stops[s.matched].len);
        } else {
            assert_int_equal(out.len, sizeof(text));
        }
    }
}

int main(void)
{
    return TEST_RUN(T(test_strings), T(test_nothing_leaks), T(test_included_text_is_not_held),
                    T(test_hidden_ids), T(test_min_tokens), T(test_cuts_do_not_matter));
}
