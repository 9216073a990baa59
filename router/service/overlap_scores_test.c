/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/overlap_scores.h"

#include "lib/base/test.h"

static struct route_candidate ROW = {
    .worker = {7, 1}, .overlap_blocks = 2, .host_blocks = 3, .disk_blocks = 4, .shared_blocks = 5};
static const struct route_decision DECISION = {.candidates = &ROW, .n_candidates = 1};

static void put(struct buf *out, const struct overlap_shared *shared)
{
    struct json_put j = json_put_on(out);

    buf_clear(out);
    overlap_scores_put(&j, 16, 9, shared, &DECISION);
}

#define ROW_TEXT(shared)                                                                           \
    "{\"block_size\":16,\"num_blocks\":9,\"workers\":[{\"worker_id\":7,\"dp_rank\":1,"             \
    "\"device_blocks\":2,\"host_pinned_blocks\":5,\"disk_blocks\":9,"                              \
    "\"host_pinned_extension_blocks\":3,\"disk_extension_blocks\":4,"                              \
    "\"shared_beyond_device_blocks\":" shared "}],\"shared_cache\":"

static void tiers_add_up_without_a_shared_cache(void **state)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    (void)state;
    put(&out, &(struct overlap_shared){.enabled = false});
    assert_string_equal(
        buf_cstr(&out),
        ROW_TEXT(
            "null") "{\"enabled\":false,\"total_hit_blocks\":0,\"ranges\":[],\"error\":null}}");
}

static void ranges_are_runs_of_pages(void **state)
{
    static const struct {
        const char *there; /* a letter for each page */
        const char *total, *ranges;
    } cases[] = {
        {"", "0", "[]"},          {".....", "0", "[]"},
        {"xxxx", "4", "[[0,4]]"}, {"x..xx.x", "4", "[[0,1],[3,5],[6,7]]"},
        {".x.", "1", "[[1,2]]"},
    };
    AUTO(buf_done) struct buf out = BUF_NULL;
    AUTO(buf_done) struct buf want = BUF_NULL;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint32_t from[8] = {0}, n = (uint32_t)strlen(cases[i].there);
        struct shared_hits hits = {.n_pages = n, .from = from};

        for (uint32_t k = n; k-- > 0;)
            from[k] = from[k + 1] + (cases[i].there[k] == 'x');
        put(&out, &(struct overlap_shared){.enabled = true, .hits = &hits});
        buf_clear(&want);
        buf_printf(&want,
                   ROW_TEXT("5") "{\"enabled\":true,\"total_hit_blocks\":%s,\"ranges\":%s,"
                                 "\"error\":null}}",
                   cases[i].total, cases[i].ranges);
        assert_string_equal(buf_cstr(&out), buf_cstr(&want));
    }
}

int main(void)
{
    return TEST_RUN(T(tiers_add_up_without_a_shared_cache), T(ranges_are_runs_of_pages));
}
