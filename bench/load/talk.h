/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multi-turn load: a fixed number of users, each holding one conversation after another.
 *
 * A conversation begins with one of a few long starters, the same text for everybody who picks it,
 * and goes on for some turns; each turn sends the whole history again, with the answers that the
 * server gave, and a new question. What is asked depends on the seed and the number of the
 * conversation only, not on timing. A failed turn ends its conversation.
 *
 * One loop. Memory is bounded by the users and the length of their conversations.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "bench/load/score.h"
#include "lib/net/loop.h"

struct talk;

struct talk_conf {
    struct http_client *http;
    const char *url; /* of the server, without path */
    const char *model;
    uint64_t concurrency;
    uint64_t conversations; /* to hold; 0 = as many as fit before the end */
    uint64_t n_starters, starter_tokens;
    uint64_t turns_min, turns_max, output_min, output_max;
    uint64_t question_tokens; /* about */
    uint64_t think_ms;        /* between an answer and the next turn */
    uint64_t timeout_ms;
    uint64_t seed, starter_seed; /* of the conversations; of the starters' texts */
    double tokens_per_word;
    bool ignore_eos, want_worker;
    void (*done)(void *arg); /* all conversations were held, or talk_stop() took effect */
    void *arg;
};

/* Starts at once. @score is borrowed. Strings are borrowed. */
struct talk *talk_start(struct loop *l, const struct talk_conf *conf, struct score *score)
    __attribute__((returns_nonnull));
/* Nobody begins another turn; `done` comes when the last answer is in. */
void talk_stop(struct talk *t);
struct talk *talk_free(struct talk *t); /* cancels what runs */
DEFINE_CLEANUP(struct talk *, talk_free)
size_t talk_running(const struct talk *t); /* requests under way */
