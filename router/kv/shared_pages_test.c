/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/shared_pages.h"

#include <stdio.h>

#include "lib/base/digest.h"
#include "lib/base/test.h"

enum { N_TOKENS = 10, NAME_SIZE = 160 };

static const uint32_t TOKENS[N_TOKENS] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
/* sha256sum of 01 00 00 00 … 04 00 00 00; of that sum and 05 00 00 00 … 08 00 00 00. */
#define FIRST "cf97adeedb59e05bfd73a2b4c2a8885708c4f4f70c84c64b27120e72ab733b72"
#define SECOND "4ebfa8a1f3c341517621838c6e1b9aa350307e3f00b3cbd1a07ef740f54396d6"

/* Every name of a page, between spaces, with % for the hash. */
static void change_all(struct shared_pages *s, const char *hash, const char *names, bool put)
{
    struct str rest = str_from(names), word;
    bool more = true;

    while (more) {
        char name[NAME_SIZE];
        size_t at = 0;

        more = str_cut(&rest, ' ', &word);
        for (size_t i = 0; i < word.len; i++)
            at += (size_t)snprintf(name + at, sizeof(name) - at, word.ptr[i] == '%' ? "%s" : "%.1s",
                                   word.ptr[i] == '%' ? hash : &word.ptr[i]);
        if (put)
            assert_true(shared_pages_put(s, str_from(name)));
        else
            shared_pages_remove(s, str_from(name));
    }
}

static uint32_t found(struct shared_pages *s)
{
    struct shared_hits h;

    shared_pages_find(s, TOKENS, N_TOKENS, &h);
    return shared_hits_from(&h, 0);
}

/* A page is there when all of its names are, in each layout; and no longer when one is gone. */
static void a_page_is_there_with_all_its_objects(void **state)
{
    static const struct {
        struct shared_layout layout;
        const char *names, *one;
    } cases[] = {
        {{.page_size = 4, .ranks = 1}, "%_0_k %_0_v", "%_0_v"},
        {{.page_size = 4}, "%_0_k %_0_v", "%_0_k"},
        {{.page_size = 4, .ranks = 1, .prefix = "tag_m"}, "tag_m_%_0_k tag_m_%_0_v", "tag_m_%_0_k"},
        {{.page_size = 4, .ranks = 1, .prefix = ""}, "_%_0_k _%_0_v", "_%_0_v"},
        {{.page_size = 4, .ranks = 2}, "%_0_k %_0_v %_1_k %_1_v", "%_1_k"},
        {{.page_size = 4, .ranks = 2, .stages = 2},
         "%_0_0_k %_0_0_v %_1_0_k %_1_0_v %_0_1_k %_0_1_v %_1_1_k %_1_1_v",
         "%_1_0_v"},
        {{.page_size = 4, .ranks = 8, .mla = true}, "%__k", "%__k"},
        {{.page_size = 4, .ranks = 8, .stages = 2, .mla = true}, "%_0_k %_1_k", "%_1_k"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(shared_pages_free) struct shared_pages *s = shared_pages_new();

        assert_true(shared_pages_lay_out(s, &cases[i].layout));
        assert_int_equal(found(s), 0);
        change_all(s, FIRST, cases[i].names, true);
        if (found(s) != 1)
            fail_msg("case %zu: not found", i);
        change_all(s, FIRST, cases[i].one, false);
        if (found(s) != 0)
            fail_msg("case %zu: found without %s", i, cases[i].one);
    }
}

/* Pages behind a hole count too. */
static void pages_behind_a_hole_count(void **state)
{
    AUTO(shared_pages_free) struct shared_pages *s = shared_pages_new();
    struct shared_hits h;

    (void)state;
    assert_true(shared_pages_lay_out(s, &(struct shared_layout){.page_size = 4, .ranks = 1}));
    change_all(s, SECOND, "%_0_k %_0_v", true);
    shared_pages_find(s, TOKENS, N_TOKENS, &h);
    assert_int_equal(h.n_pages, 2);
    assert_int_equal(shared_hits_from(&h, 0), 1);
    assert_int_equal(shared_hits_from(&h, 1), 1);
    assert_int_equal(shared_hits_from(&h, 2), 0);
    assert_int_equal(shared_hits_from(&h, UINT32_MAX), 0);

    change_all(s, FIRST, "%_0_k %_0_v", true);
    shared_pages_find(s, TOKENS, N_TOKENS, &h);
    assert_int_equal(shared_hits_from(&h, 0), 2);
    assert_int_equal(shared_hits_from(&h, 1), 1);
    shared_pages_find(s, TOKENS, 3, &h);
    assert_int_equal(h.n_pages, 0);
    assert_int_equal(shared_hits_from(&h, 0), 0);
}

/* sha256sum of 0a 0b 0b 0c, 32 bits each: pairs, so that five tokens are two pages of two. */
static void eagle_pairs_tokens(void **state)
{
    static const uint32_t tokens[] = {10, 11, 12, 13, 14};
    AUTO(shared_pages_free) struct shared_pages *s = shared_pages_new();
    struct shared_hits h;

    (void)state;
    assert_true(shared_pages_lay_out(
        s, &(struct shared_layout){.page_size = 2, .ranks = 1, .eagle = true}));
    change_all(s, "4bde82677ba8b6de843da1713b58a439678ec01b642bbdcffec4acfa81b0ec8e", "%_0_k %_0_v",
               true);
    shared_pages_find(s, tokens, ARRAY_LEN(tokens), &h);
    assert_int_equal(h.n_pages, 2);
    assert_int_equal(shared_hits_from(&h, 0), 1);
    assert_int_equal(shared_hits_from(&h, 1), 0);
    shared_pages_find(s, tokens, 0, &h);
    assert_int_equal(h.n_pages, 0);
}

static void another_layout_forgets(void **state)
{
    static const struct shared_layout two = {.page_size = 4, .ranks = 2};
    AUTO(shared_pages_free) struct shared_pages *s = shared_pages_new();

    (void)state;
    assert_true(shared_pages_lay_out(s, &(struct shared_layout){.page_size = 4, .ranks = 1}));
    change_all(s, FIRST, "%_0_k %_0_v %_1_k %_1_v", true);
    assert_true(shared_pages_lay_out(s, &(struct shared_layout){.page_size = 4, .ranks = 1}));
    assert_int_equal(found(s), 1);
    assert_true(shared_pages_lay_out(s, &two));
    assert_int_equal(shared_pages_objects(s), 0);
    assert_int_equal(found(s), 0);
    shared_pages_clear(s);
}

/* Workers say what their layout is: nothing that they say takes much memory or time. */
static void everything_is_bounded(void **state)
{
    static const struct shared_layout bad[] = {
        {.page_size = 0, .ranks = 1},
        {.page_size = UINT32_MAX, .ranks = 1},
        {.page_size = 4, .ranks = UINT32_MAX},
        {.page_size = 4, .ranks = 1, .stages = UINT32_MAX},
        {.page_size = 4, .ranks = 2048, .stages = 2048},
    };
    AUTO(shared_pages_free) struct shared_pages *s = shared_pages_new();
    uint32_t i;

    (void)state;
    assert_int_equal(found(s), 0);
    for (i = 0; i < ARRAY_LEN(bad); i++) {
        assert_false(shared_pages_lay_out(s, &bad[i]));
        assert_int_equal(found(s), 0);
    }
    for (i = 0; i < SHARED_OBJECTS_MAX; i++)
        (void)shared_pages_put(s, str_slice((const char *)&i, sizeof(i)));
    assert_false(shared_pages_put(s, str_slice((const char *)&i, sizeof(i))));
    i = 7;
    assert_true(shared_pages_put(s, str_slice((const char *)&i, sizeof(i)))); /* known */
    shared_pages_remove(s, str_slice((const char *)&i, sizeof(i)));
    i = SHARED_OBJECTS_MAX;
    assert_true(shared_pages_put(s, str_slice((const char *)&i, sizeof(i))));
}

int main(void)
{
    return TEST_RUN(T(a_page_is_there_with_all_its_objects), T(pages_behind_a_hole_count),
                    T(eagle_pairs_tokens), T(another_layout_forgets), T(everything_is_bounded));
}
