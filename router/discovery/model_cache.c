/* SPDX-License-Identifier: Apache-2.0 */
#include "router/discovery/model_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/digest.h"
#include "lib/base/mem.h"
#include "lib/net/file.h"
#include "lib/net/http_fetch.h"
#include "router/discovery/hub_answer.h"

enum {
    FILE_BYTES_MAX = 512 << 20,
    REF_BYTES_MAX = 256,
    SNAPSHOTS_MAX = 64, /* looked through for an older form of a file */
    HOPS_MAX = 5,
};

static const uint64_t KEPT_BYTES = UINT64_C(4) << 30;

/* --- checksums ---------------------------------------------------------------------------------- */

struct mapped {
    void *at;
    size_t len;
};

static bool map(const char *path, struct mapped *ret)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    bool ok;

    if (fd < 0)
        return false;
    *ret = (struct mapped){0};
    ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= FILE_BYTES_MAX;
    if (ok && st.st_size > 0) {
        ret->at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        ret->len = (size_t)st.st_size;
        ok = ret->at != MAP_FAILED;
    }
    (void)close(fd);
    return ok;
}

static void unmap(struct mapped *m)
{
    if (m->len)
        (void)munmap(m->at, m->len);
}

typedef void (*digest_fn)(struct str data, char ret_hex[DIGEST_HEX_SIZE]);

static bool digest_is(const char *path, digest_fn digest, struct str want)
{
    char hex[DIGEST_HEX_SIZE];
    struct mapped m;

    if (!map(path, &m))
        return false;
    digest(str_slice(m.at, m.len), hex);
    unmap(&m);
    return str_is(want, hex);
}

static bool is_hex(struct str s, size_t len)
{
    uint64_t v;

    for (size_t i = 0; i < s.len; i++)
        if (!str_parse_hex64(str_slice(s.ptr + i, 1), &v))
            return false;
    return s.len == len;
}

/* The digits of "blake3:<64 hex>"; empty when it is not one. */
static struct str blake3_of(const char *checksum)
{
    struct str s = str_from(checksum);

    if (!str_starts(s, STR("blake3:")) || !is_hex(str_skip(s, 7), 64))
        return STR_NULL;
    return str_skip(s, 7);
}

bool model_file_is(const char *path, const char *checksum)
{
    struct str want = blake3_of(checksum);

    return want.len && digest_is(path, digest_blake3_hex, want);
}

/* --- the hub's cache ---------------------------------------------------------------------------- */

char *model_hub_cache(const char *(*env)(const char *name))
{
    const char *v;

    if ((v = env("HF_HUB_CACHE")) && *v)
        return xstrdup(v);
    if ((v = env("HF_HOME")) && *v)
        return xasprintf("%s/hub", v);
    if ((v = env("MODEL_EXPRESS_CACHE_PATH")) && *v)
        return xstrdup(v);
    if ((v = env("HOME")) && *v)
        return xasprintf("%s/.cache/huggingface/hub", v);
    return NULL;
}

/* "models--org--name" */
static char *folder_of(const char *name)
{
    AUTO(buf_done) struct buf b = BUF_NULL;

    buf_put_cstr(&b, "models--");
    for (; *name; name++)
        buf_put_cstr(&b, *name == '/' ? "--" : (char[]){*name, '\0'});
    return buf_take_cstr(&b);
}

static bool names_are_valid(const char *name, const char *file)
{
    return hub_name_is_valid(str_from(name)) && hub_word_is_valid(str_from(file));
}

/* The file of one snapshot when it is there and the wanted one; owned. */
static char *in_snapshot(const char *repo, struct str revision, const char *file,
                         const char *checksum)
{
    AUTO(mem_free) char *path = xasprintf("%s/snapshots/%.*s/%s", repo, STR_ARG(revision), file);

    if (access(path, R_OK) < 0 || (checksum && !model_file_is(path, checksum)))
        return NULL;
    return TAKE(path);
}

static char *in_any_snapshot(const char *repo, const char *file, const char *checksum)
{
    AUTO(mem_free) char *path = xasprintf("%s/snapshots", repo);
    DIR *dir = opendir(path);
    char *found = NULL;
    const struct dirent *en;

    if (!dir)
        return NULL;
    for (size_t i = 0; !found && i < SNAPSHOTS_MAX && (en = readdir(dir)) != NULL; i++)
        if (hub_word_is_valid(str_from(en->d_name)))
            found = in_snapshot(repo, str_from(en->d_name), file, checksum);
    (void)closedir(dir);
    return found;
}

char *model_cache_find(const char *hub_cache, const char *name, const char *file,
                       const char *checksum)
{
    AUTO(mem_free) char *folder = NULL, *repo = NULL, *ref = NULL;
    AUTO(buf_done) struct buf revision = BUF_NULL;
    char *found = NULL;

    if (!hub_cache || !names_are_valid(name, file))
        return NULL;
    folder = folder_of(name);
    repo = xasprintf("%s/%s", hub_cache, folder);
    ref = xasprintf("%s/refs/main", repo);
    if (file_read(ref, REF_BYTES_MAX, &revision, NULL) == 0 &&
        hub_word_is_valid(str_trim(buf_str(&revision))))
        found = in_snapshot(repo, str_trim(buf_str(&revision)), file, checksum);
    return found ? found : in_any_snapshot(repo, file, checksum);
}

/* --- writing into it ---------------------------------------------------------------------------- */

/* A name that nobody else writes; what is complete gets the right one. */
static char *name_aside(const char *path)
{
    char suffix[UUID_TEXT_SIZE];

    random_uuid(suffix);
    return xasprintf("%s.%s", path, suffix);
}

static int write_whole(const char *path, struct str bytes, struct err *e)
{
    AUTO(mem_free) char *aside = name_aside(path);
    int fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666), r;

    if (fd < 0)
        return err_errno(e, -errno, "'%s'", aside);
    r = file_write_all(fd, bytes);
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    if (r < 0)
        (void)err_errno(e, r, "'%s'", aside);
    (void)close(fd);
    if (r == 0 && rename(aside, path) < 0)
        r = err_errno(e, -errno, "'%s'", path);
    if (r < 0)
        (void)unlink(aside);
    return r;
}

static int link_whole(const char *path, const char *target, struct err *e)
{
    AUTO(mem_free) char *aside = name_aside(path);
    char now[4096];
    ssize_t n = readlink(path, now, sizeof(now));

    if (n > 0 && str_is(str_slice(now, (size_t)n), target))
        return 0;
    if (symlink(target, aside) < 0)
        return err_errno(e, -errno, "'%s'", aside);
    if (rename(aside, path) < 0) {
        int error = errno;

        (void)unlink(aside);
        return err_errno(e, -error, "'%s'", path);
    }
    return 0;
}

/* --- the hub ------------------------------------------------------------------------------------ */

struct asking {
    struct hub_answer *a;
    const struct model_stop *stop;
};

static void on_header(void *arg, struct str name, struct str value)
{
    const struct asking *q = arg;

    hub_answer_add(q->a, name, value);
}

static bool on_cancelled(void *arg)
{
    const struct asking *q = arg;

    return q->stop->asked && q->stop->asked(q->stop->arg);
}

/* Scheme and host of a URL. */
static struct str origin_of(const char *url)
{
    struct str s = str_from(url);
    size_t at = str_index(s, ':');

    if (at + 3 > s.len)
        return s;
    at += 3;
    return str_head(s, at + str_index(str_skip(s, at), '/'));
}

struct asked {
    struct hub_answer a;
    char *url; /* owned: where the file is to be had */
};

/* -EAGAIN: it may be another time. */
static int say_status(const struct model_places *p, const char *url, int status, struct err *e)
{
    if (status == 401 || status == 403)
        return err_set(e, -EACCES, "%s: status %d, %s", url, status,
                       p->token ? "HF_TOKEN gives no access" : "HF_TOKEN is not set");
    if (status == 404)
        return err_set(e, -ENOENT, "%s: the hub does not have it", url);
    return err_set(e, status == 429 || status >= 500 ? -EAGAIN : -EIO, "%s: status %d", url,
                   status);
}

/* One HEAD. 0, -errno, or HOP with a->location set. */
enum { HOP = 1 };

static int ask_once(const struct model_places *p, const char *url, struct hub_answer *a,
                    struct err *e)
{
    struct asking q = {a, &p->stop};
    int status = 0, r;

    *a = hub_answer_none();
    r = http_fetch(&(struct http_fetch_spec){.url = url,
                                             .bearer = p->token,
                                             .head_only = true,
                                             .header = on_header,
                                             .cancelled = on_cancelled,
                                             .arg = &q},
                   &status, e);
    if (r < 0)
        return r == -EINVAL || r == -EACCES || r == -ECANCELED ? r : -EAGAIN;
    if (status >= 300 && status < 400 && a->location[0] == '/')
        return HOP;
    if (status != 200 && !(status >= 300 && status < 400 && a->linked))
        return say_status(p, url, status, e);
    if (!a->etag[0] || !a->commit[0])
        return err_set(e, -EPROTO, "%s: no ETag or X-Repo-Commit: is HF_ENDPOINT a model hub?",
                       url);
    return 0;
}

/*
 * What the hub has under @url. A redirect within the hub is a renamed repository and is followed,
 * one to elsewhere leads to the bytes and is not.
 */
static int ask_hub(const struct model_places *p, const char *url, struct asked *ret, struct err *e)
{
    AUTO(mem_free) char *at = xstrdup(url);
    unsigned hops = 0, failures = 0;
    struct hub_answer a;

    for (;;) {
        int r = ask_once(p, at, &a, e);
        char *next;

        if (r == 0)
            break;
        if (r == -EAGAIN && ++failures < MODEL_DOWNLOAD_ATTEMPTS) {
            if (!model_stop_pause(&p->stop, p->backoff_ms ? p->backoff_ms << failures : 1000))
                return err_set(e, -ECANCELED, "%s: stopped", url);
            continue;
        }
        if (r < 0)
            return r == -EAGAIN ? -EIO : r;
        if (++hops > HOPS_MAX)
            return err_set(e, -ELOOP, "%s: too many redirects", url);
        next = xasprintf("%.*s%s", STR_ARG(origin_of(at)), a.location);
        free(at);
        at = next;
    }
    *ret = (struct asked){a, TAKE(at)};
    return 0;
}

/* What an etag of a hub is: SHA-256 of a large file, git's name of a small one; of a mirror: a word. */
static bool is_blob(const void *arg, const char *path)
{
    const struct asked *q = arg;
    struct str etag = str_from(q->a.etag);
    struct stat st;

    if (stat(path, &st) < 0 || (q->a.size != HUB_SIZE_UNKNOWN && (uint64_t)st.st_size != q->a.size))
        return false;
    if (is_hex(etag, 64))
        return digest_is(path, digest_sha256_hex, etag);
    return !is_hex(etag, 40) || digest_is(path, digest_git_blob_hex, etag);
}

static int hub_store(const struct model_places *p, const char *name, const char *file,
                     const struct asked *q, struct hub_hold **hold, char **ret_path, struct err *e)
{
    AUTO(mem_free) char *folder = folder_of(name);
    AUTO(mem_free) char *repo = xasprintf("%s/%s", p->hub_cache, folder);
    AUTO(mem_free) char *blobs = xasprintf("%s/blobs", repo);
    AUTO(mem_free) char *refs = xasprintf("%s/refs", repo);
    AUTO(mem_free) char *snapshot = xasprintf("%s/snapshots/%s", repo, q->a.commit);
    AUTO(mem_free) char *locks = xasprintf("%s/.locks/%s", p->hub_cache, folder);
    AUTO(mem_free) char *blob = xasprintf("%s/%s", blobs, q->a.etag);
    AUTO(mem_free) char *lock = xasprintf("%s/%s.lock", locks, q->a.etag);
    AUTO(mem_free) char *ref = xasprintf("%s/main", refs);
    AUTO(mem_free) char *path = xasprintf("%s/%s", snapshot, file);
    AUTO(mem_free) char *target = xasprintf("../../blobs/%s", q->a.etag);
    const char *const folders[] = {blobs, refs, snapshot, locks};
    const struct hub_entry entry = {str_from(q->a.etag), str_from(q->a.commit), str_from(file)};
    int r = *hold ? 0 : hub_hold_new(hold, p->hub_cache, folder, true, e);

    if (r == 0)
        r = hub_hold_add(*hold, &entry, access(blob, F_OK) == 0, e);
    for (size_t i = 0; r == 0 && i < ARRAY_LEN(folders); i++)
        r = model_folder_make(folders[i], e);
    if (r == 0)
        r = model_download(
            &(struct model_download){.url = q->url,
                                     .bearer = p->token,
                                     .path = blob,
                                     .lock = lock,
                                     .size = q->a.size,
                                     .max_bytes = p->max_bytes ? p->max_bytes : FILE_BYTES_MAX,
                                     .backoff_ms = p->backoff_ms,
                                     .check = is_blob,
                                     .check_arg = q,
                                     .stop = p->stop},
            e);
    if (r == 0)
        r = link_whole(path, target, e);
    if (r == 0)
        r = write_whole(ref, str_from(q->a.commit), e);
    if (r == 0)
        *ret_path = TAKE(path);
    return r;
}

int model_hub_hold(const struct model_places *p, const char *name, struct hub_hold **ret,
                   struct err *e)
{
    AUTO(mem_free) char *folder = NULL;

    *ret = NULL;
    if (!p->hub_cache || !hub_name_is_valid(str_from(name)))
        return 0;
    folder = folder_of(name);
    return hub_hold_new(ret, p->hub_cache, folder, false, e);
}

void model_hub_trim(const struct model_places *p, struct hub_room *ret)
{
    hub_ledger_trim(p->hub_cache, p->kept_bytes ? p->kept_bytes : KEPT_BYTES, ret);
}

int model_hub_get(const struct model_places *p, const char *name, const char *file,
                  struct hub_hold **hold, char **ret_path, struct err *e)
{
    AUTO(mem_free) char *url = NULL;
    struct asked q = {.url = NULL};
    struct str endpoint = str_from(p->endpoint);
    int r;

    if (!names_are_valid(name, file))
        return err_set(e, -ENOENT, "'%.100s' is not the name of a model at a hub", name);
    if (p->offline)
        return err_set(e, -ENOENT, "nothing is downloaded: HF_HUB_OFFLINE is set");
    if (!endpoint.len)
        return err_set(e, -ENOENT,
                       "nothing is downloaded: set HF_ENDPOINT to the base URL of "
                       "the model hub or its mirror");
    if (!p->hub_cache)
        return err_set(e, -ENOENT, "no folder to download to: set HF_HOME");
    while (str_ends(endpoint, STR("/")))
        endpoint.len--;
    url = xasprintf("%.*s/%s/resolve/main/%s", STR_ARG(endpoint), name, file);
    r = ask_hub(p, url, &q, e);
    if (r == 0)
        r = hub_store(p, name, file, &q, hold, ret_path, e);
    free(q.url);
    return r;
}

static bool is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* config.json of a repository that is downloaded, or is there. */
static int folder_fetch(const struct model_places *p, const char *name, struct hub_hold **hold,
                        char **ret_config, struct err *e)
{
    static const char *const others[] = {"tokenizer.json", "tokenizer_config.json",
                                         "chat_template.jinja", "generation_config.json"};
    struct hub_room room;
    int r = model_hub_get(p, name, "config.json", hold, ret_config, e);

    for (size_t i = 0; r == 0 && i < ARRAY_LEN(others); i++) {
        AUTO(mem_free) char *path = NULL;

        r = model_hub_get(p, name, others[i], hold, &path, e);
        r = r == -ENOENT ? 0 : r; /* not every model has each */
    }
    if (r == 0)
        model_hub_trim(p, &room);
    return r;
}

int model_folder_get(const struct model_places *p, const char *name, char **ret_dir,
                     struct hub_hold **ret_hold, struct err *e)
{
    AUTO(hub_hold_free) struct hub_hold *hold = NULL;
    AUTO(mem_free) char *config = NULL;
    int r;

    if (is_folder(name)) {
        *ret_dir = xstrdup(name);
        *ret_hold = NULL;
        return 0;
    }
    r = model_hub_hold(p, name, &hold, e);
    if (r == 0)
        config = model_cache_find(p->hub_cache, name, "config.json", NULL);
    if (r == 0 && !config)
        r = folder_fetch(p, name, &hold, &config, e);
    if (r < 0)
        return err_wrap(e, r, "model '%.200s' is no folder here, nor in the cache", name);
    *strrchr(config, '/') = '\0';
    *ret_dir = TAKE(config);
    *ret_hold = TAKE(hold);
    return 0;
}

/* --- what workers serve ------------------------------------------------------------------------- */

static bool is_checksum(const void *arg, const char *path)
{
    return model_file_is(path, arg);
}

/* Where bytes of that checksum are kept; both owned. */
static int kept_at(const struct model_places *p, const char *checksum, char **ret_path,
                   char **ret_lock, struct err *e)
{
    AUTO(mem_free) char *folder = NULL, *locks = NULL;
    struct str hex = blake3_of(checksum);
    int r;

    if (!hex.len)
        return err_set(e, -ENOTSUP, "checksum '%.80s' is not of BLAKE3", checksum);
    if (!p->hub_cache)
        return err_set(e, -ENOENT, "no folder to download to: set HF_HOME");
    folder = xasprintf("%s/.commutator", p->hub_cache);
    locks = xasprintf("%s/.locks/commutator", p->hub_cache);
    r = model_folder_make(folder, e);
    if (r == 0)
        r = model_folder_make(locks, e);
    if (r < 0)
        return r;
    *ret_path = xasprintf("%s/%.*s", folder, STR_ARG(hex));
    *ret_lock = xasprintf("%s/%.*s.lock", locks, STR_ARG(hex));
    return 0;
}

struct kept {
    uint64_t total;
    char *oldest; /* path */
    struct timespec used;
};

static void look(const char *folder, struct kept *ret)
{
    DIR *dir = opendir(folder);
    const struct dirent *en;

    *ret = (struct kept){0};
    while (dir && (en = readdir(dir)) != NULL) {
        AUTO(mem_free) char *path = xasprintf("%s/%s", folder, en->d_name);
        struct stat st;

        if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
            continue;
        ret->total += (uint64_t)st.st_size;
        if (ret->oldest &&
            (st.st_mtim.tv_sec > ret->used.tv_sec ||
             (st.st_mtim.tv_sec == ret->used.tv_sec && st.st_mtim.tv_nsec >= ret->used.tv_nsec)))
            continue;
        free(ret->oldest);
        ret->oldest = TAKE(path);
        ret->used = st.st_mtim;
    }
    if (dir)
        (void)closedir(dir);
}

/* @path is in use now; others go for what there is too much. */
static void keep(const struct model_places *p, const char *path)
{
    AUTO(mem_free) char *folder = xasprintf("%s/.commutator", p->hub_cache);
    uint64_t max = p->kept_bytes ? p->kept_bytes : KEPT_BYTES;
    struct timespec now[2];
    struct kept k;
    bool more = true;

    /* The file system's own clock may tick too slowly to tell who was first. */
    (void)clock_gettime(CLOCK_REALTIME, &now[0]);
    now[1] = now[0];
    (void)utimensat(AT_FDCWD, path, now, 0);
    while (more) {
        look(folder, &k);
        more = k.total > max && strcmp(k.oldest, path) != 0 && unlink(k.oldest) == 0;
        free(k.oldest);
    }
}

int model_worker_get(const struct model_places *p, const char *url, const char *checksum,
                     uint64_t size, char **ret_path, struct err *e)
{
    AUTO(mem_free) char *path = NULL, *lock = NULL;
    int r = kept_at(p, checksum, &path, &lock, e);

    if (r == 0)
        r = model_download(
            &(struct model_download){.url = url,
                                     .path = path,
                                     .lock = lock,
                                     .size = size,
                                     .max_bytes = p->max_bytes ? p->max_bytes : FILE_BYTES_MAX,
                                     .backoff_ms = p->backoff_ms,
                                     .check = is_checksum,
                                     .check_arg = checksum,
                                     .stop = p->stop},
            e);
    if (r < 0)
        return r;
    keep(p, path);
    *ret_path = TAKE(path);
    return 0;
}

int model_bytes_keep(const struct model_places *p, struct str bytes, const char *checksum,
                     char **ret_path, struct err *e)
{
    AUTO(mem_free) char *path = NULL, *lock = NULL;
    char hex[DIGEST_HEX_SIZE];
    int r = kept_at(p, checksum, &path, &lock, e);

    if (r < 0)
        return r;
    digest_blake3_hex(bytes, hex);
    if (!str_is(blake3_of(checksum), hex))
        return err_set(e, -EBADMSG, "its checksum is not the one announced");
    r = model_file_is(path, checksum) ? 0 : write_whole(path, bytes, e);
    if (r < 0)
        return r;
    keep(p, path);
    *ret_path = TAKE(path);
    return 0;
}
