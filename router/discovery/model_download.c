/* SPDX-License-Identifier: Apache-2.0 */
#include "router/discovery/model_download.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/net/http_fetch.h"
#include "lib/net/loop.h"
#include "router/discovery/hub_answer.h"

static const struct log_target LG = {"commutator::model_files"};

enum {
    BACKOFF_MS = 500,
    BACKOFF_MAX_MS = 30000,
    LOCK_LOOK_MS = 100, /* flock() cannot wait and be told to stop */
    TELL_MS = 5000,
    WORDS_MAX = 1 << 20,
};

static bool must_stop(const struct model_stop *s)
{
    return s->asked && s->asked(s->arg);
}

bool model_stop_pause(const struct model_stop *s, uint64_t ms)
{
    while (ms > 0 && !must_stop(s)) {
        uint64_t part = ms < LOCK_LOOK_MS ? ms : LOCK_LOOK_MS;

        (void)poll(NULL, 0, (int)part);
        ms -= part;
    }
    return !must_stop(s);
}

int model_folder_make(const char *path, struct err *e)
{
    AUTO(mem_free) char *part = xstrdup(path);

    for (char *at = part + 1;; at++) {
        char c = *at;

        if (c != '/' && c != '\0')
            continue;
        *at = '\0';
        if (mkdir(part, 0777) < 0 && errno != EEXIST)
            return err_errno(e, -errno, "folder '%s'", part);
        *at = c;
        if (c == '\0')
            return 0;
    }
}

static bool is_there(const struct model_download *d)
{
    return access(d->path, R_OK) == 0 && d->check(d->check_arg, d->path);
}

/* --- the lease ---------------------------------------------------------------------------------- */

static int lease_take(const struct model_download *d, int *ret_fd, struct err *e)
{
    int fd = open(d->lock, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    bool told = false;

    if (fd < 0)
        return err_errno(e, -errno, "lock file '%s'", d->lock);
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        int error = errno;

        if (error != EWOULDBLOCK && error != EINTR) {
            (void)close(fd);
            return err_errno(e, -error, "lock file '%s'", d->lock);
        }
        if (!told)
            log_info(&LG, "waiting for another process that downloads", LOG_STR("path", d->path));
        told = true;
        if (!model_stop_pause(&d->stop, LOCK_LOOK_MS)) {
            (void)close(fd);
            return err_set(e, -ECANCELED, "'%s': stopped", d->path);
        }
    }
    *ret_fd = fd;
    return 0;
}

/* --- one attempt -------------------------------------------------------------------------------- */

struct transfer {
    const struct model_download *d;
    struct hub_answer said;
    int fd;
    uint64_t have;       /* bytes in the file */
    uint64_t idle_words; /* bytes of an answer that is an error */
    bool placed;         /* the first bytes of the answer have been seen */
    int error;           /* why we ended it ourselves; 0 = we did not */
    uint64_t tell_at;    /* ms */
};

static void on_header(void *arg, struct str name, struct str value)
{
    struct transfer *t = arg;

    hub_answer_add(&t->said, name, value);
}

/* An answer with the whole file, or with another range than was asked for, begins it anew. */
static bool place(struct transfer *t, int status)
{
    uint64_t from = status == 206 && t->said.has_range ? t->said.from : 0;

    t->placed = true;
    if (from > t->have) {
        t->error = -EPROTO;
        return false;
    }
    if (from < t->have && ftruncate(t->fd, (off_t)from) < 0) {
        t->error = -errno;
        return false;
    }
    t->have = from;
    return true;
}

static void tell_progress(struct transfer *t)
{
    uint64_t now = clock_now_ns() / 1000000;

    if (now < t->tell_at)
        return;
    t->tell_at = now + TELL_MS;
    log_info(&LG, "downloading", LOG_STR("path", t->d->path), LOG_U64("bytes", t->have),
             LOG_U64("of", t->said.size == HUB_SIZE_UNKNOWN ? 0 : t->said.size));
}

static bool on_data(void *arg, int status, struct str bytes)
{
    struct transfer *t = arg;

    if (status != 200 && status != 206) {
        t->idle_words += bytes.len;
        return t->idle_words <= WORDS_MAX; /* an error's explanation is not needed */
    }
    if (!t->placed && !place(t, status))
        return false;
    if (t->have + bytes.len > t->d->max_bytes) {
        t->error = -EFBIG;
        return false;
    }
    while (bytes.len > 0) {
        ssize_t n = pwrite(t->fd, bytes.ptr, bytes.len, (off_t)t->have);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            t->error = -errno;
            return false;
        }
        t->have += (uint64_t)n;
        bytes = str_skip(bytes, (size_t)n);
    }
    tell_progress(t);
    return true;
}

static bool on_cancelled(void *arg)
{
    const struct transfer *t = arg;

    return must_stop(&t->d->stop);
}

/* Outcomes beside -errno. */
enum { TRY_AGAIN = 1 };

static int judge(struct transfer *t, int status, struct err *e)
{
    const struct model_download *d = t->d;

    switch (status) {
    case 200:
    case 206:
        break;
    case 401:
    case 403:
        return err_set(e, -EACCES, "%s: status %d, %s", d->url, status,
                       d->bearer ? "the token gives no access" : "a token is needed (HF_TOKEN)");
    case 404:
    case 410:
        return err_set(e, -ENOENT, "%s: status %d", d->url, status);
    case 416: /* what is there is longer than the file, or all of it */
        if (t->have == d->size)
            return 0;
        (void)!ftruncate(t->fd, 0);
        (void)err_set(e, -EBADMSG, "%s: status 416", d->url);
        return TRY_AGAIN;
    default:
        (void)err_set(e, -EIO, "%s: status %d", d->url, status);
        return status == 408 || status == 429 || status >= 500 ? TRY_AGAIN : -EIO;
    }
    if (!t->placed && !place(t, status)) /* an empty file */
        return err_errno(e, t->error, "%s", d->url);
    if ((d->size != HUB_SIZE_UNKNOWN && t->have != d->size) ||
        (t->said.size != HUB_SIZE_UNKNOWN && t->have != t->said.size)) {
        bool more = t->have > d->size;

        if (more)
            (void)!ftruncate(t->fd, 0);
        (void)err_set(e, -EBADMSG, "%s: %llu bytes came of %llu", d->url,
                      (unsigned long long)t->have, (unsigned long long)d->size);
        return TRY_AGAIN;
    }
    return 0;
}

static bool is_lasting(int error)
{
    return error == -EINVAL || error == -ECANCELED || error == -ENOMEM || error == -EACCES;
}

static int attempt(const struct model_download *d, const char *part, struct err *e)
{
    struct transfer t = {.d = d,
                         .said = hub_answer_none(),
                         .fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC, 0666),
                         .tell_at = clock_now_ns() / 1000000 + TELL_MS};
    struct stat st;
    int status = 0, r;

    if (t.fd < 0 || fstat(t.fd, &st) < 0) {
        r = err_errno(e, -errno, "'%s'", part);
        if (t.fd >= 0)
            (void)close(t.fd);
        return r;
    }
    t.have = (uint64_t)st.st_size;
    r = http_fetch(&(struct http_fetch_spec){.url = d->url,
                                             .bearer = d->bearer,
                                             .from = t.have,
                                             .header = on_header,
                                             .data = on_data,
                                             .cancelled = on_cancelled,
                                             .arg = &t},
                   &status, e);
    if (t.error == -EFBIG)
        r = err_set(e, -EFBIG, "%s is larger than %llu bytes", d->url,
                    (unsigned long long)d->max_bytes);
    else if (t.error)
        r = err_errno(e, t.error, "'%s'", part);
    else if (r == 0 || t.idle_words > WORDS_MAX)
        r = judge(&t, status, e);
    else if (!is_lasting(r))
        r = TRY_AGAIN;
    if (r == 0 && fsync(t.fd) < 0)
        r = err_errno(e, -errno, "'%s'", part);
    (void)close(t.fd);
    return r;
}

/* --- the whole ------------------------------------------------------------------------------------ */

/* Complete and as long as it should be; is it what was wanted? */
static int accept(const struct model_download *d, const char *part, struct err *e)
{
    if (!d->check(d->check_arg, part)) {
        (void)unlink(part);
        return err_set(e, -EBADMSG, "%s: its checksum is not the one announced", d->url);
    }
    if (rename(part, d->path) < 0)
        return err_errno(e, -errno, "'%s'", d->path);
    return 0;
}

static int download(const struct model_download *d, struct err *e)
{
    AUTO(mem_free) char *part = xasprintf("%s.incomplete", d->path);
    uint64_t wait_ms = d->backoff_ms ? d->backoff_ms : BACKOFF_MS;
    unsigned wrong = 0;
    int r = -EIO;

    for (unsigned i = 1; i <= MODEL_DOWNLOAD_ATTEMPTS; i++) {
        r = attempt(d, part, e);
        if (r == 0) {
            r = accept(d, part, e);
            if (r != -EBADMSG || ++wrong == 2)
                return r;
        } else if (r < 0) {
            return r;
        }
        if (i == MODEL_DOWNLOAD_ATTEMPTS)
            break;
        log_warn(&LG, "download failed, trying again", LOG_STR("why", e->text),
                 LOG_U64("attempt", i), LOG_U64("in_ms", wait_ms));
        if (!model_stop_pause(&d->stop, wait_ms))
            return err_set(e, -ECANCELED, "%s: stopped", d->url);
        wait_ms = wait_ms * 2 < BACKOFF_MAX_MS ? wait_ms * 2 : BACKOFF_MAX_MS;
    }
    return err_wrap(e, -EIO, "after %d attempts", MODEL_DOWNLOAD_ATTEMPTS);
}

int model_download(const struct model_download *d, struct err *e)
{
    struct err own;
    int fd = -1, r;

    if (!e)
        e = &own;
    if (is_there(d))
        return 0;
    if (d->size != HUB_SIZE_UNKNOWN && d->size > d->max_bytes)
        return err_set(e, -EFBIG, "%s has %llu bytes, more than %llu", d->url,
                       (unsigned long long)d->size, (unsigned long long)d->max_bytes);
    r = lease_take(d, &fd, e);
    if (r < 0)
        return r;
    if (!is_there(d)) {
        uint64_t begin = clock_now_ns();

        r = download(d, e);
        if (r == 0)
            log_info(&LG, "downloaded", LOG_STR("path", d->path),
                     LOG_F64("seconds", (double)(clock_now_ns() - begin) / 1e9));
    }
    (void)close(fd); /* and with it the lock */
    return r;
}
