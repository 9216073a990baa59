/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/fswatch.h"

#include <errno.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "lib/net/uv_lib.h"

struct fswatch {
    uv_poll_t uv; /* first: callbacks get it back by cast */
    struct loop *loop;
    fswatch_fn fn;
    void *arg;
    int fd;
    bool stopped;
};

static void event_report(struct fswatch *w, const struct inotify_event *ev)
{
    if (ev->mask & (IN_Q_OVERFLOW | IN_IGNORED))
        w->fn(w->arg, NULL, false);
    else if (ev->len)
        w->fn(w->arg, ev->name, (ev->mask & (IN_DELETE | IN_MOVED_FROM)) != 0);
}

static void on_readable(uv_poll_t *uv, int status, int events)
{
    struct fswatch *w = (struct fswatch *)uv;
    _Alignas(struct inotify_event) char bytes[16384];
    ssize_t n;

    (void)status;
    (void)events;
    while (!w->stopped && (n = read(w->fd, bytes, sizeof(bytes))) > 0) {
        for (ssize_t at = 0; at < n && !w->stopped;) {
            const struct inotify_event *ev = (const void *)(bytes + at);

            event_report(w, ev);
            at += (ssize_t)(sizeof(*ev) + ev->len);
        }
    }
}

int fswatch_start(struct fswatch **ret, struct loop *l, const char *dir, fswatch_fn fn, void *arg,
                  struct err *e)
{
    const uint32_t mask = IN_CREATE | IN_CLOSE_WRITE | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM;
    struct fswatch *w;
    int r, fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

    if (fd < 0)
        return err_errno(e, -errno, "watch files");
    if (inotify_add_watch(fd, dir, mask) < 0) {
        r = err_errno(e, -errno, "watch directory '%s'", dir);
        (void)close(fd);
        return r;
    }
    w = xcalloc(1, sizeof(*w));
    w->loop = l;
    w->fn = fn;
    w->arg = arg;
    w->fd = fd;
    r = uv_poll_init(loop_uv(l), &w->uv, fd);
    if (r < 0) {
        (void)close(fd);
        free(w);
        return err_set(e, r, "watch directory '%s': %s", dir, uv_strerror(r));
    }
    (void)uv_poll_start(&w->uv, UV_READABLE, on_readable);
    *ret = w;
    return 0;
}

static void on_stopped(uv_handle_t *uv)
{
    struct fswatch *w = (struct fswatch *)uv;

    (void)close(w->fd);
    free(w);
}

struct fswatch *fswatch_stop(struct fswatch *w)
{
    if (!w || w->stopped)
        return NULL;
    w->stopped = true;
    (void)uv_poll_stop(&w->uv);
    uv_close((uv_handle_t *)&w->uv, on_stopped);
    return NULL;
}
