/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/load/bench_conf.h"

#include <errno.h>
#include <string.h>

#define AT(member) offsetof(struct bench_conf, member)
/* clang-format off */
#define COMMON_FIELDS \
    {"url", NULL, "DYNAMO_URL", NULL, CONF_STR, AT(url), "http://127.0.0.1:8000", 0, 0, NULL, \
     "server, without path"}, \
    {"model", NULL, NULL, NULL, CONF_STR, AT(model), NULL, 0, 0, NULL, "model to ask"}, \
    {"label", NULL, NULL, NULL, CONF_STR, AT(label), NULL, 0, 0, NULL, "name of the run in tables"}, \
    {"json", NULL, NULL, NULL, CONF_STR, AT(json), NULL, 0, 0, NULL, "file for the result as JSON"}, \
    {"timeline", NULL, NULL, NULL, CONF_STR, AT(timeline), NULL, 0, 0, NULL, \
     "file for one JSON line per request"}, \
    {"timeout", NULL, NULL, NULL, CONF_DURATION, AT(timeout_ms), "120", 0, 0, NULL, "of one request"}, \
    {"duration", NULL, NULL, NULL, CONF_DURATION, AT(duration_ms), "0", 0, 0, NULL, \
     "begin nothing after so long; 0 = no limit"}, \
    {"ignore-eos", NULL, NULL, NULL, CONF_BOOL, AT(ignore_eos), "false", 0, 0, NULL, \
     "ask for answers of full length"}, \
    {"worker-ids", NULL, NULL, NULL, CONF_BOOL, AT(worker_ids), "false", 0, 0, NULL, \
     "ask which worker answered (nvext), for the timeline"}

static const struct conf_field LOAD_FIELDS[] = {
    COMMON_FIELDS,
    {"seed", NULL, NULL, NULL, CONF_U64, AT(seed), "1", 0, 0, NULL, "of the conversations"},
    {"concurrency", NULL, NULL, NULL, CONF_U64, AT(concurrency), "16", 1, 10000, NULL,
     "conversations at once"},
    {"conversations", NULL, NULL, NULL, CONF_U64, AT(conversations), "0", 0, 0, NULL,
     "to hold; 0 = until --duration is over"},
    {"starters", NULL, NULL, NULL, CONF_U64, AT(n_starters), "10", 1, 10000, NULL,
     "texts that conversations begin with"},
    {"starter-tokens", NULL, NULL, NULL, CONF_U64, AT(starter_tokens), "3500", 1, 1000000, NULL,
     "about so long"},
    {"starter-seed", NULL, NULL, NULL, CONF_U64, AT(starter_seed), "1", 0, 0, NULL,
     "of the starters; the same for all --seed"},
    {"question-tokens", NULL, NULL, NULL, CONF_U64, AT(question_tokens), "90", 1, 100000, NULL,
     "of each further turn, about"},
    {"turns", NULL, NULL, NULL, CONF_STR, AT(turns_text), "3-5", 0, 0, NULL, "of a conversation, N or N-M"},
    {"output-tokens", NULL, NULL, NULL, CONF_STR, AT(output_text), "100-200", 0, 0, NULL,
     "asked for in each turn, N or N-M"},
    {"think-time", NULL, NULL, NULL, CONF_DURATION, AT(think_ms), "0", 0, 0, NULL, "between turns"},
    {"tokens-per-word", NULL, NULL, NULL, CONF_F64, AT(tokens_per_word), "1.2", 0.1, 100, NULL,
     "of the model's tokenizer, for the lengths of texts"},
};

static const struct conf_field TRACE_FIELDS[] = {
    COMMON_FIELDS,
    {"file", NULL, NULL, NULL, CONF_STR, AT(file), NULL, 0, 0, NULL,
     "trace in Mooncake's format; - = standard input"},
    {"speed", NULL, NULL, NULL, CONF_F64, AT(speed), "1", 0.001, 1e6, NULL, "2 = twice as fast"},
    {"requests", NULL, NULL, NULL, CONF_U64, AT(requests_max), "0", 0, 0, NULL, "only the first N"},
    {"max-in-flight", NULL, NULL, NULL, CONF_U64, AT(in_flight_max), "1024", 1, 100000, NULL,
     "requests under way at most"},
    {"max-input", NULL, NULL, NULL, CONF_U64, AT(input_max), "0", 0, 0, NULL,
     "leave out longer prompts; 0 = none"},
    {"token-ids", NULL, NULL, NULL, CONF_STR, AT(token_text), "256-1999", 0, 0, NULL,
     "range of ids that prompts are made of"},
};
static const struct conf_field DECISION_FIELDS[] = {
    {"replay", NULL, NULL, NULL, CONF_STR, AT(replay), NULL, 0, 0, NULL,
     "file of decisions, as GET /decisions or --record-decisions gives them; - = standard input"},
    {"policy", NULL, NULL, NULL, CONF_STR, AT(policy), NULL, 0, 0, NULL,
     "ask this policy instead of the recorded one; of more than 32 workers it sees those recorded"},
    {"overlap-score-weight", NULL, NULL, NULL, CONF_F64, AT(overlap_weight), NULL, 0, 0, NULL,
     "instead of the recorded one"},
    {"temperature", NULL, NULL, NULL, CONF_F64, AT(temperature), NULL, 0, 0, NULL,
     "instead of the recorded one"},
    {"json", NULL, NULL, NULL, CONF_STR, AT(json), NULL, 0, 0, NULL, "file for the result as JSON"},
};
/* clang-format on */

static const struct conf_spec LOAD_SPEC = {
    "dynamo-bench load",
    "Multi-turn load: conversations that share long beginnings.",
    LOAD_FIELDS,
    ARRAY_LEN(LOAD_FIELDS),
    false,
};
static const struct conf_spec TRACE_SPEC = {
    "dynamo-bench trace",
    "Replays a trace in Mooncake's format on its schedule.",
    TRACE_FIELDS,
    ARRAY_LEN(TRACE_FIELDS),
    false,
};
static const struct conf_spec DECISION_SPEC = {
    "dynamo-bench decisions",
    "Replays recorded routing decisions, under their own policy and another.",
    DECISION_FIELDS,
    ARRAY_LEN(DECISION_FIELDS),
    false,
};
static const char USAGE[] =
    "Usage: dynamo-bench load [OPTION]...       multi-turn load\n"
    "       dynamo-bench trace --file FILE      fixed schedule of a trace\n"
    "       dynamo-bench compare A.json B.json  table of two or more results\n"
    "       dynamo-bench decisions --replay F   recorded routing decisions, asked again\n"
    "\n"
    "`dynamo-bench load --help`, `trace --help` and `decisions --help` list the options.\n";

/* "3" or "3-5". */
static int parse_range(const char *flag, const char *text, uint64_t *ret_min, uint64_t *ret_max,
                       struct err *e)
{
    struct str rest = str_from(text), first;
    bool two = str_cut(&rest, '-', &first);
    uint64_t lo, hi;

    if (!str_parse_u64(first, &lo) || (two && !str_parse_u64(rest, &hi)))
        return err_set(e, -EINVAL, "--%s: '%s' is not N or N-M", flag, text);
    if (!two)
        hi = lo;
    if (lo < 1 || hi < lo || hi > 10000000)
        return err_set(e, -EINVAL, "--%s: '%s' is no range from 1 up", flag, text);
    *ret_min = lo;
    *ret_max = hi;
    return 0;
}

static int check_load(struct bench_conf *c, struct err *e)
{
    int r = parse_range("turns", c->turns_text, &c->turns_min, &c->turns_max, e);

    if (r == 0)
        r = parse_range("output-tokens", c->output_text, &c->output_min, &c->output_max, e);
    if (r == 0 && c->conversations == 0 && c->duration_ms == 0)
        r = err_set(e, -EINVAL, "--conversations or --duration is needed");
    return r;
}

static int check_trace(struct bench_conf *c, struct err *e)
{
    if (!c->file)
        return err_set(e, -EINVAL, "--file is needed");
    return parse_range("token-ids", c->token_text, &c->token_first, &c->token_last, e);
}

static const struct conf_spec *spec_of(const struct bench_conf *c)
{
    static const struct conf_spec *const specs[] = {[BENCH_LOAD] = &LOAD_SPEC,
                                                    [BENCH_TRACE] = &TRACE_SPEC,
                                                    [BENCH_DECISIONS] = &DECISION_SPEC,
                                                    [BENCH_HELP] = NULL};

    return specs[c->command];
}

static int choose_command(struct bench_conf *c, int argc, char *const *argv, struct err *e)
{
    static const char *const names[] = {"load", "trace", "compare", "decisions"};

    c->command = BENCH_HELP;
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return CONF_HELP;
    if (strcmp(argv[1], "--version") == 0)
        return CONF_VERSION;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(argv[1], names[i]) == 0) {
            c->command = (enum bench_command)i;
            return 0;
        }
    }
    return err_set(e, -EINVAL, "'%s' is none of load, trace, compare, decisions", argv[1]);
}

int bench_conf_load(struct bench_conf *ret, int argc, char *const *argv,
                    const char *(*env)(const char *name), struct err *e)
{
    int r;

    *ret = (struct bench_conf){.command = BENCH_HELP};
    r = choose_command(ret, argc, argv, e);
    if (r != 0)
        return r;
    if (ret->command == BENCH_COMPARE) {
        ret->runs = argv + 2;
        ret->n_runs = argc - 2;
        return argc < 4 ? err_set(e, -EINVAL, "compare needs two results or more") : 0;
    }
    r = conf_load(spec_of(ret), ret, argc - 1, argv + 1, env, e);
    if (r != 0)
        return r;
    if (ret->command == BENCH_DECISIONS)
        return ret->replay ? 0 : err_set(e, -EINVAL, "--replay is needed");
    if (!ret->model)
        return err_set(e, -EINVAL, "--model is needed");
    return ret->command == BENCH_LOAD ? check_load(ret, e) : check_trace(ret, e);
}

void bench_conf_done(struct bench_conf *c)
{
    if (spec_of(c))
        conf_done(spec_of(c), c);
}

void bench_conf_print_help(const struct bench_conf *c, FILE *out)
{
    if (spec_of(c))
        conf_print_help(spec_of(c), out);
    else
        (void)fputs(USAGE, out);
}
