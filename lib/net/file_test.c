/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/file.h"
#include "lib/base/test.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static void files_are_appended_within_the_limit(void **state)
{
    char path[] = "/tmp/file_test.XXXXXX";
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct err e;
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(file_write_all(fd, STR("hello")), 0);
    (void)close(fd);
    buf_put_cstr(&out, "say ");
    EXPECT_OK(file_read(path, 5, &out, &e), &e);
    assert_string_equal(buf_cstr(&out), "say hello");
    assert_int_equal(file_read(path, 4, &out, &e), -EFBIG);
    assert_non_null(strstr(e.text, "is larger than 4 bytes"));
    (void)unlink(path);
    assert_int_equal(file_read(path, 4, &out, &e), -ENOENT);
    assert_non_null(strstr(e.text, "No such file"));
    assert_int_equal(file_read("/tmp", 4, &out, &e), -EISDIR);
}

static void a_full_disk_is_told(void **state)
{
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(file_write_all(fd, STR("x")), -ENOSPC);
    assert_int_equal(file_write_all(fd, STR_NULL), 0);
    (void)close(fd);
}

int main(void)
{
    return TEST_RUN(T(files_are_appended_within_the_limit), T(a_full_disk_is_told));
}
