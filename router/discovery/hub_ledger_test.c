/* SPDX-License-Identifier: Apache-2.0 */
/* A cache whose repositories are made by hand: what goes, what stays, and who is to blame for it. */
#include "router/discovery/hub_ledger.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/base/test.h"
#include "router/discovery/model_download.h"
#include "router/wire/walk.h"

enum { BLOB_BYTES = 1000 };

#define L(fn) cmocka_unit_test_setup_teardown(fn, init, done)

static char root[64];

static int init(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof(root), "/tmp/hub_ledger_test.XXXXXX");
    assert_non_null(mkdtemp(root));
    return log_setup("off", false, NULL);
}

static int done(void **state)
{
    (void)state;
    remove_tree(root);
    return 0;
}

static bool is_there(const char *path)
{
    AUTO(mem_free) char *whole = xasprintf("%s/%s", root, path);
    struct stat st;

    return lstat(whole, &st) == 0;
}

static void put(const char *folder, const char *name, size_t n)
{
    AUTO(mem_free) char *dir = xasprintf("%s/%s", root, folder);
    AUTO(mem_free) char *path = xasprintf("%s/%s", dir, name);
    FILE *f;
    struct err e;

    EXPECT_OK(model_folder_make(dir, &e), &e);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fprintf(f, "%0*d", (int)n, 0), n);
    assert_int_equal(fclose(f), 0);
}

/* As model_hub_get() does; the hold is the caller's. */
static struct hub_hold *download(const char *folder, const char *etag, const char *commit,
                                 const char *file)
{
    const struct hub_entry entry = {str_from(etag), str_from(commit), str_from(file)};
    AUTO(mem_free) char *blobs = xasprintf("%s/blobs", folder);
    AUTO(mem_free) char *blob = xasprintf("%s/%s", blobs, etag);
    AUTO(mem_free) char *snapshot = xasprintf("%s/snapshots/%s", folder, commit);
    AUTO(mem_free) char *refs = xasprintf("%s/refs", folder);
    AUTO(mem_free) char *locks = xasprintf(".locks/%s", folder);
    AUTO(mem_free) char *lock = xasprintf("%s.lock", etag);
    struct hub_hold *h = NULL;
    struct err e;

    EXPECT_OK(hub_hold_new(&h, root, folder, true, &e), &e);
    EXPECT_OK(hub_hold_add(h, &entry, is_there(blob), &e), &e);
    put(blobs, etag, BLOB_BYTES);
    put(locks, lock, 1);
    put(snapshot, file, 1); /* a link elsewhere */
    put(refs, "main", 1);
    return h;
}

static void add(const char *folder)
{
    hub_hold_free(download(folder, "e1", "c1", "config.json"));
    hub_hold_free(download(folder, "e2", "c1", "tokenizer.json"));
}

static struct hub_room trim(uint64_t max)
{
    struct hub_room room;

    hub_ledger_trim(root, max, &room);
    return room;
}

static void the_longest_unused_goes(void **state)
{
    struct hub_hold *h = NULL;
    struct hub_room room;
    struct err e;

    (void)state;
    add("models--a");
    add("models--b");
    add("models--c");
    room = trim(6 * BLOB_BYTES);
    assert_int_equal(room.evicted, 0);
    assert_int_equal(room.bytes, 6 * BLOB_BYTES);
    EXPECT_OK(hub_hold_new(&h, root, "models--a", false, &e), &e); /* used once more */
    assert_non_null(h);
    h = hub_hold_free(h);
    room = trim(6 * BLOB_BYTES - 1);
    assert_int_equal(room.evicted, 1);
    assert_int_equal(room.bytes, 4 * BLOB_BYTES);
    assert_false(is_there("models--b"));
    assert_false(is_there(".commutator/hub/models--b"));
    assert_true(is_there("models--a/blobs/e2") && is_there("models--c/snapshots/c1/config.json"));
    room = trim(0);
    assert_int_equal(room.evicted, 2);
    assert_int_equal(room.bytes, 0);
    assert_false(is_there("models--a") || is_there("models--c"));
    EXPECT_OK(hub_hold_new(&h, root, "models--a", false, &e), &e); /* nothing to hold */
    assert_null(h);
}

/* Another process that holds @folder, says so, and ends when told to. */
static pid_t start_user(const char *folder, int *ret_end)
{
    int ready[2], end[2];
    char c;
    pid_t pid;

    assert_int_equal(pipe(ready) | pipe(end), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct hub_hold *h = NULL;
        bool ok = hub_hold_new(&h, root, folder, false, NULL) == 0 && h;

        (void)close(end[1]);
        ok = write(ready[1], "x", 1) == 1 && ok;
        _exit(read(end[0], &c, 1) == 0 && ok ? 0 : 1);
    }
    (void)close(end[0]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    (void)close(ready[0]);
    (void)close(ready[1]);
    *ret_end = end[1];
    return pid;
}

static void what_is_in_use_stays(void **state)
{
    struct hub_hold *h = NULL;
    struct err e;
    int end, status;
    pid_t pid;

    (void)state;
    add("models--a");
    add("models--b");
    add("models--c");
    EXPECT_OK(hub_hold_new(&h, root, "models--a", false, &e), &e);
    pid = start_user("models--b", &end);
    assert_int_equal(trim(0).evicted, 1);
    assert_true(is_there("models--a/blobs/e1") && is_there("models--b/blobs/e1"));
    assert_false(is_there("models--c"));
    (void)close(end);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(trim(0).evicted, 1);
    assert_false(is_there("models--b"));
    hub_hold_free(h);
    assert_int_equal(trim(0).evicted, 1);
}

/* Hugging Face's client adds weights, a form of its own, or what it knows to be absent. */
static void what_others_added_to_stays(void **state)
{
    static const struct {
        const char *folder, *name;
    } cases[] = {{"models--a/blobs", "weights"},
                 {"models--a/blobs", "other.incomplete"},
                 {"models--a/snapshots/c1", "model.safetensors"},
                 {"models--a/snapshots/c2", "config.json"},
                 {"models--a/refs", "v1"},
                 {"models--a/.no_exist/c1", "chat_template.jinja"}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(mem_free) char *path = xasprintf("%s/%s/%s", root, cases[i].folder, cases[i].name);
        AUTO(mem_free) char *folder = xasprintf("%s/%s", root, cases[i].folder);

        add("models--a");
        put(cases[i].folder, cases[i].name, 1);
        assert_int_equal(trim(0).evicted, 0);
        assert_true(is_there("models--a/blobs/e1"));
        assert_int_equal(unlink(path), 0);
        (void)rmdir(folder);
        if (strstr(folder, ".no_exist")) {
            *strrchr(folder, '/') = '\0';
            assert_int_equal(rmdir(folder), 0);
        }
        assert_int_equal(trim(0).evicted, 1);
    }
}

/* A blob that was there before us is of who put it there, although we link to it. */
static void what_others_downloaded_is_not_listed(void **state)
{
    (void)state;
    put("models--a/blobs", "e1", BLOB_BYTES);
    add("models--a");
    assert_int_equal(trim(BLOB_BYTES).bytes, BLOB_BYTES); /* e2 alone is ours */
    assert_int_equal(trim(0).evicted, 0);
    assert_true(is_there("models--a/snapshots/c1/config.json"));
}

static void who_downloads_is_left_alone(void **state)
{
    AUTO(mem_free) char *path = xasprintf("%s/.locks/models--a/e1.lock", root);
    int fd;

    (void)state;
    add("models--a");
    put("models--a/blobs", "e1.incomplete", 10);
    fd = open(path, O_RDWR);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(trim(0).evicted, 0);
    (void)close(fd);
    assert_int_equal(trim(0).evicted, 1); /* with what was broken off */
    assert_false(is_there("models--a"));
}

static void several_forms_of_a_file(void **state)
{
    (void)state;
    add("models--a");
    hub_hold_free(download("models--a", "e1", "c2", "config.json")); /* the same bytes */
    hub_hold_free(download("models--a", "e1", "c2", "config.json")); /* once more: one line */
    assert_int_equal(trim(UINT64_MAX).bytes, 2 * BLOB_BYTES);
    assert_int_equal(trim(0).evicted, 1);
    assert_false(is_there("models--a"));
}

/* On a volume that others write, too: nothing outside the repository is named by it. */
static void damaged_ledgers(void **state)
{
    static const char text[] = "../../x c1 config.json\n"
                               "e1 .. config.json\n"
                               "e1 c1 a/b\n"
                               "e1 c1\n"
                               "\n"
                               "e9 c9 f 9\n"
                               "e2 c1 tokenizer.json";
    struct str rest = STR(text);
    struct hub_entry x;

    (void)state;
    assert_true(hub_entry_next(&rest, &x));
    assert_true(str_is(x.etag, "e2") && str_is(x.commit, "c1") && str_is(x.file, "tokenizer.json"));
    assert_false(hub_entry_next(&rest, &x));
    put(".commutator/hub", "models--a", HUB_LEDGER_BYTES_MAX + 1);
    put(".commutator/hub", "else", 5);
    put("models--a/blobs", "e1", 5);
    assert_int_equal(trim(0).evicted, 0);
    assert_true(is_there("models--a/blobs/e1"));
}

int main(void)
{
    return TEST_RUN(L(the_longest_unused_goes), L(what_is_in_use_stays),
                    L(what_others_added_to_stays), L(what_others_downloaded_is_not_listed),
                    L(who_downloads_is_left_alone), L(several_forms_of_a_file), L(damaged_ledgers));
}
