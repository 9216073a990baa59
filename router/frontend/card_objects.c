/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/card_objects.h"

#include <errno.h>

#include "lib/base/list.h"
#include "lib/net/nats_js.h"
#include "lib/net/object_store.h"
#include "router/discovery/hub_answer.h"

enum { FILE_BYTES_MAX = 64 << 20, CONNECT_MS = 10000 };

/* One card. */
struct wish {
    struct list link;
    struct model_card *card;
    card_objects_fn fn;
    void *arg;
    struct buf bytes[CARD_FILES];
    struct model_bytes files[CARD_FILES];
    size_t n, next; /* files that it has; the place that is looked at next */
    int r;
    struct err e;
};

struct card_objects {
    struct loop *loop;
    struct nats_link_conf conf;
    struct nats_link *link; /* NULL until it is needed */
    struct nats_js *js;
    struct object_store *store; /* of the first wish's file */
    struct list wishes;
    struct timer *patience; /* with a server that is not there */
    bool deferred;
    bool freed;
};

bool card_object_parse(struct str url, struct str *ret_bucket, struct str *ret_name)
{
    struct str server, bucket;

    if (!str_starts(url, STR("nats://")))
        return false;
    url = str_skip(url, 7);
    if (!str_cut(&url, '/', &server) || !str_cut(&url, '/', &bucket) ||
        !hub_word_is_valid(bucket) || str_has(bucket, STR(".")) || !hub_word_is_valid(url))
        return false;
    *ret_bucket = bucket;
    *ret_name = url;
    return true;
}

static bool is_object(const struct card_file *f)
{
    return str_starts(str_from(f->path), STR("nats://"));
}

bool card_has_objects(const struct model_card *c)
{
    for (size_t i = 0; i < CARD_FILES; i++)
        if (is_object(model_card_file(c, i)))
            return true;
    return false;
}

static struct wish *first(struct card_objects *o)
{
    return list_empty(&o->wishes) ? NULL : LIST_ENTRY(o->wishes.next, struct wish, link);
}

static void defer(struct card_objects *o);

static void end(struct card_objects *o, struct wish *w)
{
    list_remove(&w->link);
    o->store = object_store_free(o->store);
    w->fn(w->arg, w->r, w->files, w->n, &w->e);
    for (size_t i = 0; i < CARD_FILES; i++)
        buf_done(&w->bytes[i]);
    model_card_unref(w->card);
    free(w);
}

static void on_object(void *arg, int code, struct str bytes)
{
    struct card_objects *o = arg;
    struct wish *w = first(o);
    const char *path = model_card_file(w->card, w->next)->path;

    if (code == JS_NOT_FOUND) {
        w->r = err_set(&w->e, -ENOENT, "%.200s: there is no such object, or it is too large", path);
    } else if (code != 0) {
        w->r = err_set(&w->e, -EIO, "%.200s: the object store does not give it", path);
    } else {
        buf_put_str(&w->bytes[w->n], bytes);
        w->files[w->n] = (struct model_bytes){path, buf_str(&w->bytes[w->n])};
        w->n++;
        w->next++;
    }
    defer(o); /* its caller still holds the store */
}

static void on_state(void *arg, bool up)
{
    struct card_objects *o = arg;

    if (up && !list_empty(&o->wishes))
        defer(o);
}

static void on_impatience(void *arg)
{
    struct card_objects *o = arg;
    struct wish *w = first(o);

    if (!w)
        return;
    w->r = err_set(&w->e, -ENOTCONN, "%s: NATS (%s) is not there",
                   model_card_file(w->card, w->next)->path, o->conf.servers);
    defer(o);
}

static int connect_link(struct card_objects *o, struct err *e)
{
    int r = 0;

    if (!o->link)
        r = nats_link_start(&o->link, o->loop, &o->conf, e);
    if (r == 0 && !o->js)
        r = nats_js_new(&o->js, o->loop, o->link, e);
    return r;
}

static int ask(struct card_objects *o, struct wish *w)
{
    AUTO(mem_free) char *bucket = NULL, *name = NULL;
    const char *path = model_card_file(w->card, w->next)->path;
    struct str b, n;
    int r = connect_link(o, &w->e);

    if (r < 0)
        return r;
    if (!nats_link_stats(o->link).up) {
        if (!timer_active(o->patience))
            timer_start(o->patience, CONNECT_MS);
        return 0;
    }
    timer_stop(o->patience);
    if (!card_object_parse(str_from(path), &b, &n))
        return err_set(&w->e, -EINVAL, "'%.200s' names no object", path);
    bucket = str_dup(b);
    name = str_dup(n);
    object_store_free(o->store);
    o->store = object_store_new(o->js, bucket);
    object_store_limit(o->store, FILE_BYTES_MAX);
    object_store_get(o->store, name, on_object, o);
    return 0;
}

static void step(void *arg)
{
    struct card_objects *o = arg;
    struct wish *w;

    o->deferred = false;
    if (o->freed) {
        free(o);
        return;
    }
    while ((w = first(o)) != NULL) {
        while (w->next < CARD_FILES && !is_object(model_card_file(w->card, w->next)))
            w->next++;
        if (w->r == 0 && w->next < CARD_FILES) {
            w->r = ask(o, w);
            if (w->r == 0)
                return;
        }
        end(o, w);
    }
}

static void defer(struct card_objects *o)
{
    if (o->deferred)
        return;
    o->deferred = true;
    loop_defer(o->loop, step, o);
}

struct card_objects *card_objects_new(struct loop *l, const struct nats_link_conf *nats)
{
    struct card_objects *o = xcalloc(1, sizeof(*o));

    o->loop = l;
    o->conf = *nats;
    o->conf.state = on_state;
    o->conf.arg = o;
    o->patience = timer_new(l, on_impatience, o);
    list_init(&o->wishes);
    return o;
}

struct card_objects *card_objects_free(struct card_objects *o)
{
    struct wish *w;

    if (!o)
        return NULL;
    while ((w = first(o)) != NULL) {
        w->r = err_set(&w->e, -ECANCELED, "stopped");
        end(o, w);
    }
    timer_free(o->patience);
    nats_js_free(o->js);
    nats_link_free(o->link);
    o->freed = true;
    if (!o->deferred)
        free(o);
    return NULL;
}

void card_objects_get(struct card_objects *o, const struct model_card *c, card_objects_fn fn,
                      void *arg)
{
    struct wish *w = xcalloc(1, sizeof(*w));

    w->card = model_card_ref(c);
    w->fn = fn;
    w->arg = arg;
    list_append(&o->wishes, &w->link);
    if (first(o) == w)
        defer(o);
}
