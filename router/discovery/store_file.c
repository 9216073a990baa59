/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File store (wire.md §2.4): one directory per bucket, one file per record.
 *
 * Liveness is the file's time of change: the owner renews it, and everyone deletes what is older
 * than TTL. Publishing links a complete file to its name, the one way that readers of every
 * release notice. Reading trusts no event: a file that was caught half written is read again when
 * it is closed, and the periodic sweep looks at everything. Without events the sweep alone does.
 *
 * Files are small and local, so they are read on the loop.
 *
 * What took the files of many away at once is told as an interruption (`state`): the directory is
 * gone or another one, or this machine slept, so that every life sign looks old. So a deleted file is
 * answered a moment later, when it shows whether its directory goes too.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/digest.h"
#include "lib/base/json_pull.h"
#include "lib/base/log.h"
#include "lib/base/strmap.h"
#include "lib/net/file.h"
#include "lib/net/fswatch.h"
#include "router/discovery/store.h"

static const struct log_target LG = {"dynamo_runtime::storage::kv::file"};

enum {
    TTL_MS = 10000,
    SWEEP_MS = 3000,
    SETTLE_MS = 20, /* from a file's end to its answer; rm -r is faster */
    N_BUCKETS = RECORD_EVENT_SOURCE + 1
};

struct bucket {
    struct store_file *store;
    char *dir;
    const char *name; /* "v1/instances" */
    struct fswatch *watch;
    ino_t ino; /* of the directory that is watched */
};

/* A file that is there. */
struct entry {
    char *json; /* last good content, NULL = none yet */
    ino_t ino;  /* of the file that it was read from */
    off_t n_bytes;
    bool seen; /* in the sweep that runs */
    bool bad_logged;
};

/* A record of ours. */
struct own {
    char *path;
    char *json;
};

struct store_file {
    struct store base;
    char *root;
    struct bucket buckets[N_BUCKETS];
    struct strmap *entries; /* "bucket/file name" → struct entry */
    struct strmap *own;     /* path → struct own */
    struct timer *sweep, *settle;
    uint64_t swept_ms;     /* by the wall clock */
    uint64_t no_expiry_ms; /* until then no life sign counts as too old */
    struct store_watcher watcher;
    void *arg;
    bool watching;
    bool blind;     /* a directory is, or was, without a watch; said once */
    bool read_anew; /* events were lost: the next complete sweep reads every file */
    struct store_stats stats;
};

static struct store_file *of(struct store *s)
{
    return CONTAINER_OF(s, struct store_file, base);
}

static void entry_free(void *value)
{
    struct entry *en = value;

    free(en->json);
    free(en);
}

static void own_free(void *value)
{
    struct own *o = value;

    free(o->path);
    free(o->json);
    free(o);
}

/* --- reading ---------------------------------------------------------------------------------- */

static bool is_whole_json(struct str text)
{
    struct json_pull p;

    json_pull_init(&p, text);
    (void)json_pull_skip(&p, NULL);
    return json_pull_end(&p, NULL) == 0;
}

/* False when it is gone or cannot be read. */
static bool record_read(const char *path, struct buf *out, struct stat *ret_st)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st = {0};
    ssize_t n;

    if (fd < 0)
        return false;
    while (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && out->len <= RECORD_BYTES_MAX) {
        n = read(fd, buf_reserve(out, 8192), 8192);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        buf_commit(out, (size_t)n);
    }
    (void)close(fd);
    *ret_st = st;
    return true;
}

static void entry_bad(struct store_file *f, struct entry *en, const char *path, size_t n_bytes)
{
    /* Nothing is wrong with a file that is still being written; the sweep will tell. */
    if (en->bad_logged || n_bytes == 0)
        return;
    en->bad_logged = true;
    f->stats.bad++;
    log_warn(&LG, "record is not JSON yet", LOG_STR("path", path), LOG_U64("bytes", n_bytes));
}

static struct entry *entry_need(struct store_file *f, struct str key)
{
    struct entry *en = strmap_get(f->entries, key);

    if (en)
        return en;
    if (strmap_len(f->entries) >= STORE_RECORDS_MAX) {
        f->stats.dropped++;
        return NULL;
    }
    en = xcalloc(1, sizeof(*en));
    (void)strmap_set(f->entries, key, en);
    return en;
}

static void file_gone(struct store_file *f, struct str key)
{
    AUTO(mem_free) char *name = str_dup(key); /* @key may be the map's own */
    struct entry *en = strmap_remove(f->entries, key);

    if (!en)
        return;
    if (en->json && f->watching) {
        f->stats.gones++;
        f->watcher.gone(f->arg, str_slice(name, key.len), STORE_END_SILENT);
    }
    entry_free(en);
}

static void file_seen(struct bucket *b, const char *name)
{
    AUTO(mem_free) char *path = xasprintf("%s/%s", b->dir, name);
    AUTO(mem_free) char *key = xasprintf("%s/%s", b->name, name);
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct store_file *f = b->store;
    struct entry *en;
    struct stat st;

    if (!record_read(path, &text, &st)) {
        file_gone(f, str_from(key));
        return;
    }
    en = entry_need(f, str_from(key));
    if (!en)
        return;
    en->seen = true;
    if (!is_whole_json(buf_str(&text))) {
        entry_bad(f, en, path, text.len);
        return;
    }
    en->ino = st.st_ino;
    en->n_bytes = st.st_size;
    if (en->json && str_eq(str_from(en->json), buf_str(&text)))
        return;
    free(en->json);
    en->json = buf_take_cstr(&text);
    f->stats.puts++;
    f->watcher.put(f->arg, str_from(key), str_from(en->json));
}

/* mkdir -p */
static int make_dirs(const char *path, struct err *e)
{
    AUTO(mem_free) char *part = xstrdup(path);

    for (char *at = part + 1; *at; at++) {
        if (*at != '/')
            continue;
        *at = '\0';
        (void)mkdir(part, 0755); /* the last one tells */
        *at = '/';
    }
    if (mkdir(part, 0755) < 0 && errno != EEXIST)
        return err_errno(e, -errno, "create directory '%s'", path);
    return 0;
}

/* --- sweeping --------------------------------------------------------------------------------- */

static uint64_t age_ms(const struct stat *st)
{
    uint64_t now = clock_wall_ms();
    uint64_t then = (uint64_t)st->st_mtim.tv_sec * 1000 + (uint64_t)st->st_mtim.tv_nsec / 1000000;

    return now > then ? now - then : 0;
}

static bool is_temporary(const char *name)
{
    return name[0] == '.';
}

/* Reads a file again only if it is another one: writing in place is told by an event, if none was
 * lost. */
static void file_swept(struct bucket *b, const char *name, const struct stat *st)
{
    AUTO(mem_free) char *key = xasprintf("%s/%s", b->name, name);
    struct entry *en = strmap_get(b->store->entries, str_from(key));

    if (!b->store->read_anew && en && en->json && en->ino == st->st_ino &&
        en->n_bytes == st->st_size)
        en->seen = true;
    else
        file_seen(b, name);
}

/* False when the directory cannot be read: then nothing in it is known to be gone. */
static bool bucket_sweep(struct bucket *b)
{
    DIR *d = opendir(b->dir);
    struct dirent *file;
    struct stat st;

    if (!d)
        return false;
    while ((file = readdir(d))) {
        if (is_temporary(file->d_name) ||
            fstatat(dirfd(d), file->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
            continue;
        if (age_ms(&st) > TTL_MS && b->store->no_expiry_ms <= clock_wall_ms())
            (void)unlinkat(dirfd(d), file->d_name, 0);
        else if (b->store->watching)
            file_swept(b, file->d_name, &st);
    }
    (void)closedir(d);
    return true;
}

static void forget_unseen(struct store_file *f)
{
    struct str key;
    void *value;

    for (size_t at = 0; strmap_next(f->entries, &at, &key, &value);)
        if (!((struct entry *)value)->seen)
            file_gone(f, key);
}

static void up_tell(struct store_file *f, bool up, const char *why)
{
    if (f->stats.up != up && f->watching && f->watcher.state)
        f->watcher.state(f->arg, up, why);
    f->stats.up = up;
}

static void sweep_all(struct store_file *f)
{
    bool complete = true;
    struct str key;
    void *value;

    for (size_t at = 0; strmap_next(f->entries, &at, &key, &value);)
        ((struct entry *)value)->seen = false;
    for (size_t i = 0; i < N_BUCKETS; i++)
        complete &= bucket_sweep(&f->buckets[i]);
    if (f->watching && complete)
        forget_unseen(f);
    f->read_anew &= !complete;
    up_tell(f, complete, complete ? f->root : "a directory cannot be read");
}

static void on_file(void *arg, const char *name, bool gone)
{
    struct bucket *b = arg;

    if (!name) {
        b->store->read_anew = true;
        sweep_all(b->store);
    } else if (!is_temporary(name) && !gone) {
        file_seen(b, name);
    } else if (!is_temporary(name) && !timer_active(b->store->settle)) {
        timer_start(b->store->settle, SETTLE_MS);
    }
}

/*
 * The kernel gives a user few watches, and other programs may hold them all. Then sweeps alone tell,
 * every SWEEP_MS, until there is one to have.
 */
static int bucket_watch(struct bucket *b, struct err *e)
{
    struct store_file *f = b->store;
    int r = fswatch_start(&b->watch, f->base.loop, b->dir, on_file, b, e);

    if (r != -EMFILE && r != -ENOSPC)
        return r;
    if (!f->blind)
        log_warn(&LG, "no file watch is left for this user, will look every few seconds instead",
                 LOG_STR("why", e->text));
    f->blind = true;
    return 0;
}

/* Makes the directory if it must, and watches it. */
static int bucket_open(struct bucket *b, struct err *e)
{
    struct stat st;
    int r = make_dirs(b->dir, e);

    if (r < 0)
        return r;
    b->watch = fswatch_stop(b->watch);
    if (b->store->watching)
        r = bucket_watch(b, e);
    b->ino = r == 0 && stat(b->dir, &st) == 0 ? st.st_ino : 0;
    return r;
}

static bool bucket_intact(const struct bucket *b)
{
    struct stat st;

    return stat(b->dir, &st) == 0 && st.st_ino == b->ino;
}

static void renew_all(struct store_file *f);

/* Directories that are gone are made again, and all looked at anew. */
static void check_all(struct store_file *f)
{
    struct err e;
    bool intact = true;

    for (size_t i = 0; i < N_BUCKETS; i++) {
        if (bucket_intact(&f->buckets[i])) {
            if (f->watching && !f->buckets[i].watch) {
                f->read_anew = true;
                (void)bucket_watch(&f->buckets[i], &e);
            }
            continue;
        }
        if (intact)
            up_tell(f, false, "a directory was deleted; it is made again");
        intact = false;
        f->read_anew = true;
        if (bucket_open(&f->buckets[i], &e) < 0)
            log_warn(&LG, "directory cannot be watched, will retry", LOG_STR("why", e.text));
    }
    if (!intact)
        renew_all(f); /* before the sweep: ours are not gone */
    sweep_all(f);
}

static void on_settled(void *arg)
{
    check_all(arg);
}

static int file_watch(struct store *s, const struct store_watcher *w, void *arg, struct err *e)
{
    struct store_file *f = of(s);
    int r;

    f->watcher = *w;
    f->arg = arg;
    f->watching = true;
    /* Watch first, then look: what happens in between is seen twice rather than never. */
    for (size_t i = 0; i < N_BUCKETS; i++) {
        r = bucket_open(&f->buckets[i], e);
        if (r < 0)
            return r;
    }
    f->stats.up = true;
    sweep_all(f);
    if (w->synced)
        w->synced(arg);
    return 0;
}

static void file_unwatch(struct store *s)
{
    struct store_file *f = of(s);

    f->watching = false;
    timer_stop(f->settle);
    for (size_t i = 0; i < N_BUCKETS; i++)
        f->buckets[i].watch = fswatch_stop(f->buckets[i].watch);
}

/* --- publishing ------------------------------------------------------------------------------- */

static void name_put(struct buf *out, struct str key)
{
    for (size_t i = 0; i < key.len; i++) {
        unsigned char c = (unsigned char)key.ptr[i];

        if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'))
            buf_put_char(out, (char)c);
        else
            buf_printf(out, "%%%02X", c);
    }
}

/* A complete file under a temporary name outside the bucket, then link(2) to its own. */
static int own_write(struct store_file *f, const struct own *o, struct err *e)
{
    AUTO(mem_free)
    char *temp = xasprintf("%s/.tmp_%016llx", f->root, (unsigned long long)random_u64());
    int r, fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

    if (fd < 0)
        return err_errno(e, -errno, "create '%s'", temp);
    r = file_write_all(fd, str_from(o->json));
    if (close(fd) < 0 && r == 0)
        r = -errno;
    if (r == 0)
        (void)unlink(o->path);
    if (r == 0 && link(temp, o->path) < 0)
        r = -errno;
    (void)unlink(temp);
    return r < 0 ? err_errno(e, r, "publish '%s'", o->path) : 0;
}

static void renew_all(struct store_file *f)
{
    struct str path;
    void *value;

    for (size_t at = 0; strmap_next(f->own, &at, &path, &value);) {
        struct own *o = value;
        struct err e;

        if (utimensat(AT_FDCWD, o->path, NULL, 0) == 0)
            continue;
        /* Someone thought us dead, after a long stop perhaps. */
        if (own_write(f, o, &e) < 0) {
            f->stats.publish_failures++;
            log_warn(&LG, "record cannot be renewed", LOG_STR("why", e.text));
        }
    }
}

/* Who slept has renewed nothing and saw nothing renewed: all get the time to. */
static void note_pause(struct store_file *f)
{
    uint64_t now = clock_wall_ms();

    if (now > f->swept_ms + TTL_MS) {
        f->no_expiry_ms = now + TTL_MS;
        f->read_anew = true;
        up_tell(f, false, "this process or machine was stopped for a while");
    }
    f->swept_ms = now;
}

static void on_sweep(void *arg)
{
    struct store_file *f = arg;

    note_pause(f);
    check_all(f);
    renew_all(f);
}

static char *path_of(struct store_file *f, const struct record *rec)
{
    AUTO(buf_done) struct buf key = BUF_NULL;
    struct buf path = BUF_NULL;

    record_key_put(&key, rec);
    buf_printf(&path, "%s/", f->buckets[rec->kind].dir);
    name_put(&path, buf_str(&key));
    return buf_take_cstr(&path);
}

static int file_publish(struct store *s, const struct record *rec, struct err *e)
{
    struct store_file *f = of(s);
    AUTO(buf_done) struct buf json = BUF_NULL;
    struct own *o = xcalloc(1, sizeof(*o));
    struct own *old;
    int r;

    record_put(&json, rec, true);
    o->path = path_of(f, rec);
    o->json = buf_take_cstr(&json);
    r = own_write(f, o, e);
    if (r < 0) {
        f->stats.publish_failures++;
        own_free(o);
        return r;
    }
    old = strmap_set(f->own, str_from(o->path), o);
    if (old)
        own_free(old);
    if (s->published)
        s->published(s->published_arg, 0, "");
    return 0;
}

static void file_withdraw(struct store *s, const struct record *rec)
{
    struct store_file *f = of(s);
    AUTO(mem_free) char *path = path_of(f, rec);
    struct own *o = strmap_remove(f->own, str_from(path));

    if (!o)
        return;
    (void)unlink(o->path);
    own_free(o);
}

/* --- life ------------------------------------------------------------------------------------- */

static struct store_stats file_stats(const struct store *s)
{
    const struct store_file *f = (const struct store_file *)(const void *)s;
    struct store_stats st = f->stats;

    st.records = strmap_len(f->entries);
    return st;
}

static void file_free(struct store *s)
{
    struct store_file *f = of(s);
    struct str key;
    void *value;

    for (size_t at = 0; f->own && strmap_next(f->own, &at, &key, &value);)
        (void)unlink(((struct own *)value)->path);
    f->sweep = timer_free(f->sweep);
    f->settle = timer_free(f->settle);
    for (size_t i = 0; i < N_BUCKETS; i++) {
        f->buckets[i].watch = fswatch_stop(f->buckets[i].watch);
        free(f->buckets[i].dir);
    }
    (void)strmap_free_with(f->entries, entry_free);
    (void)strmap_free_with(f->own, own_free);
    free(f->root);
    free(f);
}

static const struct store_ops file_ops = {
    .watch = file_watch,
    .unwatch = file_unwatch,
    .publish = file_publish,
    .withdraw = file_withdraw,
    .stats = file_stats,
    .free = file_free,
};

int store_file_new(struct store **ret, struct loop *l, const char *root, struct err *e)
{
    struct store_file *f = xcalloc(1, sizeof(*f));
    AUTO(store_free) struct store *s = &f->base;
    int r;

    f->base = (struct store){.ops = &file_ops, .loop = l, .instance_id = random_u64()};
    f->root = xstrdup(root && *root ? root : "/tmp/dynamo_store_kv");
    f->entries = strmap_new();
    f->own = strmap_new();
    for (unsigned i = 0; i < N_BUCKETS; i++) {
        struct bucket *b = &f->buckets[i];

        b->store = f;
        b->name = record_bucket((enum record_kind)i);
        b->dir = xasprintf("%s/%s", f->root, b->name);
        r = bucket_open(b, e);
        if (r < 0)
            return err_wrap(e, r, "file discovery");
    }
    f->sweep = timer_new(l, on_sweep, f);
    f->settle = timer_new(l, on_settled, f);
    f->swept_ms = clock_wall_ms();
    timer_start_repeat(f->sweep, SWEEP_MS);
    *ret = TAKE(s);
    return 0;
}
