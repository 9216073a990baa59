/* SPDX-License-Identifier: Apache-2.0 */
#include "router/discovery/hub_ledger.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/net/file.h"
#include "router/discovery/hub_answer.h"
#include "router/discovery/model_download.h"

static const struct log_target LG = {"commutator::model_files"};

enum { FILES_MAX = 1024 /* of one ledger, each looked at */ };

/* --- lines ------------------------------------------------------------------------------------ */

static bool entry_parse(struct str line, struct hub_entry *ret)
{
    bool three = str_cut(&line, ' ', &ret->etag) && str_cut(&line, ' ', &ret->commit);

    ret->file = line;
    return three && hub_word_is_valid(ret->etag) && hub_word_is_valid(ret->commit) &&
           hub_word_is_valid(ret->file);
}

bool hub_entry_next(struct str *rest, struct hub_entry *ret)
{
    struct str line;

    while (rest->len) {
        (void)str_cut(rest, '\n', &line);
        if (entry_parse(line, ret))
            return true;
    }
    return false;
}

void hub_entry_put(struct buf *out, const struct hub_entry *x)
{
    buf_printf(out, "%.*s %.*s %.*s\n", STR_ARG(x->etag), STR_ARG(x->commit), STR_ARG(x->file));
}

/* --- use -------------------------------------------------------------------------------------- */

struct hub_hold {
    int fd;
};

static char *ledgers_of(const char *hub_cache)
{
    return xasprintf("%s/.commutator/hub", hub_cache);
}

/* Locks what is at @path: one that waited may have got a file that has gone meanwhile. -ENOENT. */
static int open_locked(const char *path, int flags, int how)
{
    struct stat mine, there;

    for (;;) {
        int fd = open(path, flags | O_CLOEXEC, 0666), r;

        if (fd < 0)
            return -errno;
        do
            r = flock(fd, how);
        while (r < 0 && errno == EINTR);
        if (r < 0) {
            r = -errno;
            (void)close(fd);
            return r;
        }
        if (fstat(fd, &mine) == 0 && stat(path, &there) == 0 && mine.st_ino == there.st_ino)
            return fd;
        (void)close(fd);
        if (!(flags & O_CREAT) && access(path, F_OK) < 0)
            return -ENOENT;
    }
}

/* The file system's own clock may tick too slowly to tell who was first. */
static void touch(int fd)
{
    struct timespec now[2];

    (void)clock_gettime(CLOCK_REALTIME, &now[0]);
    now[1] = now[0];
    (void)futimens(fd, now);
}

int hub_hold_new(struct hub_hold **ret, const char *hub_cache, const char *folder, bool create,
                 struct err *e)
{
    AUTO(mem_free) char *ledgers = ledgers_of(hub_cache);
    AUTO(mem_free) char *path = xasprintf("%s/%s", ledgers, folder);
    int fd, r = create ? model_folder_make(ledgers, e) : 0;

    if (r < 0)
        return r;
    fd = open_locked(path, O_RDWR | O_APPEND | (create ? O_CREAT : 0), LOCK_SH);
    if (fd == -EACCES || fd == -EROFS)
        fd = open_locked(path, O_RDONLY, LOCK_SH); /* enough for who only reads */
    if (fd < 0 && !create)
        return 0;
    if (fd < 0)
        return err_errno(e, fd, "'%s'", path);
    touch(fd);
    *ret = xcalloc(1, sizeof(**ret));
    (*ret)->fd = fd;
    return 0;
}

static bool entry_is(const struct hub_entry *a, const struct hub_entry *b)
{
    return str_eq(a->etag, b->etag) && str_eq(a->commit, b->commit) && str_eq(a->file, b->file);
}

/* Whether the ledger has the line, and whether it has the blob. */
static bool has_line(const struct hub_hold *h, const struct hub_entry *entry, bool *ret_blob)
{
    AUTO(mem_free) char *text = xcalloc(1, HUB_LEDGER_BYTES_MAX);
    ssize_t n = pread(h->fd, text, HUB_LEDGER_BYTES_MAX, 0);
    struct str rest = str_slice(text, n > 0 ? (size_t)n : 0);
    struct hub_entry x;

    *ret_blob = false;
    while (hub_entry_next(&rest, &x)) {
        *ret_blob = *ret_blob || str_eq(x.etag, entry->etag);
        if (entry_is(&x, entry))
            return true;
    }
    return false;
}

int hub_hold_add(struct hub_hold *h, const struct hub_entry *entry, bool there, struct err *e)
{
    AUTO(buf_done) struct buf line = BUF_NULL;
    bool is_ours;

    if (has_line(h, entry, &is_ours) || (there && !is_ours))
        return 0;
    hub_entry_put(&line, entry);
    /* At once, so that lines of several processes do not mix. */
    if (write(h->fd, buf_data(&line), line.len) != (ssize_t)line.len)
        return err_errno(e, errno ? -errno : -EIO, "ledger of the model cache");
    return 0;
}

struct hub_hold *hub_hold_free(struct hub_hold *h)
{
    if (!h)
        return NULL;
    touch(h->fd);
    (void)close(h->fd); /* and with it the lock */
    free(h);
    return NULL;
}

/* --- one repository ------------------------------------------------------------------------------- */

struct repository {
    char *name; /* of its folder */
    char *ledger, *root, *locks;
    struct buf text;
    struct hub_entry *files;
    size_t n;
    uint64_t bytes;
    struct timespec used;
};

static void repository_done(struct repository *r)
{
    free(r->name);
    free(r->ledger);
    free(r->root);
    free(r->locks);
    buf_done(&r->text);
    free(r->files);
    *r = (struct repository){0};
}

/* Among the first @n. */
static bool is_among(const struct repository *r, size_t n, struct str etag)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(r->files[i].etag, etag))
            return true;
    return false;
}

static bool is_listed(const struct repository *r, struct str etag)
{
    return is_among(r, r->n, etag);
}

static uint64_t size_of(const struct repository *r, struct str etag)
{
    AUTO(mem_free) char *path = xasprintf("%s/blobs/%.*s", r->root, STR_ARG(etag));
    struct stat st;

    return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static bool is_known(const struct repository *r, const struct hub_entry *x)
{
    for (size_t i = 0; i < r->n; i++)
        if (entry_is(&r->files[i], x))
            return true;
    return false;
}

/* Reads its ledger; false when there is none that can be read. */
static bool repository_load(struct repository *ret, const char *hub_cache, const char *name)
{
    struct hub_entry x;
    struct str rest;
    struct stat st;

    *ret = (struct repository){
        .name = xstrdup(name),
        .ledger = xasprintf("%s/.commutator/hub/%s", hub_cache, name),
        .root = xasprintf("%s/%s", hub_cache, name),
        .locks = xasprintf("%s/.locks/%s", hub_cache, name),
    };
    if (stat(ret->ledger, &st) < 0 ||
        file_read(ret->ledger, HUB_LEDGER_BYTES_MAX, &ret->text, NULL) < 0)
        return false;
    ret->used = st.st_mtim;
    rest = buf_str(&ret->text);
    while (ret->n < FILES_MAX && hub_entry_next(&rest, &x)) {
        if (is_known(ret, &x))
            continue;
        if (!is_listed(ret, x.etag))
            ret->bytes += size_of(ret, x.etag);
        ret->files = xreallocarray(ret->files, ret->n + 1, sizeof(*ret->files));
        ret->files[ret->n++] = x;
    }
    return true;
}

/* Whether @is_ours of every name in a folder; an absent one is empty. */
static bool all_are(const struct repository *r, const char *folder,
                    bool (*is_ours)(const struct repository *, const char *folder, struct str))
{
    AUTO(mem_free) char *path = xasprintf("%s/%s", r->root, folder);
    DIR *dir = opendir(path);
    const struct dirent *en;
    bool ours = true;

    if (!dir)
        return errno == ENOENT;
    while (ours && (en = readdir(dir)) != NULL)
        if (strcmp(en->d_name, ".") != 0 && strcmp(en->d_name, "..") != 0)
            ours = is_ours(r, folder, str_from(en->d_name));
    (void)closedir(dir);
    return ours;
}

static bool is_our_file(const struct repository *r, const char *folder, struct str name)
{
    struct str commit = str_skip(str_from(folder), strlen("snapshots/"));

    for (size_t i = 0; i < r->n; i++)
        if (str_eq(r->files[i].commit, commit) && str_eq(r->files[i].file, name))
            return true;
    return false;
}

static bool is_our_snapshot(const struct repository *r, const char *folder, struct str name)
{
    AUTO(mem_free) char *inner = xasprintf("%s/%.*s", folder, STR_ARG(name));

    return all_are(r, inner, is_our_file);
}

/* One that was broken off counts as well. */
static bool is_our_blob(const struct repository *r, const char *folder, struct str name)
{
    (void)folder;
    if (str_ends(name, STR(".incomplete")))
        name = str_head(name, name.len - strlen(".incomplete"));
    return is_listed(r, name);
}

static bool is_our_ref(const struct repository *r, const char *folder, struct str name)
{
    (void)r;
    (void)folder;
    return str_is(name, "main");
}

static bool is_our_part(const struct repository *r, const char *folder, struct str name)
{
    (void)folder;
    if (str_is(name, "blobs"))
        return all_are(r, "blobs", is_our_blob);
    if (str_is(name, "snapshots"))
        return all_are(r, "snapshots", is_our_snapshot);
    return str_is(name, "refs") && all_are(r, "refs", is_our_ref);
}

/* --- room ------------------------------------------------------------------------------------- */

static void remove_one(const char *folder, const char *sub, struct str name, const char *suffix)
{
    AUTO(mem_free) char *path = xasprintf("%s/%s%.*s%s", folder, sub, STR_ARG(name), suffix);

    if (unlink(path) < 0 && errno != ENOENT && errno != EISDIR)
        log_warn(&LG, "cannot make room in the model cache", LOG_STR("path", path),
                 LOG_STR("why", strerrordesc_np(errno)));
}

/* Names first: what they lead to goes behind them. Folders only when they are empty. */
static void remove_all(const struct repository *r)
{
    static const char *const folders[] = {"snapshots", "blobs", "refs"};

    remove_one(r->root, "refs/", STR("main"), "");
    for (size_t i = 0; i < r->n; i++) {
        AUTO(mem_free)
        char *snapshot = xasprintf("%s/snapshots/%.*s", r->root, STR_ARG(r->files[i].commit));

        remove_one(snapshot, "", r->files[i].file, "");
        (void)rmdir(snapshot);
    }
    for (size_t i = 0; i < r->n; i++) {
        remove_one(r->root, "blobs/", r->files[i].etag, "");
        remove_one(r->root, "blobs/", r->files[i].etag, ".incomplete");
    }
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        AUTO(mem_free) char *folder = xasprintf("%s/%s", r->root, folders[i]);

        (void)rmdir(folder);
    }
    (void)rmdir(r->root);
}

/* Takes what who downloads one of its files would hold. */
static bool nobody_downloads(const struct repository *r, int *fds)
{
    for (size_t i = 0; i < r->n; i++) {
        AUTO(mem_free) char *path = xasprintf("%s/%.*s.lock", r->locks, STR_ARG(r->files[i].etag));

        if (is_among(r, i, r->files[i].etag))
            continue; /* ours already */
        fds[i] = open(path, O_RDWR | O_CLOEXEC);
        if (fds[i] >= 0 && flock(fds[i], LOCK_EX | LOCK_NB) < 0)
            return false;
    }
    return true;
}

static bool remove_if_ours(const struct repository *r)
{
    int *fds = xcalloc(r->n + 1, sizeof(*fds));
    bool gone;

    memset(fds, 0xff, r->n * sizeof(*fds));
    gone = nobody_downloads(r, fds) && all_are(r, "", is_our_part);
    if (gone)
        remove_all(r);
    for (size_t i = 0; i < r->n; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    free(fds);
    return gone;
}

/* Whether it went. It is read again, as somebody may have added to it or removed it meanwhile. */
static bool evict(const char *hub_cache, const struct repository *seen)
{
    int fd = open_locked(seen->ledger, O_RDWR, LOCK_EX | LOCK_NB);
    struct repository r;
    bool gone;

    if (fd < 0)
        return false;
    gone = repository_load(&r, hub_cache, seen->name) && remove_if_ours(&r);
    if (gone) {
        (void)unlink(r.ledger);
        log_info(&LG, "removed from the model cache to make room", LOG_STR("model", r.name),
                 LOG_U64("bytes", r.bytes));
    }
    repository_done(&r);
    (void)close(fd);
    return gone;
}

static int by_use(const void *a, const void *b)
{
    const struct timespec *x = &((const struct repository *)a)->used,
                          *y = &((const struct repository *)b)->used;

    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

static size_t load_all(const char *hub_cache, struct repository **ret, uint64_t *ret_bytes)
{
    AUTO(mem_free) char *ledgers = ledgers_of(hub_cache);
    DIR *dir = opendir(ledgers);
    struct repository *all = NULL;
    const struct dirent *en;
    size_t n = 0;

    *ret_bytes = 0;
    while (dir && (en = readdir(dir)) != NULL) {
        struct repository r;

        if (!str_starts(str_from(en->d_name), STR("models--")))
            continue;
        if (!repository_load(&r, hub_cache, en->d_name)) {
            repository_done(&r);
            continue;
        }
        all = xreallocarray(all, n + 1, sizeof(*all));
        all[n++] = r;
        *ret_bytes += r.bytes;
    }
    if (dir)
        (void)closedir(dir);
    if (n)
        qsort(all, n, sizeof(*all), by_use);
    *ret = all;
    return n;
}

void hub_ledger_trim(const char *hub_cache, uint64_t max_bytes, struct hub_room *ret)
{
    struct repository *all;
    size_t n;

    *ret = (struct hub_room){0};
    n = load_all(hub_cache, &all, &ret->bytes);
    for (size_t i = 0; i < n; i++) {
        if (ret->bytes > max_bytes && evict(hub_cache, &all[i])) {
            ret->bytes -= all[i].bytes;
            ret->evicted++;
        }
        repository_done(&all[i]);
    }
    free(all);
    if (ret->bytes > max_bytes)
        log_warn(&LG,
                 "the model cache is above its bound: all in it is in use, or others added to it",
                 LOG_U64("bytes", ret->bytes), LOG_U64("of", max_bytes));
}
