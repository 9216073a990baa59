/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of the C interface: workers that stand in a folder. They are chosen, never asked.
 */
#pragma once

#include <pthread.h>

#include "lib/base/test.h"
#include "lib/net/loop.h"
#include "router/discovery/card.h"
#include "router/discovery/store.h"
#include "router/wire/walk.h"

enum { BLOCK = 16, WAIT_MS = 90000 };

#define CHAT(text)                                                                                 \
    "{\"model\":\"default\",\"messages\":[{\"role\":\"user\",\"content\":\"" text "\"}]}"
/* Some blocks long, so that a booked prompt weighs. */
#define WORDS8(x) x " one two three four five six seven "
#define LONG(x)                                                                                    \
    CHAT(WORDS8(x) WORDS8(x) WORDS8(x) WORDS8(x) WORDS8(x) WORDS8(x) WORDS8(x) WORDS8(x))
#define ONLY_A "[{\"pod\":{\"podName\":\"pod-a\"}}]"
#define A_AND_B "[{\"pod\":{\"podName\":\"pod-a\"}},{\"podName\":\"pod-b\"}]"

struct folder {
    char root[32];
    struct loop *loop; /* of the workers, on a thread of its own */
    struct store *store;
    pthread_t thread;
    /* Of the test, set before workers_start(). */
    bool empty;                                 /* no workers */
    void (*begin)(struct folder *f, void *arg); /* before the thread, and after it; may be NULL */
    void (*end)(struct folder *f, void *arg);
    void *arg;
};

static inline void worker(struct folder *f, const char *pod, bool prefill)
{
    const struct model_card_spec spec = {.dir = "examples/model",
                                         .name = "example",
                                         .kv_cache_block_size = BLOCK,
                                         .total_kv_blocks = 1024,
                                         .flags = prefill ? MODEL_PREFILL : 0};
    AUTO(model_card_unref) struct model_card *card = NULL;
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct record rec = {.kind = RECORD_ENDPOINT,
                         .ns = STR("graph-1234"),
                         .component = str_from(prefill ? "prefill" : "backend"),
                         .endpoint = STR("generate"),
                         .instance_id = instance_id_of_pod(str_from(pod)),
                         .transport = TRANSPORT_TCP,
                         .address = STR("127.0.0.1:1/x/generate")};
    struct err e;

    EXPECT_OK(store_publish(f->store, &rec, &e), &e);
    EXPECT_OK(model_card_build(&card, &spec, &e), &e);
    model_card_put(&text, card);
    rec.kind = RECORD_MODEL;
    rec.card_json = buf_str(&text);
    EXPECT_OK(store_publish(f->store, &rec, &e), &e);
}

static inline void *turn(void *arg)
{
    loop_run(arg);
    return NULL;
}

static inline void set(const char *name, const char *value)
{
    assert_int_equal(setenv(name, value, 1), 0);
}

/* Before anything has threads that may look. */
static inline void workers_start(struct folder *f, bool prefill)
{
    struct err e;

    (void)snprintf(f->root, sizeof(f->root), "/tmp/llm-capi-XXXXXX");
    assert_non_null(mkdtemp(f->root));
    set("DYN_STORE_KV", "file");
    set("DYN_FILE_KV", f->root);
    set("DYN_KV_EVENTS", "false");
    set("DYN_LOG", "off");
    EXPECT_OK(loop_new(&f->loop, &e), &e);
    EXPECT_OK(store_file_new(&f->store, f->loop, f->root, &e), &e);
    if (f->begin)
        f->begin(f, f->arg);
    if (!f->empty) {
        worker(f, "pod-a", false);
        worker(f, "pod-b", false);
        worker(f, "pod-c", false);
    }
    if (prefill)
        worker(f, "pod-p", true);
    assert_int_equal(pthread_create(&f->thread, NULL, turn, f->loop), 0);
}

static inline void workers_stop(struct folder *f)
{
    loop_stop(f->loop);
    (void)pthread_join(f->thread, NULL);
    if (f->end)
        f->end(f, f->arg);
    f->store = store_free(f->store);
    f->loop = loop_free(f->loop);
    remove_tree(f->root);
}

static inline uint64_t id_of(const char *pod)
{
    return instance_id_of_pod(str_from(pod));
}
