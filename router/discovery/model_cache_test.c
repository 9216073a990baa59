/* SPDX-License-Identifier: Apache-2.0 */
/* Downloads from a hub on loopback that can be slow, wrong, forgetful and closed. */
#include "router/discovery/model_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "lib/base/digest.h"
#include "lib/base/log.h"
#include "lib/base/test.h"
#include "lib/net/http_server.h"
#include "router/wire/walk.h"

enum { FILE_BYTES = 300000, PART_BYTES = 100000 };

static struct {
    pthread_t thread;
    struct loop *loop;
    struct http_server *server, *elsewhere;
    char root[64], url[64];
    struct buf file;
    char git[DIGEST_HEX_SIZE], sha[DIGEST_HEX_SIZE], checksum[80];
    /* What it is to do. */
    atomic_int drops, errors, wrong; /* so many times */
    atomic_int ignores_range, closed, linked, renamed, no_etag;
    /* What was asked. */
    atomic_int heads, gets, ranges, with_token, leaked;
} hub;

static bool has_token(struct http_exchange *x)
{
    return str_is(http1_header_get(http_request(x), "authorization"), "Bearer secret-1");
}

/* The bytes, as far as the moods of the hub let them through. */
static void answer_bytes(struct http_exchange *x)
{
    struct str range = http1_header_get(http_request(x), "range"), bytes = buf_str(&hub.file), word;
    AUTO(mem_free) char *said = NULL, *damaged = NULL;
    uint64_t from = 0;

    if (str_is(http_request(x)->method, "HEAD")) {
        http_respond(x, 200, NULL, bytes);
        return;
    }
    if (range.len && !atomic_load(&hub.ignores_range)) {
        (void)str_cut(&range, '=', &word);
        (void)str_cut(&range, '-', &word);
        assert_true(str_parse_u64(word, &from));
        atomic_fetch_add(&hub.ranges, 1);
        if (from >= bytes.len) {
            http_respond(x, 416, NULL, STR(""));
            return;
        }
        said = xasprintf("bytes %llu-%zu/%zu", (unsigned long long)from, bytes.len - 1, bytes.len);
        http_add_header(x, "Content-Range", str_from(said));
        bytes = str_skip(bytes, from);
    }
    if (atomic_load(&hub.drops) > 0) {
        atomic_fetch_sub(&hub.drops, 1);
        http_stream_begin(x, said ? 206 : 200, NULL);
        http_stream_write(x, str_head(bytes, PART_BYTES));
        http_stream_abort(x);
        return;
    }
    if (atomic_load(&hub.wrong) > 0) {
        atomic_fetch_sub(&hub.wrong, 1);
        damaged = str_dup(bytes);
        damaged[bytes.len / 2] ^= 1;
        bytes = str_slice(damaged, bytes.len);
    }
    http_respond(x, said ? 206 : 200, NULL, bytes);
}

static void on_elsewhere(struct http_exchange *x, void *arg)
{
    (void)arg;
    atomic_fetch_add(&hub.leaked, http1_header_get(http_request(x), "authorization").ptr != NULL);
    answer_bytes(x);
}

static void add_linked(struct http_exchange *x)
{
    AUTO(mem_free) char *size = xasprintf("%d", FILE_BYTES);
    AUTO(mem_free) char *etag = xasprintf("\"%s\"", hub.sha);
    AUTO(mem_free)
    char *to = xasprintf("http://127.0.0.1:%u/bytes", http_server_port(hub.elsewhere));

    http_add_header(x, "X-Linked-Size", str_from(size));
    http_add_header(x, "X-Linked-Etag", str_from(etag));
    http_add_header(x, "Location", str_from(to));
    http_respond(x, 302, NULL, STR("over there"));
}

static void on_resolve(struct http_exchange *x, void *arg)
{
    const struct http1_request *q = http_request(x);
    AUTO(mem_free) char *etag = xasprintf("\"%s\"", hub.git);

    (void)arg;
    atomic_fetch_add(str_is(q->method, "HEAD") ? &hub.heads : &hub.gets, 1);
    atomic_fetch_add(&hub.with_token, has_token(x));
    if (atomic_load(&hub.errors) > 0) {
        atomic_fetch_sub(&hub.errors, 1);
        http_respond(x, 503, NULL, STR("later"));
    } else if (atomic_load(&hub.closed) && !has_token(x)) {
        http_respond(x, 401, NULL, STR("who are you"));
    } else if (str_starts(q->path, STR("/old/")) && atomic_load(&hub.renamed)) {
        http_add_header(x, "Location", STR("/org/m/resolve/main/tokenizer.json"));
        http_respond(x, 307, NULL, STR(""));
    } else if (!str_is(q->path, "/org/m/resolve/main/tokenizer.json")) {
        http_respond(x, 404, NULL, STR("no such file"));
    } else {
        http_add_header(x, "X-Repo-Commit", STR("c0ffee"));
        if (atomic_load(&hub.linked)) {
            add_linked(x);
            return;
        }
        if (!atomic_load(&hub.no_etag))
            http_add_header(x, "ETag", str_from(etag));
        answer_bytes(x);
    }
}

static struct http_server *serve(const char *path, http_handler fn)
{
    const struct http_route route = {"GET", path, fn, 0};
    const struct http_server_conf conf = {.host = "127.0.0.1", .routes = &route, .n_routes = 1};
    struct http_server *s = NULL;
    struct err e;

    EXPECT_OK(http_server_start(&s, hub.loop, &conf, &e), &e);
    return s;
}

static void *hub_run(void *arg)
{
    (void)arg;
    loop_run(hub.loop);
    return NULL;
}

static int setup(void **state)
{
    char hex[DIGEST_HEX_SIZE];
    struct err e;

    (void)state;
    memset(&hub, 0, sizeof(hub));
    EXPECT_OK(log_setup("off", false, &e), &e);
    for (unsigned i = 0; i < FILE_BYTES; i++)
        buf_put(&hub.file, (char[]){(char)(i * 2654435761u >> 13)}, 1);
    digest_git_blob_hex(buf_str(&hub.file), hub.git);
    digest_sha256_hex(buf_str(&hub.file), hub.sha);
    digest_blake3_hex(buf_str(&hub.file), hex);
    (void)snprintf(hub.checksum, sizeof(hub.checksum), "blake3:%s", hex);
    (void)snprintf(hub.root, sizeof(hub.root), "/tmp/model_cache_test.XXXXXX");
    assert_non_null(mkdtemp(hub.root));
    EXPECT_OK(loop_new(&hub.loop, &e), &e);
    hub.server = serve("/*", on_resolve);
    hub.elsewhere = serve("/bytes", on_elsewhere);
    (void)snprintf(hub.url, sizeof(hub.url), "http://127.0.0.1:%u/", http_server_port(hub.server));
    assert_int_equal(pthread_create(&hub.thread, NULL, hub_run, NULL), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    loop_stop(hub.loop);
    (void)pthread_join(hub.thread, NULL);
    http_server_free(hub.server);
    http_server_free(hub.elsewhere);
    loop_free(hub.loop);
    buf_done(&hub.file);
    remove_tree(hub.root);
    return 0;
}

static struct model_places places(void)
{
    return (struct model_places){.hub_cache = hub.root, .endpoint = hub.url, .backoff_ms = 1};
}

static void expect_content(const char *path)
{
    AUTO(buf_done) struct buf got = BUF_NULL;

    assert_non_null(path);
    assert_true(test_read_file(path, &got));
    assert_true(str_eq(buf_str(&got), buf_str(&hub.file)));
}

static char *in_root(const char *path)
{
    return xasprintf("%s/%s", hub.root, path);
}

static void put_file(const char *name, struct str bytes)
{
    AUTO(mem_free) char *path = in_root(name), *folder = xstrdup(path);
    struct err e;
    FILE *f;

    *strrchr(folder, '/') = '\0';
    EXPECT_OK(model_folder_make(folder, &e), &e);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes.ptr, 1, bytes.len, f), bytes.len);
    (void)fclose(f);
}

/* --- the layout ----------------------------------------------------------------------------------- */

static const char *fake_env(const char *name)
{
    static const char *const all[][2] = {{"HF_HOME", "/hf"}, {"HOME", "/root"}};

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (strcmp(all[i][0], name) == 0)
            return all[i][1];
    return NULL;
}

static const char *no_env(const char *name)
{
    (void)name;
    return NULL;
}

static void test_find(void **state)
{
    AUTO(mem_free) char *hf = model_hub_cache(fake_env), *a = NULL, *b = NULL, *c = NULL;
    char old[DIGEST_HEX_SIZE + 8] = "blake3:", other[80] = "blake3:";

    (void)state;
    assert_string_equal(hf, "/hf/hub");
    assert_null(model_hub_cache(no_env));
    assert_null(model_cache_find(hub.root, "org/m", "config.json", NULL));
    put_file("models--org--m/refs/main", STR("new\n"));
    put_file("models--org--m/snapshots/new/config.json", STR("new"));
    put_file("models--org--m/snapshots/old/config.json", STR("old"));
    digest_blake3_hex(STR("old"), old + 7);
    memset(other + 7, '0', 64);
    a = model_cache_find(hub.root, "org/m", "config.json", NULL);
    assert_non_null(strstr(a, "/snapshots/new/config.json"));
    /* The revision that the worker has, although it is not the newest. */
    b = model_cache_find(hub.root, "org/m", "config.json", old);
    assert_non_null(strstr(b, "/snapshots/old/config.json"));
    c = model_cache_find(hub.root, "org/m", "config.json", other);
    assert_null(c);
    assert_null(model_cache_find(hub.root, "org/../m", "config.json", NULL));
    assert_null(model_cache_find(hub.root, "org/m", "../config.json", NULL));
    assert_null(model_cache_find(NULL, "org/m", "config.json", NULL));
}

/* Without keeping it. */
static int hub_get(const struct model_places *p, const char *name, const char *file, char **ret,
                   struct err *e)
{
    AUTO(hub_hold_free) struct hub_hold *hold = NULL;

    return model_hub_get(p, name, file, &hold, ret, e);
}

static void test_download(void **state)
{
    AUTO(mem_free) char *path = NULL, *again = NULL, *found = NULL, *blob = NULL;
    AUTO(mem_free) char *ref = in_root("models--org--m/refs/main");
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct model_places p = places();
    struct stat st;
    struct err e;
    char to[256];
    ssize_t n;

    (void)state;
    EXPECT_OK(hub_get(&p, "org/m", "tokenizer.json", &path, &e), &e);
    expect_content(path);
    assert_non_null(strstr(path, "/models--org--m/snapshots/c0ffee/tokenizer.json"));
    n = readlink(path, to, sizeof(to) - 1);
    assert_true(n > 0);
    to[n] = '\0';
    assert_non_null(strstr(to, "../../blobs/"));
    blob = xasprintf("%s/models--org--m/blobs/%s", hub.root, hub.git);
    assert_int_equal(lstat(blob, &st), 0);
    assert_true(S_ISREG(st.st_mode));
    assert_true(test_read_file(ref, &text));
    assert_string_equal(buf_cstr(&text), "c0ffee");
    assert_int_equal(hub.gets, 1);
    /* What is there is not downloaded again, and is found without the hub. */
    EXPECT_OK(hub_get(&p, "org/m", "tokenizer.json", &again, &e), &e);
    assert_string_equal(again, path);
    assert_int_equal(hub.gets, 1);
    found = model_cache_find(hub.root, "org/m", "tokenizer.json", hub.checksum);
    assert_string_equal(found, path);
    assert_int_equal(hub.with_token, 0);
}

static void test_resume(void **state)
{
    AUTO(mem_free) char *path = NULL;
    struct model_places p = places();
    struct err e;

    (void)state;
    hub.drops = 2;
    hub.errors = 1;
    EXPECT_OK(hub_get(&p, "org/m", "tokenizer.json", &path, &e), &e);
    expect_content(path);
    assert_int_equal(hub.gets, 3);
    assert_int_equal(hub.ranges, 2); /* nothing that had come was asked for twice */
}

static void test_resume_after_restart(void **state)
{
    AUTO(mem_free) char *path = NULL, *part = NULL;
    struct model_places p = places();
    struct err e;

    (void)state;
    part = xasprintf("models--org--m/blobs/%s.incomplete", hub.git);
    put_file(part, str_head(buf_str(&hub.file), 12345));
    EXPECT_OK(hub_get(&p, "org/m", "tokenizer.json", &path, &e), &e);
    expect_content(path);
    assert_int_equal(hub.ranges, 1);
}

/* A leftover of other bytes, or of more of them, does not survive. */
static void test_bad_leftovers(void **state)
{
    AUTO(mem_free) char *path = NULL, *again = NULL, *part = NULL, *blob = NULL;
    AUTO(buf_done) struct buf more = BUF_NULL;
    struct model_places p = places();
    struct err e;

    (void)state;
    part = xasprintf("models--org--m/blobs/%s.incomplete", hub.git);
    put_file(part, STR("something else"));
    EXPECT_OK(hub_get(&p, "org/m", "tokenizer.json", &path, &e), &e);
    expect_content(path);

    blob = in_root("models--org--m/blobs");
    remove_tree(blob);
    buf_put_str(&more, buf_str(&hub.file));
    buf_put_cstr(&more, "and more");
    put_file(part, buf_str(&more));
    EXPECT_OK(hub_get(&p, "org/m", "tokenizer.json", &again, &e), &e);
    expect_content(again);
}

static void test_range_ignored(void **state)
{
    AUTO(mem_free) char *path = NULL;
    struct model_places p = places();
    struct err e;

    (void)state;
    hub.drops = 1;
    hub.ignores_range = 1;
    EXPECT_OK(hub_get(&p, "org/m", "tokenizer.json", &path, &e), &e);
    expect_content(path);
}

static void test_wrong_bytes(void **state)
{
    AUTO(mem_free) char *path = NULL, *part = NULL;
    struct model_places p = places();
    struct err e;

    (void)state;
    hub.wrong = 2;
    assert_int_equal(hub_get(&p, "org/m", "tokenizer.json", &path, &e), -EBADMSG);
    assert_non_null(strstr(e.text, "checksum"));
    assert_null(path);
    part = xasprintf("%s/models--org--m/blobs/%s.incomplete", hub.root, hub.git);
    assert_int_not_equal(access(part, F_OK), 0);
    hub.wrong = 1; /* once may be the line's fault */
    EXPECT_OK(hub_get(&p, "org/m", "tokenizer.json", &path, &e), &e);
    expect_content(path);
}

static void test_refusals(void **state)
{
    AUTO(mem_free) char *path = NULL;
    struct model_places p = places();
    struct err e;

    (void)state;
    hub.closed = 1;
    assert_int_equal(hub_get(&p, "org/m", "tokenizer.json", &path, &e), -EACCES);
    assert_non_null(strstr(e.text, "HF_TOKEN is not set"));
    p.token = "wrong-2";
    assert_int_equal(hub_get(&p, "org/m", "tokenizer.json", &path, &e), -EACCES);
    assert_non_null(strstr(e.text, "HF_TOKEN gives no access"));
    assert_null(strstr(e.text, "wrong-2"));
    p.token = "secret-1";
    EXPECT_OK(hub_get(&p, "org/m", "tokenizer.json", &path, &e), &e);
    expect_content(path);
    assert_int_equal(hub_get(&p, "org/m", "other.json", &path, &e), -ENOENT);
    assert_int_equal(hub_get(&p, "../m", "other.json", &path, &e), -ENOENT);

    p.max_bytes = FILE_BYTES - 1;
    p.hub_cache = in_root("b");
    hub.no_etag = 1;
    assert_int_equal(hub_get(&p, "org/m", "tokenizer.json", &path, &e), -EPROTO);
    hub.no_etag = 0;
    assert_int_equal(hub_get(&p, "org/m", "tokenizer.json", &path, &e), -EFBIG);
    free((char *)(uintptr_t)p.hub_cache);
    p = places();
    p.offline = true;
    assert_int_equal(hub_get(&p, "org/m", "tokenizer.json", &path, &e), -ENOENT);
    assert_non_null(strstr(e.text, "HF_HUB_OFFLINE"));
    p = places();
    p.endpoint = NULL;
    assert_int_equal(hub_get(&p, "org/m", "tokenizer.json", &path, &e), -ENOENT);
    assert_non_null(strstr(e.text, "HF_ENDPOINT"));
}

/* Large files lie elsewhere; the token is the hub's alone. Repositories may be renamed. */
static void test_redirects(void **state)
{
    AUTO(mem_free) char *path = NULL, *renamed = NULL;
    struct model_places p = places();
    struct err e;

    (void)state;
    p.token = "secret-1";
    hub.linked = 1;
    hub.closed = 1;
    hub.drops = 1;
    EXPECT_OK(hub_get(&p, "org/m", "tokenizer.json", &path, &e), &e);
    expect_content(path);
    assert_int_equal(hub.leaked, 0);
    assert_int_equal(hub.ranges, 1);
    hub.linked = 0;
    hub.renamed = 1;
    EXPECT_OK(hub_get(&p, "old/m", "tokenizer.json", &renamed, &e), &e);
    expect_content(renamed);
    assert_non_null(strstr(renamed, "models--old--m"));
}

/* --- several processes --------------------------------------------------------------------------- */

struct getter {
    pthread_t thread;
    char *path;
    int r;
    struct err e;
};

static void *get(void *arg)
{
    struct getter *g = arg;
    const struct model_places p = places();

    g->r = hub_get(&p, "org/m", "tokenizer.json", &g->path, &g->e);
    return NULL;
}

/* flock() holds between open files, so that threads stand for processes. */
static void test_one_downloads(void **state)
{
    struct getter all[6] = {{.r = -1}};

    (void)state;
    hub.drops = 2;
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        assert_int_equal(pthread_create(&all[i].thread, NULL, get, &all[i]), 0);
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        (void)pthread_join(all[i].thread, NULL);
        EXPECT_OK(all[i].r, &all[i].e);
        expect_content(all[i].path);
        free(all[i].path);
    }
    assert_int_equal(hub.gets, 3); /* two that broke, one that did not */
}

static bool stop_at_once(void *arg)
{
    return ++*(int *)arg > 3;
}

/* Who waits for another one's download can be told to stop. */
static void test_stopped(void **state)
{
    AUTO(mem_free) char *path = NULL, *lock = NULL;
    struct model_places p = places();
    int asked = 0, fd;
    struct err e;

    (void)state;
    p.stop = (struct model_stop){stop_at_once, &asked};
    lock = xasprintf(".locks/models--org--m/%s.lock", hub.git);
    put_file(lock, STR(""));
    free(lock);
    lock = xasprintf("%s/.locks/models--org--m/%s.lock", hub.root, hub.git);
    fd = open(lock, O_RDWR);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(hub_get(&p, "org/m", "tokenizer.json", &path, &e), -ECANCELED);
    assert_int_equal(hub.gets, 0);
    (void)close(fd);
}

/* --- workers --------------------------------------------------------------------------------------- */

static void test_worker_files(void **state)
{
    AUTO(mem_free) char *url = NULL, *path = NULL, *again = NULL, *kept = NULL;
    char wrong[80] = "blake3:";
    struct model_places p = places();
    struct err e;

    (void)state;
    memset(wrong + 7, '0', 64);
    url = xasprintf("http://127.0.0.1:%u/bytes", http_server_port(hub.elsewhere));
    hub.drops = 1;
    EXPECT_OK(model_worker_get(&p, url, hub.checksum, FILE_BYTES, &path, &e), &e);
    expect_content(path);
    assert_int_equal(hub.ranges, 1);
    EXPECT_OK(model_worker_get(&p, "http://127.0.0.1:9/gone", hub.checksum, FILE_BYTES, &again, &e),
              &e); /* known by what it is */
    assert_string_equal(again, path);
    assert_int_equal(model_worker_get(&p, url, wrong, FILE_BYTES, &kept, &e), -EBADMSG);
    assert_int_equal(model_worker_get(&p, url, "md5:00", FILE_BYTES, &kept, &e), -ENOTSUP);
    assert_int_equal(model_worker_get(&p, url, wrong, FILE_BYTES + 1, &kept, &e), -EIO);

    assert_int_equal(model_bytes_keep(&p, STR("x"), hub.checksum, &kept, &e), -EBADMSG);
    EXPECT_OK(model_bytes_keep(&p, buf_str(&hub.file), hub.checksum, &kept, &e), &e);
    assert_string_equal(kept, path);
}

/* What workers serve does not fill the disk: what was not used for longest goes. */
static void test_worker_files_are_bounded(void **state)
{
    static const char *const texts[] = {"first", "second", "third", "first", "fourth"};
    char *paths[ARRAY_LEN(texts)] = {NULL};
    struct model_places p = places();
    struct err e;

    (void)state;
    p.kept_bytes = 17;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        char checksum[DIGEST_HEX_SIZE + 8] = "blake3:";

        digest_blake3_hex(str_from(texts[i]), checksum + 7);
        EXPECT_OK(model_bytes_keep(&p, str_from(texts[i]), checksum, &paths[i], &e), &e);
    }
    assert_int_equal(access(paths[0], F_OK), 0); /* used again before the last came */
    assert_int_not_equal(access(paths[1], F_OK), 0);
    assert_int_equal(access(paths[2], F_OK), 0);
    assert_int_equal(access(paths[4], F_OK), 0);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        free(paths[i]);
}

#define H(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    return TEST_RUN(H(test_find), H(test_download), H(test_resume), H(test_resume_after_restart),
                    H(test_bad_leftovers), H(test_range_ignored), H(test_wrong_bytes),
                    H(test_refusals), H(test_redirects), H(test_one_downloads), H(test_stopped),
                    H(test_worker_files), H(test_worker_files_are_bounded));
}
