/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: visits every regular file below a directory, in no particular order; removes trees.
 */
#pragma once

#include <dirent.h>
#include <ftw.h>
#include <sys/stat.h>

#include "lib/base/test.h"

typedef void (*walk_fn)(void *arg, const char *path, struct str content);

static inline __attribute__((unused)) void walk(const char *dir, walk_fn fn, void *arg)
{
    DIR *d = opendir(dir);
    struct dirent *entry;

    assert_non_null(d);
    while ((entry = readdir(d))) {
        AUTO(mem_free) char *path = xasprintf("%s/%s", dir, entry->d_name);
        AUTO(buf_done) struct buf content = BUF_NULL;
        struct stat st;

        if (entry->d_name[0] == '.' || lstat(path, &st) < 0)
            continue;
        if (S_ISDIR(st.st_mode)) {
            walk(path, fn, arg);
        } else if (S_ISREG(st.st_mode)) {
            assert_true(test_read_file(path, &content));
            fn(arg, path, buf_str(&content));
        }
    }
    (void)closedir(d);
}

static inline int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

/* A directory of the test's own and all that is in it. */
static inline __attribute__((unused)) void remove_tree(const char *dir)
{
    assert_int_equal(nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}
