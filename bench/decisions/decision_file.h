/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dynamo-bench decisions: replays what `curl …/decisions` or --record-decisions has written.
 */
#pragma once

#include "bench/decisions/decision_score.h"
#include "lib/base/err.h"

/*
 * Adds every record of the file. Lines that tell of overwritten records are counted; anything else
 * that is no record is -EINVAL, named by its line. "-" is standard input.
 */
MUST_CHECK int decision_file_score(const char *path, struct decision_score *s, struct err *e);
/* The whole command: table on @out, JSON to the file @json unless NULL. -EBADMSG when a record did
 * not give again what it had given. */
MUST_CHECK int decision_replay_run(const char *path, const struct decision_question *question,
                                   const char *json, FILE *out, struct err *e);
