/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/drain.h"

#include "lib/base/log.h"

enum { LINGER_MS = 500 };

void drain_check(struct drain *d)
{
    if (d->stopped && !timer_active(d->linger) && *d->running == 0)
        TAKE(d->stopped)(d->stopped_arg);
}

static void on_linger(void *arg)
{
    drain_check(arg);
}

static void on_deadline(void *arg)
{
    struct drain *d = arg;

    log_warn(d->log, "streams are cut: the grace time is over");
    d->cut(d->arg);
}

void drain_init(struct drain *d, struct loop *l, const struct log_target *log,
                const size_t *running, loop_fn cut, void *arg)
{
    *d = (struct drain){.log = log,
                        .running = running,
                        .cut = cut,
                        .arg = arg,
                        .linger = timer_new(l, on_linger, d),
                        .deadline = timer_new(l, on_deadline, d)};
}

void drain_done(struct drain *d)
{
    d->stopped = NULL;
    d->linger = timer_free(d->linger);
    d->deadline = timer_free(d->deadline);
}

bool drain_begin(struct drain *d, uint64_t limit_ms, loop_fn stopped, void *arg)
{
    if (d->stopped) {
        timer_start(d->deadline, 0); /* told twice: at once */
        return false;
    }
    log_info(d->log, "stopping: running streams may finish", LOG_U64("streams", *d->running));
    d->stopped = stopped;
    d->stopped_arg = arg;
    timer_start(d->linger, LINGER_MS);
    timer_start(d->deadline, limit_ms);
    return true;
}

bool drain_has_begun(const struct drain *d)
{
    return d->stopped != NULL;
}

void drain_forget(struct drain *d)
{
    d->stopped = NULL;
}
