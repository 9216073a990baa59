/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/index_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/net/file.h"

enum { PIECE_BYTES = 1 << 20 };

/* --- reading ----------------------------------------------------------------------------------- */

static int map_file(struct index_file *f, int fd, const char *path, struct err *e)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_errno(e, -errno, "read '%s'", path);
    if (st.st_size <= 0 || !S_ISREG(st.st_mode))
        return err_set(e, -EBADMSG, "'%s' is empty", path);
    f->n = (size_t)st.st_size;
    f->bytes = mmap(NULL, f->n, PROT_READ, MAP_PRIVATE, fd, 0);
    if (f->bytes == MAP_FAILED)
        return err_errno(e, -errno, "map '%s'", path);
    (void)madvise(f->bytes, f->n, MADV_SEQUENTIAL);
    return 0;
}

int index_file_open(struct index_file *ret, const char *path, struct err *e)
{
    struct index_file f = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC), r;

    if (fd < 0)
        return err_errno(e, -errno, "open '%s'", path);
    r = map_file(&f, fd, path, e);
    (void)close(fd);
    if (r < 0)
        return r;
    r = index_image_open(&f.image, (struct str){f.bytes, f.n}, e);
    if (r < 0) {
        index_file_close(&f);
        return err_wrap(e, r, "'%s'", path);
    }
    *ret = f;
    return 0;
}

void index_file_close(struct index_file *f)
{
    (void)munmap(f->bytes, f->n);
    *f = (struct index_file){0};
}

/* --- writing ----------------------------------------------------------------------------------- */

static int write_out(const struct index_draft *d, struct buf *b, struct err *e)
{
    int r = file_write_all(d->fd, buf_str(b));

    buf_clear(b);
    return r < 0 ? err_errno(e, r, "write '%s'", d->other_path) : 0;
}

int index_draft_begin(struct index_draft *ret, const char *path,
                      const struct index_image_head *head, struct err *e)
{
    AUTO(buf_done) struct buf b = BUF_NULL;
    struct index_draft d = {.path = xstrdup(path), .other_path = xasprintf("%s.new", path)};
    int r;

    d.fd = open(d.other_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (d.fd < 0) {
        r = err_errno(e, -errno, "open '%s'", d.other_path);
    } else {
        index_image_begin(&d.writer, head, &b);
        r = write_out(&d, &b, e);
    }
    if (r < 0) {
        index_draft_done(&d);
        return r;
    }
    *ret = d;
    return 0;
}

int index_draft_nodes(struct index_draft *d, struct prefix_index *ix, const atomic_bool *stop,
                      struct err *e)
{
    AUTO(buf_done) struct buf b = BUF_NULL;
    bool more = true;
    int r = 0;

    while (more && r == 0) {
        if (atomic_load(stop))
            return err_set(e, -ECANCELED, "stopped");
        more = index_image_nodes(&d->writer, ix, &b);
        if (!more || b.len >= PIECE_BYTES)
            r = write_out(d, &b, e);
    }
    return r;
}

/* The folder's entry must be on disk as well. */
static int sync_folder_of(const char *path, struct err *e)
{
    const char *slash = strrchr(path, '/');
    AUTO(mem_free) char *folder = slash ? xstrndup(path, (size_t)(slash - path) + 1) : xstrdup(".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;

    if (fd < 0)
        return err_errno(e, -errno, "open '%s'", folder);
    if (fsync(fd) < 0)
        r = err_errno(e, -errno, "sync '%s'", folder);
    (void)close(fd);
    return r;
}

int index_draft_end(struct index_draft *d, const struct index_image_worker *workers, size_t n,
                    struct err *e)
{
    AUTO(buf_done) struct buf b = BUF_NULL;
    int r;

    index_image_end(&d->writer, workers, n, &b);
    r = write_out(d, &b, e);
    if (r == 0 && fsync(d->fd) < 0)
        r = err_errno(e, -errno, "sync '%s'", d->other_path);
    if (r == 0 && rename(d->other_path, d->path) < 0)
        r = err_errno(e, -errno, "rename '%s'", d->other_path);
    if (r < 0)
        return r;
    free(d->other_path);
    d->other_path = NULL;
    return sync_folder_of(d->path, e);
}

void index_draft_done(struct index_draft *d)
{
    if (d->fd >= 0 && d->path)
        (void)close(d->fd);
    if (d->other_path)
        (void)unlink(d->other_path);
    free(d->path);
    free(d->other_path);
    *d = (struct index_draft){.fd = -1};
}
