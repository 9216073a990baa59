/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/decision_log.h"

#include <errno.h>
#include <stdio.h>

#include "lib/base/buf.h"
#include "lib/base/log.h"

static const struct log_target LG = {"commutator::frontend::decisions"};

enum { WAITING_MAX = 16 << 20, FLUSH_MS = 200 };

struct decision_log {
    struct loop *loop;
    char *path, *older;
    uint64_t bytes_max, dropped;
    struct buf waiting; /* filled on the loop */
    uint64_t n_waiting; /* lines of it */
    struct timer *flush;
    bool writing, freed;
    bool failing; /* the last batch could not be written */

    /* of the pool thread while `writing`, else of the loop */
    struct buf batch;
    uint64_t n_batch;
    FILE *file;
    uint64_t bytes;
    int failure; /* errno of the last batch */
};

static int open_file(struct decision_log *log)
{
    long at;

    log->file = fopen(log->path, "ae");
    if (!log->file)
        return -errno;
    at = fseek(log->file, 0, SEEK_END) == 0 ? ftell(log->file) : 0;
    log->bytes = at > 0 ? (uint64_t)at : 0;
    return 0;
}

static void begin_anew(struct decision_log *log)
{
    if (log->file)
        (void)fclose(log->file);
    log->file = NULL;
    if (rename(log->path, log->older) < 0 && errno != ENOENT)
        log->failure = errno;
}

/* On a pool thread. */
static void write_batch(void *arg)
{
    struct decision_log *log = arg;
    size_t n = log->batch.len;

    log->failure = 0;
    if (log->bytes && log->bytes + n > log->bytes_max)
        begin_anew(log);
    if (!log->file && open_file(log) < 0) {
        log->failure = errno;
        return;
    }
    if (fwrite(buf_data(&log->batch), 1, n, log->file) != n || fflush(log->file) != 0)
        log->failure = errno;
    log->bytes += n;
}

static void finish(struct decision_log *log)
{
    if (log->waiting.len) {
        buf_clear(&log->batch);
        buf_put_str(&log->batch, buf_str(&log->waiting));
        write_batch(log);
    }
    if (log->file)
        (void)fclose(log->file);
    buf_done(&log->waiting);
    buf_done(&log->batch);
    timer_free(log->flush);
    free(log->path);
    free(log->older);
    free(log);
}

static void start_write(void *arg);

static void batch_written(void *arg)
{
    struct decision_log *log = arg;

    log->writing = false;
    if (log->failure) {
        log->dropped += log->n_batch;
        if (!log->failing) /* told once, not five times a second */
            log_warn(&LG, "decisions cannot be written", LOG_STR("file", log->path),
                     LOG_I64("errno", log->failure));
    }
    log->failing = log->failure != 0;
    if (log->freed)
        finish(log);
    else if (log->waiting.len)
        start_write(log);
}

static void start_write(void *arg)
{
    struct decision_log *log = arg;
    struct buf batch = log->batch;

    if (log->writing)
        return;
    buf_clear(&batch);
    log->batch = log->waiting;
    log->n_batch = log->n_waiting;
    log->waiting = batch;
    log->n_waiting = 0;
    log->writing = true;
    loop_work(log->loop, write_batch, batch_written, log);
}

int decision_log_open(struct decision_log **ret, struct loop *l, const char *path,
                      uint64_t bytes_max, struct err *e)
{
    struct decision_log *log = xcalloc(1, sizeof(*log));
    int r;

    log->loop = l;
    log->path = xstrdup(path);
    log->older = xasprintf("%s.1", path);
    log->bytes_max = bytes_max;
    log->flush = timer_new(l, start_write, log);
    r = open_file(log);
    if (r < 0) {
        finish(log);
        return err_errno(e, r, "%s: cannot be opened for appending", path);
    }
    *ret = log;
    return 0;
}

struct decision_log *decision_log_free(struct decision_log *log)
{
    if (!log)
        return NULL;
    log->freed = true;
    if (!log->writing)
        finish(log);
    return NULL;
}

void decision_log_put(struct decision_log *log, struct str line)
{
    if (log->waiting.len + line.len >= WAITING_MAX) {
        log->dropped++;
        return;
    }
    buf_put_str(&log->waiting, line);
    buf_put_char(&log->waiting, '\n');
    log->n_waiting++;
    if (!log->writing && !timer_active(log->flush))
        timer_start(log->flush, FLUSH_MS);
}

uint64_t decision_log_dropped(const struct decision_log *log)
{
    return log->dropped;
}
