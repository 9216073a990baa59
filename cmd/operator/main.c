/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "cmd/operator/flags.h"
#include "lib/base/err.h"
#include "lib/base/log.h"

static const struct log_target LG = {"dynamo_operator"};

static const char *environment(const char *name)
{
    return getenv(name);
}

static void tell_ignored(const char *flag)
{
    log_info(&LG, "flag has no effect here", LOG_STR("flag", flag));
}

static int run(const struct flags *f, struct err *e)
{
    const struct manager_conf conf = flags_to_conf(f, environment);

    flags_each_ignored(f, tell_ignored);
    return manager_run(&conf, e);
}

int main(int argc, char **argv)
{
    struct flags f = {0};
    bool jsonl = false;
    struct err e;
    int r;

    if (!str_parse_bool(str_from(getenv("DYN_LOGGING_JSONL")), &jsonl))
        jsonl = false;
    r = log_setup(getenv("DYN_LOG"), jsonl, &e);
    if (r == 0)
        r = conf_load(&flags_spec, &f, argc, argv, environment, &e);
    if (r == CONF_HELP)
        conf_print_help(&flags_spec, stdout);
    else if (r == CONF_VERSION)
        (void)puts("dynamo-operator " COMMUTATOR_VERSION);
    else if (r == 0)
        r = run(&f, &e);
    if (r < 0)
        (void)fprintf(stderr, "dynamo-operator: %s\n", e.text);
    conf_done(&flags_spec, &f);
    return r < 0 ? 1 : 0;
}
