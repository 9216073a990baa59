/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dynamo-router: the router without a frontend, one command per service.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "router/service/program.h"

static const struct service_program *const PROGRAMS[] = {&ROUTE_PROGRAM,  &SELECT_PROGRAM,
                                                         &INDEX_PROGRAM,  &SLOTS_PROGRAM,
                                                         &BRIDGE_PROGRAM, &GLOBAL_PROGRAM};

static const char *environment(const char *name)
{
    return getenv(name);
}

static void print_commands(FILE *out)
{
    (void)fputs("Usage: dynamo-router COMMAND [OPTION]...\n\nCommands:\n", out);
    for (size_t i = 0; i < ARRAY_LEN(PROGRAMS); i++)
        (void)fprintf(out, "  %-7s %s\n", PROGRAMS[i]->command, PROGRAMS[i]->summary);
    (void)fputs("\n`dynamo-router COMMAND --help` tells the options of each.\n", out);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        print_commands(stdout);
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        puts("dynamo-router " COMMUTATOR_VERSION);
        return 0;
    }
    for (size_t i = 0; argc > 1 && i < ARRAY_LEN(PROGRAMS); i++)
        if (strcmp(argv[1], PROGRAMS[i]->command) == 0)
            return service_program_run(PROGRAMS[i], argc - 1, argv + 1, environment);
    print_commands(stderr);
    return 2;
}
