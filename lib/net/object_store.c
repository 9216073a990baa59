/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/object_store.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/digest.h"
#include "lib/net/nats_js.h"
#include "lib/net/object_info.h"

enum { PIECE_BYTES = 128 << 10, PIECES_MAX = OBJECT_BYTES_MAX / PIECE_BYTES };

struct object_store {
    struct nats_js *js;
    char *bucket, *name;
    object_got_fn got;
    object_put_fn put;
    void *arg;
    struct object_info info; /* of the object that is read, or replaced; nuid "" = none */
    char nuid[64];           /* of the one that is written */
    struct buf bytes;
    uint64_t pieces, next_seq; /* handled so far; where to look for the next */
    uint64_t max_bytes;
};

struct object_store *object_store_new(struct nats_js *js, const char *bucket)
{
    struct object_store *o = xcalloc(1, sizeof(*o));

    o->js = js;
    o->bucket = xstrdup(bucket);
    o->max_bytes = OBJECT_BYTES_MAX;
    return o;
}

void object_store_limit(struct object_store *o, uint64_t bytes)
{
    o->max_bytes = bytes;
}

struct object_store *object_store_free(struct object_store *o)
{
    if (!o)
        return NULL;
    object_store_forget(o);
    buf_done(&o->bytes);
    free(o->bucket);
    free(o->name);
    free(o);
    return NULL;
}

void object_store_forget(struct object_store *o)
{
    nats_js_forget(o->js, o);
    o->got = NULL;
    o->put = NULL;
}

/* --- words ---------------------------------------------------------------------------------------- */

/* The alphabet of URLs, padded. */
static void base64url_put(struct buf *out, struct str data)
{
    size_t begin = out->len;

    base64_encode(out, data);
    for (char *c = buf_data(out) + begin; c < buf_data(out) + out->len; c++)
        *c = (char)(*c == '+' ? '-' : *c == '/' ? '_' : *c);
}

/* "SHA-256=<base64url>" */
static void digest_put(struct buf *out, struct str bytes)
{
    char hex[DIGEST_HEX_SIZE];
    uint8_t sum[32];

    digest_sha256_hex(bytes, hex);
    for (size_t i = 0; i < sizeof(sum); i++) {
        uint64_t byte = 0;

        (void)!str_parse_hex64(str_slice(hex + 2 * i, 2), &byte);
        sum[i] = (uint8_t)byte;
    }
    buf_put_cstr(out, "SHA-256=");
    base64url_put(out, str_slice(sum, sizeof(sum)));
}

/* --- questions ------------------------------------------------------------------------------------ */

static void ask(struct object_store *o, const char *api, struct str body, js_fn fn)
{
    AUTO(mem_free) char *subject = xasprintf("$JS.API.%s.OBJ_%s", api, o->bucket);

    nats_js_ask(o->js, &(struct nats_outgoing){.subject = subject, .payload = body}, fn, o);
}

static void ask_info(struct object_store *o, js_fn fn)
{
    AUTO(buf_done) struct buf body = BUF_NULL;

    buf_printf(&body, "{\"last_by_subj\":\"$O.%s.M.", o->bucket);
    base64url_put(&body, str_from(o->name));
    buf_put_cstr(&body, "\"}");
    ask(o, "STREAM.MSG.GET", buf_str(&body), fn);
}

/* --- reading -------------------------------------------------------------------------------------- */

static void end_get(struct object_store *o, int code)
{
    object_got_fn fn = o->got;

    o->got = NULL;
    fn(o->arg, code, code == 0 ? buf_str(&o->bytes) : STR_NULL);
}

static bool is_whole(const struct object_store *o)
{
    AUTO(buf_done) struct buf digest = BUF_NULL;

    digest_put(&digest, buf_str(&o->bytes));
    return o->bytes.len == o->info.size && str_is(buf_str(&digest), o->info.digest);
}

static void on_piece(void *arg, const struct js_answer *a);

static void get_piece(struct object_store *o)
{
    AUTO(mem_free) char *body = NULL;

    if (o->pieces == o->info.pieces || o->bytes.len > o->info.size) {
        end_get(o, is_whole(o) ? 0 : JS_LOST);
        return;
    }
    body = xasprintf("{\"seq\":%" PRIu64 ",\"next_by_subj\":\"$O.%s.C.%s\"}", o->next_seq,
                     o->bucket, o->info.nuid);
    ask(o, "STREAM.MSG.GET", str_from(body), on_piece);
}

static void on_piece(void *arg, const struct js_answer *a)
{
    struct object_store *o = arg;
    uint64_t seq;

    /* Pieces that are gone mean that the object is just being replaced. */
    if (a->code != 0 || !object_message_parse(a->payload, &seq, &o->bytes)) {
        end_get(o, JS_LOST);
        return;
    }
    o->next_seq = seq + 1;
    o->pieces++;
    get_piece(o);
}

static void on_info(void *arg, const struct js_answer *a)
{
    struct object_store *o = arg;
    AUTO(buf_done) struct buf json = BUF_NULL;
    uint64_t seq;

    if (a->code != 0)
        end_get(o, a->code == JS_NOT_FOUND ? JS_NOT_FOUND : JS_LOST);
    else if (!object_message_parse(a->payload, &seq, &json) ||
             !object_info_parse(&o->info, buf_str(&json), o->max_bytes, PIECES_MAX))
        end_get(o, JS_NOT_FOUND);
    else
        get_piece(o);
}

static void begin(struct object_store *o, const char *name, void *arg)
{
    object_store_forget(o);
    free(o->name);
    o->name = xstrdup(name);
    o->arg = arg;
    o->info = (struct object_info){.size = 0};
    o->pieces = 0;
    o->next_seq = 1;
    buf_clear(&o->bytes);
}

void object_store_get(struct object_store *o, const char *name, object_got_fn fn, void *arg)
{
    begin(o, name, arg);
    o->got = fn;
    ask_info(o, on_info);
}

/* --- writing -------------------------------------------------------------------------------------- */

static void end_put(struct object_store *o, int code)
{
    object_put_fn fn = o->put;

    o->put = NULL;
    buf_done(&o->bytes);
    fn(o->arg, code);
}

static void on_old_dropped(void *arg, const struct js_answer *a)
{
    (void)a; /* pieces that stay behind cost room, nothing else */
    end_put(arg, 0);
}

static void on_described(void *arg, const struct js_answer *a)
{
    struct object_store *o = arg;
    AUTO(mem_free) char *body = NULL;

    if (a->code != 0 || !o->info.nuid[0]) {
        end_put(o, a->code == 0 ? 0 : JS_LOST);
        return;
    }
    body = xasprintf("{\"filter\":\"$O.%s.C.%s\"}", o->bucket, o->info.nuid);
    ask(o, "STREAM.PURGE", str_from(body), on_old_dropped);
}

static void describe(struct object_store *o)
{
    static const struct nats_header newest_only = {"Nats-Rollup", "sub"};
    AUTO(buf_done) struct buf subject = BUF_NULL, body = BUF_NULL;

    buf_printf(&subject, "$O.%s.M.", o->bucket);
    base64url_put(&subject, str_from(o->name));
    buf_printf(&body,
               "{\"name\":\"%s\",\"description\":null,\"metadata\":{},\"headers\":null,\"options\":"
               "{\"link\":null,\"max_chunk_size\":%d},\"bucket\":\"%s\",\"nuid\":\"%s\",\"size\":"
               "%zu,\"chunks\":%" PRIu64 ",\"digest\":\"",
               o->name, PIECE_BYTES, o->bucket, o->nuid, o->bytes.len, o->pieces);
    digest_put(&body, buf_str(&o->bytes));
    buf_put_cstr(&body, "\"}");
    nats_js_ask(o->js,
                &(struct nats_outgoing){.subject = buf_cstr(&subject),
                                        .headers = &newest_only,
                                        .n_headers = 1,
                                        .payload = buf_str(&body)},
                on_described, o);
}

static void on_piece_stored(void *arg, const struct js_answer *a);

static void put_piece(struct object_store *o)
{
    struct str left = str_skip(buf_str(&o->bytes), o->pieces * PIECE_BYTES);
    AUTO(mem_free) char *subject = NULL;

    if (left.len == 0) {
        describe(o);
        return;
    }
    subject = xasprintf("$O.%s.C.%s", o->bucket, o->nuid);
    nats_js_ask(o->js,
                &(struct nats_outgoing){.subject = subject, .payload = str_head(left, PIECE_BYTES)},
                on_piece_stored, o);
}

static void on_piece_stored(void *arg, const struct js_answer *a)
{
    struct object_store *o = arg;

    if (a->code != 0) {
        end_put(o, JS_LOST);
        return;
    }
    o->pieces++;
    put_piece(o);
}

static void on_old_info(void *arg, const struct js_answer *a)
{
    struct object_store *o = arg;
    AUTO(buf_done) struct buf json = BUF_NULL;
    uint64_t seq;

    if (a->code != 0 && a->code != JS_NOT_FOUND) {
        end_put(o, JS_LOST);
        return;
    }
    if (a->code == 0 && object_message_parse(a->payload, &seq, &json))
        (void)object_info_parse(&o->info, buf_str(&json), OBJECT_BYTES_MAX, PIECES_MAX);
    put_piece(o);
}

/* A bucket that is there with other settings is as good. */
static void on_bucket(void *arg, const struct js_answer *a)
{
    struct object_store *o = arg;

    if (a->code == JS_LOST)
        end_put(o, JS_LOST);
    else
        ask_info(o, on_old_info);
}

void object_store_put(struct object_store *o, const char *name, struct str bytes, object_put_fn fn,
                      void *arg)
{
    AUTO(mem_free) char *body = NULL;

    begin(o, name, arg);
    o->put = fn;
    buf_put_str(&o->bytes, bytes);
    (void)snprintf(o->nuid, sizeof(o->nuid), "%016" PRIx64 "%06" PRIx64, random_u64(),
                   random_u64() & 0xFFFFFF);
    body = xasprintf("{\"name\":\"OBJ_%s\",\"subjects\":[\"$O.%s.C.>\",\"$O.%s.M.>\"],"
                     "\"retention\":\"limits\",\"max_consumers\":-1,\"max_msgs\":-1,\"max_bytes\":"
                     "-1,\"discard\":\"new\",\"storage\":\"file\",\"num_replicas\":1,"
                     "\"allow_rollup_hdrs\":true,\"allow_direct\":true}",
                     o->bucket, o->bucket, o->bucket);
    ask(o, "STREAM.CREATE", str_from(body), on_bucket);
}
