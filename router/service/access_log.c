/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/access_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/json_put.h"

struct access_log {
    char *path;
    int fd;
    bool local;
    struct metric *lost;
};

static int open_file(const char *path, struct err *e)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);

    return fd < 0 ? err_set(e, -errno, "failed to open access log %s: %s", path, strerror(errno))
                  : fd;
}

int access_log_open(struct access_log **ret, const char *path, bool local, struct metric *lost,
                    struct err *e)
{
    int fd = open_file(path, e);

    if (fd < 0)
        return fd;
    *ret = xcalloc(1, sizeof(**ret));
    **ret = (struct access_log){.path = xstrdup(path), .fd = fd, .local = local, .lost = lost};
    return 0;
}

struct access_log *access_log_close(struct access_log *l)
{
    if (!l)
        return NULL;
    (void)close(l->fd);
    free(l->path);
    free(l);
    return NULL;
}

int access_log_reopen(struct access_log *l, struct err *e)
{
    int fd = open_file(l->path, e);

    if (fd < 0)
        return fd;
    (void)close(l->fd);
    l->fd = fd;
    return 0;
}

/* --- lines ------------------------------------------------------------------------------------ */

/* The offset of a local time is written as "+01:00". */
static void put_time(struct buf *out, uint64_t wall_ms, bool local)
{
    time_t seconds = (time_t)(wall_ms / 1000);
    char text[64] = "", zone[16] = "";
    struct tm tm;

    if (local)
        (void)localtime_r(&seconds, &tm);
    else
        (void)gmtime_r(&seconds, &tm);
    (void)strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
    (void)strftime(zone, sizeof(zone), "%z", &tm);
    buf_printf(out, "%s.%03u", text, (unsigned)(wall_ms % 1000));
    if (local)
        buf_printf(out, "%.3s:%s", zone, zone + 3);
    else
        buf_put_char(out, 'Z');
}

static void put_text(struct json_put *j, const char *key, struct str text)
{
    json_put_key(j, key);
    json_put_str(j, text.len ? str_head(text, ACCESS_TEXT_MAX) : STR("-"));
}

void access_log_write(struct access_log *l, const struct access_entry *entry)
{
    AUTO(buf_done) struct buf time_text = BUF_NULL;
    AUTO(buf_done) struct buf line = BUF_NULL;
    struct json_put j = json_put_on(&line);

    put_time(&time_text, entry->wall_ms, l->local);
    json_put_object(&j);
    put_text(&j, "ts", buf_str(&time_text));
    put_text(&j, "trace_id", entry->trace_id);
    put_text(&j, "method", entry->method);
    put_text(&j, "path", entry->path);
    put_text(&j, "model", entry->model);
    json_put_member_u64(&j, "status", (uint64_t)entry->status);
    json_put_key(&j, "duration_ms");
    json_put_f64(&j, (double)entry->duration_ns / 1e6);
    json_put_object_end(&j);
    buf_put_char(&line, '\n');
    if (write(l->fd, buf_data(&line), line.len) != (ssize_t)line.len)
        metric_add(l->lost, 1);
}
