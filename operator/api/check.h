/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a DynamoGraphDeployment or DynamoComponentDeployment must satisfy beyond its schema.
 *
 * Used by the reconcilers (reason ValidationFailed in status). The words are those of the
 * reference's webhook, which name the field by its path; all problems are found, not the first only.
 * Source: operator.md §1.1, 1.2, 3.3 and validation.jsonl. Pure.
 */
#pragma once

#include "lib/base/json_tree.h"

struct problem {
    char *field;   /* "spec.services[Worker].ingress.host" */
    char *message; /* a sentence that begins with the field */
};

struct problems {
    struct problem *at;
    size_t n;
    size_t cap;
};

#define PROBLEMS_NULL ((struct problems){0})

void problems_done(struct problems *p);
DEFINE_CLEANUP_EMBEDDED(struct problems, problems_done)
/* The messages, one per line. Owned; "" when there is none. */
char *problems_text(const struct problems *p) __attribute__((returns_nonnull));

/* Appends what is wrong with the object as it stands. */
void check_graph(const struct json *dgd, struct problems *out);
void check_component(const struct json *dcd, struct problems *out);
