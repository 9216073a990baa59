/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/policy.h"
#include "lib/base/test.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t pick(const struct policy *p, const struct route_candidate *c,
                   const struct route_score *s, size_t n, uint64_t random, bool *ret_tied)
{
    struct policy_inputs in = {.block_size = 4, .isl = 8, .random = random};
    struct policy_pick how;
    size_t at = policy_choose(p, c, s, n, &in, &how);

    *ret_tied = how.tied;
    return at;
}

static void ties_go_to_the_smaller_tree_then_to_chance(void **state)
{
    struct route_candidate c[3] = {{.tree_size = 9}, {.tree_size = 1}, {.tree_size = 1}};
    struct route_score s[3] = {{.logit = 2}, {.logit = 2}, {.logit = 2}};
    int seen[3] = {0};
    bool tied;

    (void)state;
    for (uint64_t i = 0; i < 1000; i++)
        seen[pick(&POLICY_DYNAMO, c, s, 3, i << 54, &tied)]++;
    assert_true(tied);
    assert_int_equal(seen[0], 0);
    assert_in_range(seen[1], 450, 550);
    s[0].logit = 1;
    assert_int_equal(pick(&POLICY_DYNAMO, c, s, 3, 0, &tied), 0);
    assert_false(tied);
}

/* p = softmax(-logit / (max - min) / T): for logits 0, 1 and T = 1 the first gets e / (e + 1). */
static void temperature_draws_from_softmax(void **state)
{
    struct policy_inputs in = {.block_size = 4, .isl = 8, .temperature = 1};
    struct route_candidate c[2] = {{.slot = 0}, {.slot = 1}};
    struct route_score s[2] = {{.logit = 0}, {.logit = 1}};
    struct policy_pick how;
    int first = 0;

    (void)state;
    for (uint64_t i = 0; i < 10000; i++) {
        in.random = i * (UINT64_MAX / 10000);
        first += policy_choose(&POLICY_DYNAMO, c, s, 2, &in, &how) == 0;
    }
    assert_in_range(first, 7300, 7321);
    s[1].logit = 0;
    in.random = UINT64_MAX;
    assert_int_equal(policy_choose(&POLICY_DYNAMO, c, s, 2, &in, &how), 1);
}

static void least_loaded_draws_among_the_least(void **state)
{
    struct route_candidate c[4] = {
        {.requests = 3}, {.requests = 1}, {.requests = 2}, {.requests = 1}};
    struct policy_inputs in = {.block_size = 4, .isl = 8};
    struct route_score s[4];
    int seen[4] = {0};
    bool tied;

    (void)state;
    POLICY_LEAST_LOADED.score(c, 4, &in, s);
    for (uint64_t i = 0; i < 1000; i++)
        seen[pick(&POLICY_LEAST_LOADED, c, s, 4, i << 54, &tied)]++;
    assert_int_equal(seen[0] + seen[2], 0);
    assert_in_range(seen[1], 450, 550);
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

/* Of two different ones the less loaded: the most loaded of four never, the least loaded in half of
 * the draws. */
static void power_of_two_takes_the_less_loaded_of_two(void **state)
{
    struct route_candidate c[4] = {
        {.requests = 3}, {.requests = 1}, {.requests = 2}, {.requests = 0}};
    struct policy_inputs in = {.block_size = 4, .isl = 8};
    struct route_score s[4];
    int seen[4] = {0};
    bool tied;

    (void)state;
    POLICY_POWER_OF_TWO.score(c, 4, &in, s);
    for (uint64_t i = 1; i <= 12000; i++)
        seen[pick(&POLICY_POWER_OF_TWO, c, s, 4, mix(i * UINT64_C(0x9E3779B97F4A7C15)), &tied)]++;
    assert_int_equal(seen[0], 0);
    assert_in_range(seen[2], 1800, 2200);
    assert_in_range(seen[1], 3700, 4300);
    assert_in_range(seen[3], 5700, 6300);
    assert_int_equal(pick(&POLICY_POWER_OF_TWO, c, s, 1, UINT64_MAX, &tied), 0);
}

/* The turn of a fleet of two CPUs and an accelerator: 'c' or 'a'. */
static char turn(struct policy_inputs in)
{
    struct route_candidate c[3] = {
        {.on_cpu = true, .requests = 5}, {.requests = 90}, {.on_cpu = true}};
    struct route_score s[3];
    bool tied;
    size_t at;

    POLICY_DEVICE_AWARE.score(c, 3, &in, s);
    at = pick(&POLICY_DEVICE_AWARE, c, s, 3, 0, &tied);
    assert_false(tied);
    assert_int_not_equal(at, 0); /* the other CPU has less to do */
    return at == 1 ? 'a' : 'c';
}

/* CPUs while they run less than accelerator requests * CPUs / (ratio * accelerators), rounded down. */
static void cpus_take_their_share_of_what_accelerators_run(void **state)
{
    struct policy_inputs in = {.cpus = 2, .accelerators = 1, .accelerator_ratio = 8};

    (void)state;
    assert_int_equal(turn(in), 'a');
    in.accelerator_requests = 3;
    assert_int_equal(turn(in), 'a');
    in.accelerator_requests = 4;
    assert_int_equal(turn(in), 'c');
    in.cpu_requests = 1;
    assert_int_equal(turn(in), 'a');
    in.accelerator_requests = 8;
    assert_int_equal(turn(in), 'c');
    in.accelerators = 4;
    in.accelerator_requests = 31;
    assert_int_equal(turn(in), 'a');
    in.accelerator_requests = 32;
    assert_int_equal(turn(in), 'c');
    in.accelerator_ratio = UINT64_MAX;
    in.cpu_requests = 0;
    assert_int_equal(turn(in), 'a');
    in.accelerator_ratio = 0; /* of a record that was made up */
    assert_int_equal(turn(in), 'c');
}

/* Of one kind alone the least loaded: what a record tells of the other kind does not matter. */
static void without_cpus_or_accelerators_the_least_loaded_is_chosen(void **state)
{
    struct route_candidate c[2] = {{.requests = 2}, {.requests = 1}};
    struct policy_inputs in = {.accelerators = 2, .accelerator_ratio = 8};
    struct route_score s[2];
    bool tied;

    (void)state;
    POLICY_DEVICE_AWARE.score(c, 2, &in, s);
    assert_int_equal(pick(&POLICY_DEVICE_AWARE, c, s, 2, 0, &tied), 1);
    assert_true(s[0].logit == 2 && s[1].logit == 1);
    c[0].on_cpu = c[1].on_cpu = true;
    in = (struct policy_inputs){.cpus = 2, .accelerator_ratio = 8, .cpu_requests = 3};
    POLICY_DEVICE_AWARE.score(c, 2, &in, s);
    assert_true(s[0].logit == 2 && s[1].logit == 1);
}

/* Requests and cached blocks of two workers, with a prompt of ten blocks; 2: by chance. */
static size_t tiers_pick(const uint32_t requests[2], const uint32_t cached[2], uint32_t isl)
{
    struct route_candidate c[2] = {
        {.requests = requests[0], .overlap_blocks = cached[0], .confidence = 1},
        {.requests = requests[1], .overlap_blocks = cached[1], .confidence = 1}};
    struct policy_inputs in = {.block_size = 16,
                               .isl = isl,
                               .min_requests = MIN(requests[0], requests[1]),
                               .max_requests = MAX(requests[0], requests[1]),
                               .most_cached = MAX(cached[0], cached[1]),
                               .two_tier = TWO_TIER_DEFAULTS};
    struct route_score s[2];
    bool tied;
    size_t at;

    POLICY_TWO_TIER.score(c, 2, &in, s);
    at = pick(&POLICY_TWO_TIER, c, s, 2, 0, &tied);
    return tied ? 2 : at;
}

#define TIERS(requests_0, requests_1, cached_0, cached_1, isl)                                     \
    tiers_pick((const uint32_t[]){requests_0, requests_1}, (const uint32_t[]){cached_0, cached_1}, \
               isl)

static void caches_count_from_a_share_of_the_prompt_on(void **state)
{
    (void)state;
    assert_int_equal(TIERS(0, 4, 0, 6, 160), 1);
    assert_int_equal(TIERS(0, 4, 0, 5, 160), 0); /* just half of it is not enough */
    assert_int_equal(TIERS(0, 4, 0, 5, 161), 0);
    assert_int_equal(TIERS(0, 4, 0, 5, 144), 1);
    assert_int_equal(TIERS(3, 4, 6, 6, 160), 0); /* of those that hold the most */
    assert_int_equal(TIERS(4, 4, 6, 6, 160), 2);
    assert_int_equal(TIERS(5, 4, 5, 6, 160), 1);
}

static void very_uneven_load_counts_before_caches(void **state)
{
    (void)state;
    assert_int_equal(TIERS(0, 32, 0, 10, 160), 1); /* not yet: more than 32 */
    assert_int_equal(TIERS(0, 33, 0, 10, 160), 0);
    assert_int_equal(TIERS(640, 704, 0, 10, 160), 1); /* nor more than 1.1 times as many */
    assert_int_equal(TIERS(640, 705, 0, 10, 160), 0);
}

/* Of three workers with these tokens to compute, these blocks in use with the prompt's, and these ids. */
static size_t agents_pick(const uint64_t prefill[3], const uint64_t blocks[3],
                          const uint64_t ids[3])
{
    struct route_candidate c[3];
    struct policy_inputs in = {
        .block_size = 16, .isl = 100, .random = mix(prefill[0]), .temperature = 1};
    struct route_score s[3];
    bool tied;

    for (size_t i = 0; i < 3; i++)
        c[i] = (struct route_candidate){.worker = {ids[i], 0},
                                        .prefill_tokens = prefill[i],
                                        .active_blocks = blocks[i] / 2,
                                        .new_blocks = (uint32_t)(blocks[i] - blocks[i] / 2),
                                        .overlap_blocks = (uint32_t)(100 * i),
                                        .preference = (double)i,
                                        .confidence = 1};
    POLICY_THUNDERAGENT.score(c, 3, &in, s);
    return pick(&POLICY_THUNDERAGENT, c, s, 3, mix(prefill[0]), &tied);
}

#define AGENTS(p0, p1, p2, b0, b1, b2)                                                             \
    agents_pick((const uint64_t[]){p0, p1, p2}, (const uint64_t[]){b0, b1, b2},                    \
                (const uint64_t[]){7, 9, 3})

static void thunderagent_counts_tokens_and_takes_the_lowest_id(void **state)
{
    (void)state;
    assert_int_equal(AGENTS(15, 16, 17, 1, 1, 1), 0);
    assert_int_equal(AGENTS(33, 16, 0, 0, 1, 3), 1);
    assert_int_equal(AGENTS(49, 48, 0, 0, 0, 2), 2);
    assert_int_equal(AGENTS(16, 0, 32, 1, 2, 0), 2); /* all as good: the id */
    assert_int_equal(AGENTS(16, 0, 33, 1, 2, 0), 0);
}

/* --- formula lines ----------------------------------------------------------------------------
 */

static uint64_t rng_state = 7;

static uint64_t rng(uint64_t below)
{
    return mix(rng_state++ * UINT64_C(0x9E3779B97F4A7C15)) % below;
}

static void random_inputs(struct policy_inputs *in, struct route_candidate *c)
{
    *in = (struct policy_inputs){
        .block_size = 16,
        .isl = (uint32_t)(1 + rng(9000)),
        .random = mix(rng_state),
        .mean_requests = (double)rng(600) / 7,
        .min_prefill_tokens = rng(100),
        .seconds_per_token = 1e-6 * (double)(1 + rng(300)),
        .overlap_weight = (double)rng(5) / 4,
        .overlap_credit = (double)rng(5) / 4,
        .credit_decay = (double)rng(3) / 2,
        .host_weight = 0.75,
        .disk_weight = 0.25,
        .prefill_load_scale = (double)rng(5) / 4,
        .active_request_weight = (double)rng(3) / 2,
        .track_prefill_tokens = rng(4) > 0,
    };
    *c = (struct route_candidate){
        .overlap_blocks = (uint32_t)rng(in->isl / 16 + 1),
        .host_blocks = (uint32_t)rng(9),
        .disk_blocks = (uint32_t)rng(9),
        .new_blocks = (uint32_t)rng(500),
        .requests = (uint32_t)rng(90),
        .tree_size = rng(10),
        .prefill_tokens = rng(20000),
        .queued_tokens = rng(20000),
        .active_blocks = rng(4000),
        .max_num_seqs = rng(2) ? 64 : 0,
        .preference = rng(3) ? 0 : (double)rng(9) / 3 - 1,
        .confidence = rng(3) ? 1 : 0.5,
        .slowness = rng(3) ? 1 : 1.3 + (double)rng(9) / 7,
        .lifetime = 1 + (double)rng(99) / 7,
    };
}

/* A number of the line behind @mark; whoever reads the log does the same by hand. */
static double number_after(const char *line, const char *mark)
{
    const char *at = strstr(line, mark);

    if (!at)
        fail_msg("no \"%s\" in: %s", mark, line);
    return strtod(at + strlen(mark), NULL);
}

/* Splits "… = a * b + c" behind the last " = " into its numbers. */
static size_t numbers_of(const char *line, double *ret, size_t cap)
{
    const char *at = line;
    size_t n = 0;

    for (const char *next; (next = strstr(at, " = ")) != NULL;)
        at = next + 3;
    while (*at && n < cap) {
        char *end;

        ret[n] = strtod(at, &end);
        n += end != at;
        at = end != at ? end : at + 1;
    }
    return n;
}

static double recompute(const struct policy *p, const char *line)
{
    double x[8], sum, factor = 1;
    size_t n = numbers_of(line, x, ARRAY_LEN(x));

    if (strstr(line, "for preferred taints"))
        factor = number_after(line, ", times ");
    assert_true(n >= 3);
    if (p == &POLICY_THUNDERAGENT)
        sum = x[0] + x[1] * x[2];
    else if (p == &POLICY_TWO_TIER || p == &POLICY_DYNAMO)
        sum = x[0] * x[1] + x[2];
    else if (p == &POLICY_MARGINAL) /* slowness * (P + n * (1 + 0.1 * B)) + slot + pile-up */
        sum = x[0] * (x[1] + x[2] * (x[3] + x[4] * x[5])) + x[6] + x[7];
    else if (strstr(line, "max(0, decode_blocks"))
        sum = MAX(0, x[1] - x[2]) + x[3];
    else
        sum = x[0] * x[1] + x[2] + x[3];
    return sum * factor;
}

static void numbers_of_a_line_compute_to_its_score(void **state)
{
    static const struct policy *const all[] = {&POLICY_DYNAMO, &POLICY_DYNAMO_1, &POLICY_MARGINAL,
                                               &POLICY_TWO_TIER, &POLICY_THUNDERAGENT};

    (void)state;
    for (int i = 0; i < 3000; i++) {
        const struct policy *p = all[(size_t)i % ARRAY_LEN(all)];
        AUTO(buf_done) struct buf line = BUF_NULL;
        struct route_candidate c;
        struct policy_inputs in;
        struct route_score s;
        double said, found;

        random_inputs(&in, &c);
        p->score(&c, 1, &in, &s);
        p->put(&c, &s, &in, &line);
        said = number_after(buf_cstr(&line), "cached blocks: ");
        found = recompute(p, buf_cstr(&line));
        if (!(fabs(said - s.logit) <= 0.0006 && fabs(found - said) <= 0.02 + 1e-6 * fabs(said)))
            fail_msg("%f is not %f: %s", found, said, buf_cstr(&line));
    }
}

static void lines_of_each_policy(void **state)
{
    struct policy_inputs in = {.block_size = 16,
                               .isl = 100,
                               .mean_requests = 2,
                               .seconds_per_token = 1e-4,
                               .overlap_weight = 1,
                               .overlap_credit = 1,
                               .credit_decay = 1,
                               .host_weight = 0.75,
                               .prefill_load_scale = 1,
                               .active_request_weight = 0.5,
                               .track_prefill_tokens = true};
    struct route_candidate c = {.worker = {7, 1},
                                .overlap_blocks = 2,
                                .host_blocks = 1,
                                .new_blocks = 4,
                                .requests = 5,
                                .prefill_tokens = 96,
                                .queued_tokens = 97,
                                .active_blocks = 10,
                                .max_num_seqs = 8,
                                .confidence = 1,
                                .slowness = 1,
                                .lifetime = 8};
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct route_score s;

    (void)state;
    POLICY_DYNAMO_1.score(&c, 1, &in, &s);
    POLICY_DYNAMO_1.put(&c, &s, &in, &out);
    /* credit 2 / (1 + 6 / 7) + 0.75 */
    assert_string_equal(
        buf_cstr(&out),
        "Formula for worker_id=7 dp_rank=1 with 2.75 effective cached blocks: 26.923 = "
        "prefill_load_scale * adjusted_prefill_blocks + decode_blocks + active_request_cost_blocks "
        "= 1.000 * 10.423 + 14.000 + 2.500 (raw_prefill_blocks: 12.250, overlap_credit_blocks: "
        "1.827, overlap_credit_decay: 0.538)");
    buf_clear(&out);
    POLICY_MARGINAL.score(&c, 1, &in, &s);
    POLICY_MARGINAL.put(&c, &s, &in, &out);
    /* slot 8 s / 8 / 1e-4 * 2 * ln(1 + e^-1); pile-up 16000 * (3 / sqrt 3 - 0.5)^2 */
    assert_string_equal(
        buf_cstr(&out),
        "Formula for worker_id=7 dp_rank=1 with 2 cached blocks: 30751.421 = slowness * "
        "(queued_tokens + new_tokens * (1 + 0.1 * requests)) + slot_price + pile_up_price = 1 * "
        "(97 + 68 * (1 + 0.1 * 5)) + 6265.234 + 24287.187");
}

static void who_ignores_the_shared_cache_is_named(void **state)
{
    static const struct {
        struct route_conf conf;
        const char *who;
    } cases[] = {
        {{.mode = ROUTE_KV, .policy = ROUTE_POLICY_DYNAMO_1}, NULL},
        {{.mode = ROUTE_KV, .policy = ROUTE_POLICY_DYNAMO}, "dynamo"},
        {{.mode = ROUTE_KV, .policy = ROUTE_POLICY_MARGINAL}, "marginal"},
        {{.mode = ROUTE_KV, .policy = ROUTE_POLICY_DYNAMO_1, .load_aware = true}, "load-aware"},
        {{.mode = ROUTE_RANDOM, .policy = ROUTE_POLICY_DYNAMO_1}, "random"},
        {{.mode = ROUTE_KV, .shadows = 1 << 5}, NULL}, /* dynamo-1.x */
        {{.mode = ROUTE_KV, .shadows = 1 << 4}, "dynamo"},
        {{.mode = ROUTE_RANDOM, .shadows = 1 << 5}, "random"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct route_conf conf = cases[i].conf;
        const char *who;

        assert_null(policy_ignores_shared(&conf));
        conf.shared_cache = SHARED_CACHE_HICACHE;
        who = policy_ignores_shared(&conf);
        if (!who != !cases[i].who || (who && strcmp(who, cases[i].who) != 0))
            fail_msg("case %zu: %s", i, who ? who : "nobody");
    }
}

/* 328 tokens, of which the shared cache holds 10 blocks more than the worker: 1.6.1's scores. */
static void the_shared_cache_counts_as_in_1_6(void **state)
{
    static const struct {
        double weight, credit, scale, logit;
        bool no_prefill;
    } cases[] = {
        {0, 1, 1, 40.5, false},     {0.5, 1, 1, 35.5, false}, {0.25, 1, 1, 38, false},
        {0.5, 0, 1, 40.5, false},   {0.5, 1, 2, 51, false},   {0.5, 1, 1, 15, true},
        {0.5, 0.1, 1, 35.5, false},
    };
    struct route_candidate c = {.shared_blocks = 10, .new_blocks = 20, .confidence = 1};
    struct route_score s;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct policy_inputs in = {.block_size = 16,
                                         .isl = 328,
                                         .shared_weight = cases[i].weight,
                                         .overlap_credit = cases[i].credit,
                                         .prefill_load_scale = cases[i].scale,
                                         .track_prefill_tokens = !cases[i].no_prefill};
        AUTO(buf_done) struct buf line = BUF_NULL;

        POLICY_DYNAMO_1.score(&c, 1, &in, &s);
        if (s.logit != cases[i].logit)
            fail_msg("case %zu: %f", i, s.logit);
        POLICY_DYNAMO_1.put(&c, &s, &in, &line);
        assert_int_equal(strstr(buf_cstr(&line), "in the shared cache") != NULL,
                         cases[i].weight > 0);
        assert_int_equal(policy_credited_tokens(&POLICY_DYNAMO_1, &c, &in), 0);
        POLICY_DYNAMO.score(&c, 1, &in, &s);
        assert_float_equal(s.logit, 20, 0);
    }
}

/* All chance comes from inputs.random: the same 300 decisions have the same picks and the same bits
 * of scores on every machine. */
static void a_seeded_run_is_the_same_everywhere(void **state)
{
    static const struct policy *const all[] = {&POLICY_DYNAMO,       &POLICY_DYNAMO_1,
                                               &POLICY_MARGINAL,     &POLICY_POWER_OF_TWO,
                                               &POLICY_LEAST_LOADED, &POLICY_RANDOM};
    uint64_t sum = 0;

    (void)state;
    rng_state = 1;
    for (int i = 0; i < 3000; i++) {
        const struct policy *p = all[(size_t)i % ARRAY_LEN(all)];
        struct route_candidate c[16];
        struct route_score s[16] = {{.logit = 0}};
        struct policy_inputs in;
        struct policy_pick how;

        for (size_t k = 0; k < 16; k++)
            random_inputs(&in, &c[k]);
        in.temperature = rng(2) ? 0 : 0.5;
        if (p->score)
            p->score(c, 16, &in, s);
        for (size_t k = 0; k < 16; k++) {
            uint64_t bits;

            memcpy(&bits, &s[k].logit, sizeof(bits));
            sum = mix(sum + bits);
        }
        sum = mix(sum + policy_choose(p, c, s, 16, &in, &how));
    }
    if (sum != UINT64_C(11450678418420133041))
        fail_msg("%" PRIu64, sum);
}

static void policies_are_found_by_their_words(void **state)
{
    (void)state;
    for (size_t i = 0; ROUTE_MODE_WORDS[i]; i++) {
        const struct policy *p = policy_find(str_from(ROUTE_MODE_WORDS[i]));

        if (i == ROUTE_KV)
            assert_null(p);
        else
            assert_string_equal(p->name, ROUTE_MODE_WORDS[i]);
    }
    for (size_t i = 0; ROUTE_POLICY_WORDS[i]; i++) {
        struct route_conf conf = {.mode = ROUTE_KV, .policy = (int)i};

        assert_string_equal(policy_of(&conf)->name, ROUTE_POLICY_WORDS[i]);
        assert_ptr_equal(policy_find(str_from(ROUTE_POLICY_WORDS[i])), policy_of(&conf));
    }
}

int main(void)
{
    return TEST_RUN(
        T(ties_go_to_the_smaller_tree_then_to_chance), T(temperature_draws_from_softmax),
        T(least_loaded_draws_among_the_least), T(power_of_two_takes_the_less_loaded_of_two),
        T(cpus_take_their_share_of_what_accelerators_run),
        T(without_cpus_or_accelerators_the_least_loaded_is_chosen),
        T(caches_count_from_a_share_of_the_prompt_on), T(very_uneven_load_counts_before_caches),
        T(thunderagent_counts_tokens_and_takes_the_lowest_id),
        T(numbers_of_a_line_compute_to_its_score), T(lines_of_each_policy),
        T(the_shared_cache_counts_as_in_1_6), T(who_ignores_the_shared_cache_is_named),
        T(a_seeded_run_is_the_same_everywhere), T(policies_are_found_by_their_words));
}
