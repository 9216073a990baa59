/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy marginal against the simulator in which it was found: everything that the simulator's
 * router learned and decided in a run is done again here, and must come out the same. The first
 * lines of one run are kept with the test; the simulator itself is compiled when it is there.
 */
#include "lib/base/test.h"
#include "router/sched/learned.h"
#include "router/sched/policy.h"

#include <math.h>
#include <sys/wait.h>

enum { WORKERS_MAX = 64 };

static const char VECTORS[] =
#include "router/sched/policy_sim_vectors.inc"
    ;

struct replay {
    struct learned learned;
    size_t n_decisions, n_observed, n_slow, n_near_full;
};

/* The next number of the line. */
static double number(const char **at)
{
    char *end;
    double x = strtod(*at, &end);

    if (end == *at)
        fail_msg("no number at: %.40s", *at);
    *at = end;
    return x;
}

static uint64_t whole(const char **at)
{
    size_t n = strcspn(*at + 1, " \n");
    uint64_t x = 0;

    if (!str_parse_u64((struct str){*at + 1, n}, &x))
        fail_msg("no whole number at: %.40s", *at);
    *at += 1 + n;
    return x;
}

static void assert_near(const char *what, double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * MAX(1, fabs(want))))
        fail_msg("%s: %.17g here, %.17g there", what, got, want);
}

/* One worker of a decision; false when it is down. */
static bool take_worker(struct replay *r, const char **at, uint32_t slot, uint32_t block_size,
                        struct route_candidate *ret, double *ret_score)
{
    bool up = whole(at) == 1;
    uint64_t cached;

    *ret = (struct route_candidate){.slot = slot,
                                    .confidence = 1,
                                    .slowness = learned_slowness(&r->learned, slot),
                                    .lifetime = learned_lifetime(&r->learned, slot)};
    ret->max_num_seqs = whole(at);
    ret->queued_tokens = whole(at);
    ret->requests = (uint32_t)whole(at);
    cached = whole(at); /* at most the prompt less one token */
    ret->overlap_blocks = (uint32_t)((cached + block_size - 1) / block_size);
    assert_near("slowness", ret->slowness, number(at));
    assert_near("lifetime", ret->lifetime, number(at));
    *ret_score = number(at);
    r->n_slow += ret->slowness != 1;
    r->n_near_full += ret->requests + 1 >= ret->max_num_seqs;
    return up;
}

static void decide(struct replay *r, const char *at)
{
    struct route_candidate c[WORKERS_MAX];
    struct route_score scores[WORKERS_MAX];
    double told[WORKERS_MAX];
    struct policy_inputs in = {.overlap_weight = 1, .track_prefill_tokens = true};
    size_t n = 0, n_workers;
    uint64_t pick, requests = 0;
    struct policy_pick how;

    in.block_size = (uint32_t)whole(&at);
    in.isl = (uint32_t)whole(&at);
    in.seconds_per_token = learned_seconds_per_token(&r->learned);
    assert_near("seconds per token", in.seconds_per_token, number(&at));
    in.random = whole(&at);
    pick = whole(&at);
    n_workers = whole(&at);
    for (uint32_t slot = 0; slot < n_workers; slot++)
        n += take_worker(r, &at, slot, in.block_size, &c[n], &told[n]);
    for (size_t i = 0; i < n; i++)
        requests += c[i].requests;
    in.mean_requests = (double)requests / (double)n;

    POLICY_MARGINAL.score(c, n, &in, scores);
    for (size_t i = 0; i < n; i++)
        assert_near("score", scores[i].logit, told[i]);
    assert_int_equal(c[policy_choose(&POLICY_MARGINAL, c, scores, n, &in, &how)].slot, pick);
    r->n_decisions++;
}

static void take_line(struct replay *r, const char *line)
{
    const char *at = line + 1;
    uint32_t slot;
    double x;

    if (line[0] == 'D') {
        decide(r, at);
        return;
    }
    slot = (uint32_t)whole(&at);
    x = number(&at);
    if (line[0] == 'F')
        learned_first_token(&r->learned, slot, x, number(&at));
    else
        learned_end(&r->learned, slot, x);
    r->n_observed++;
}

static void the_first_lines_of_a_run_come_out_the_same(void **state)
{
    struct replay r = {.n_decisions = 0};
    struct str rest = STR(VECTORS), line;

    (void)state;
    learned_init(&r.learned);
    while (rest.len && str_cut(&rest, '\n', &line))
        take_line(&r, line.ptr);
    learned_done(&r.learned);
    assert_int_equal(r.n_decisions, 54);
    assert_int_equal(r.n_observed, 96);
}

/* --- the simulator itself ----------------------------------------------------------------------
 */

static char folder[64]; /* where it was compiled; "" when it is not there */

static int shell(const char *command)
{
    pid_t child = fork();
    int status = 1;

    if (child == 0) {
        (void)execlp("sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return child > 0 && waitpid(child, &status, 0) == child ? status : 1;
}

static int compile(void **state)
{
    const char *shared = getenv("COMMUTATOR_SHARED") ? getenv("COMMUTATOR_SHARED") : "../shared";
    AUTO(mem_free) char *source = xasprintf("%s/tools/policy/sim.cpp", shared);
    AUTO(mem_free) char *command = NULL;

    (void)state;
    if (access(source, R_OK) != 0)
        return 0;
    (void)snprintf(folder, sizeof(folder), "/tmp/policy_sim_XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    command = xasprintf("sed -f router/sched/policy_sim.sed '%s' >%s/sim.cpp && "
                        "${CXX:-g++} -std=c++17 -O1 -o %s/sim %s/sim.cpp",
                        source, folder, folder, folder);
    return shell(command);
}

static int clean(void **state)
{
    AUTO(mem_free) char *command = xasprintf("rm -rf '%s'", folder);

    (void)state;
    return folder[0] ? shell(command) : 0;
}

/* Replays what the simulator told; all zero when it is not there. */
static struct replay run(const char *arguments)
{
    struct replay r = {.n_decisions = 0};
    AUTO(mem_free) char *command = NULL, *path = NULL;
    static char line[1 << 16];
    FILE *told;

    if (!test_shared())
        return r;
    path = xasprintf("%s/told", folder);
    command = xasprintf("%s/sim pol=marginal %s 2>%s >/dev/null", folder, arguments, path);
    assert_int_equal(shell(command), 0);
    told = fopen(path, "r");
    assert_non_null(told);
    learned_init(&r.learned);
    while (fgets(line, sizeof(line), told))
        take_line(&r, line);
    learned_done(&r.learned);
    assert_int_equal(fclose(told), 0);
    return r;
}

static void equal_workers_below_their_slots(void **state)
{
    struct replay r = run("wl=W3 conc=60,120 warm=5 meas=60 seed=1");

    (void)state;
    assert_true(r.n_decisions > 200 && r.n_slow == 0);
}

static void equal_workers_at_their_slots(void **state)
{
    struct replay r = run("wl=W3 conc=180,192 warm=5 meas=60 seed=2");

    (void)state;
    assert_true(r.n_decisions > 500 && r.n_near_full > 100);
}

static void one_slow_worker(void **state)
{
    struct replay r = run("wl=W3 conc=120,180 warm=5 meas=60 seed=3 slow=0.4");

    (void)state;
    assert_true(r.n_decisions > 500 && r.n_slow > 100);
}

static void a_worker_leaves_and_comes_back(void **state)
{
    struct replay r = run("wl=W1 conc=60,100 warm=5 meas=60 seed=4 restart=20 downfor=20");

    (void)state;
    assert_true(r.n_decisions > 300);
}

static void many_workers_without_reuse(void **state)
{
    struct replay r = run("wl=WS rate=150 N=60 warm=2 meas=20 seed=5");

    (void)state;
    assert_true(r.n_decisions > 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(the_first_lines_of_a_run_come_out_the_same),
        T(equal_workers_below_their_slots),
        T(equal_workers_at_their_slots),
        T(one_slow_worker),
        T(a_worker_leaves_and_comes_back),
        T(many_workers_without_reuse),
    };

    return cmocka_run_group_tests_name(__FILE__, tests, compile, clean);
}
