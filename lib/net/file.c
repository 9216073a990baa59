/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { PIECE = 64 << 10 };

int file_read(const char *path, size_t max, struct buf *out, struct err *e)
{
    size_t before = out->len;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;
    int r = 0;

    if (fd < 0)
        return err_errno(e, -errno, "open '%s'", path);
    do {
        n = read(fd, buf_reserve(out, PIECE), PIECE);
        if (n > 0)
            buf_commit(out, (size_t)n);
    } while (n > 0 && out->len - before <= max);
    if (n < 0)
        r = err_errno(e, -errno, "read '%s'", path);
    else if (out->len - before > max)
        r = err_set(e, -EFBIG, "'%s' is larger than %zu bytes", path, max);
    (void)close(fd);
    return r;
}

int file_write_all(int fd, struct str bytes)
{
    while (bytes.len) {
        ssize_t n = write(fd, bytes.ptr, bytes.len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        bytes = str_skip(bytes, (size_t)n);
    }
    return 0;
}
