/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/sse.h"

void sse_put_data(struct buf *out, struct str data)
{
    char *at = buf_reserve(out, data.len + 8);

    memcpy(at, "data: ", 6);
    if (data.len)
        memcpy(at + 6, data.ptr, data.len);
    memcpy(at + 6 + data.len, "\n\n", 2);
    buf_commit(out, data.len + 8);
}

void sse_put_named(struct buf *out, struct str event, struct str data)
{
    if (event.len) {
        buf_put_cstr(out, "event: ");
        buf_put_str(out, event);
        buf_put_char(out, '\n');
    }
    sse_put_data(out, data);
}

/* Where the line ends: at the first CR or LF. */
static size_t line_length(struct str s)
{
    size_t lf = str_index(s, '\n');

    return str_index(str_head(s, lf), '\r');
}

/* Lines joined by \n; an empty first line counts. */
struct joined {
    struct buf text;
    bool any;
};

struct sse_reader {
    size_t max_bytes;
    struct buf in;
    size_t scanned; /* bytes of `in` known to hold no line end */
    bool past_bom;
    bool skip_lf; /* the last line ended in CR: an LF that follows belongs to it */
    bool failed;
    bool delivered; /* the parts below were handed out and are to be dropped */
    struct buf event;
    struct joined data, comment;
};

struct sse_reader *sse_reader_new(size_t max_bytes)
{
    struct sse_reader *r = xcalloc(1, sizeof(*r));

    r->max_bytes = max_bytes;
    return r;
}

struct sse_reader *sse_reader_free(struct sse_reader *r)
{
    if (!r)
        return NULL;
    buf_done(&r->in);
    buf_done(&r->event);
    buf_done(&r->data.text);
    buf_done(&r->comment.text);
    free(r);
    return NULL;
}

void sse_reader_feed(struct sse_reader *r, struct str bytes)
{
    if (!r->failed)
        buf_put_str(&r->in, bytes);
}

bool sse_reader_failed(const struct sse_reader *r)
{
    return r->failed;
}

static void drop_parts(struct sse_reader *r)
{
    buf_clear(&r->event);
    buf_clear(&r->data.text);
    buf_clear(&r->comment.text);
    r->data.any = r->comment.any = r->delivered = false;
}

static void join(struct joined *to, struct str line)
{
    if (to->any)
        buf_put_char(&to->text, '\n');
    buf_put_str(&to->text, line);
    to->any = true;
}

/* A line of "name: value"; the one space behind the colon is not part of the value. */
static void note_line(struct sse_reader *r, struct str line)
{
    size_t colon = str_index(line, ':');
    struct str name = str_head(line, colon);
    struct str value = str_skip(line, colon + 1);

    if (str_starts(value, STR(" ")))
        value = str_skip(value, 1);
    if (!name.len) {
        join(&r->comment, value);
    } else if (str_is(name, "data")) {
        join(&r->data, value);
    } else if (str_is(name, "event")) {
        buf_clear(&r->event);
        buf_put_str(&r->event, value);
    }
    if (r->event.len + r->data.text.len + r->comment.text.len > r->max_bytes)
        r->failed = true;
}

/* Whether the beginning of the stream has been looked at, and a byte order mark dropped. */
static bool skip_bom(struct sse_reader *r)
{
    static const char bom[] = "\xef\xbb\xbf";
    struct str seen = str_head(buf_str(&r->in), 3);

    if (!r->past_bom) {
        if (seen.len < 3 && str_starts(str_slice(bom, 3), seen))
            return false;
        if (str_is(seen, bom))
            buf_consume(&r->in, 3);
        r->past_bom = true;
    }
    return true;
}

/* Finds the next whole line; the caller drops it and its end from `in` when it is done with it. */
static bool find_line(struct sse_reader *r, struct str *ret)
{
    size_t n;

    if (r->failed || !skip_bom(r))
        return false;
    if (r->skip_lf && r->in.len) {
        if (*buf_data(&r->in) == '\n')
            buf_consume(&r->in, 1);
        r->skip_lf = false;
    }
    n = r->scanned + line_length(str_skip(buf_str(&r->in), r->scanned));
    if (n > r->max_bytes) {
        r->failed = true;
        return false;
    }
    if (n == r->in.len) {
        r->scanned = n;
        return false;
    }
    r->scanned = 0;
    *ret = str_head(buf_str(&r->in), n);
    return true;
}

bool sse_reader_next(struct sse_reader *r, struct sse_event *ret)
{
    struct str line;

    if (r->delivered)
        drop_parts(r);
    while (find_line(r, &line)) {
        bool blank = line.len == 0;

        r->skip_lf = buf_data(&r->in)[line.len] == '\r';
        if (!blank)
            note_line(r, line);
        buf_consume(&r->in, line.len + 1);
        if (!blank)
            continue;
        if (r->data.any || r->event.len || r->comment.text.len) {
            r->delivered = true;
            *ret = (struct sse_event){buf_str(&r->event), buf_str(&r->data.text),
                                      buf_str(&r->comment.text)};
            return true;
        }
        drop_parts(r); /* a heartbeat */
    }
    return false;
}
