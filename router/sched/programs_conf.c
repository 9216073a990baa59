/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/programs.h"

#include <errno.h>
#include <string.h>

#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "router/sched/policy_keys.h"

static const char PLACE[] = "request_classifier.parameters";

enum range { SHARE, ABOVE_ZERO };

/* Longer than any clock runs, and still a number of ns. */
static const double SECONDS_MAX = 1e9;

static int read_number(const struct json *v, const char *key, enum range range, double *ret,
                       struct err *e)
{
    int r = policy_read_number(v, key, PLACE, ret, e);

    if (r < 0)
        return r;
    if (range == SHARE && *ret > 1)
        return err_set(e, -EINVAL, "%s.%s: expected a number from 0 to 1", PLACE, key);
    if (range == ABOVE_ZERO && !(*ret > 0 && *ret <= SECONDS_MAX))
        return err_set(e, -EINVAL, "%s.%s: expected a number above 0, up to 1e9", PLACE, key);
    return 0;
}

static int read_parameters(struct programs_conf *c, const struct json *v, struct err *e)
{
    static const char *const keys[] = {"pause_threshold",
                                       "pause_target",
                                       "resume_hysteresis",
                                       "resume_timeout_seconds",
                                       "session_retention_seconds",
                                       "scheduler_interval_seconds",
                                       "acting_token_weight",
                                       "acting_decay_tau_seconds",
                                       "buffer_per_program",
                                       "max_tracked_requests",
                                       NULL};
    double *const numbers[] = {&c->pause_threshold,  &c->pause_target, &c->resume_hysteresis,
                               &c->resume_timeout_s, &c->retention_s,  &c->interval_s,
                               &c->acting_weight,    &c->acting_tau_s};
    int r = policy_check_keys(v, keys, PLACE, e);

    for (size_t i = 0; r == 0 && i < ARRAY_LEN(numbers); i++)
        r = read_number(v, keys[i], i < 3 ? SHARE : ABOVE_ZERO, numbers[i], e);
    if (r == 0)
        r = policy_read_count(v, keys[8], 0, PLACE, &c->buffer, e);
    if (r == 0)
        r = policy_read_count(v, keys[9], 1, PLACE, &c->max_tracked, e);
    if (r == 0 && c->pause_target > c->pause_threshold)
        r = err_set(e, -EINVAL, "%s.%s: above pause_threshold", PLACE, keys[1]);
    if (r == 0 && c->resume_hysteresis > c->pause_threshold)
        r = err_set(e, -EINVAL, "%s.%s: above pause_threshold", PLACE, keys[2]);
    return r;
}

int programs_conf_read(struct programs_conf *ret, const struct json *section, struct err *e)
{
    static const char *const keys[] = {"type", "parameters", NULL};
    struct programs_conf fresh = PROGRAMS_DEFAULTS;
    const struct json *parameters = section ? json_get(section, "parameters") : NULL;
    const char *type;
    int r = 0;

    if (section && !json_is_null(section)) {
        r = policy_check_keys(section, keys, "request_classifier", e);
        type = r == 0 ? json_get_cstr(section, "type") : NULL;
        if (r == 0 && (!type || strcmp(type, "thunderagent") != 0))
            r = err_set(e, -EINVAL, "request_classifier.type: expected thunderagent");
        if (r == 0 && parameters && !json_is_object(parameters))
            r = err_set(e, -EINVAL, "%s: expected a mapping", PLACE);
        if (r == 0 && parameters)
            r = read_parameters(&fresh, parameters, e);
        fresh.on = true;
    }
    if (r == 0)
        *ret = fresh;
    return r;
}
