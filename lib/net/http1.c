/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/http1.h"

enum {
    IS_VALUE = 1,  /* field value: visible, obs-text, space, tab */
    IS_TARGET = 2, /* visible ASCII */
    IS_TOKEN = 4,  /* RFC 9110 tchar */
    VISIBLE = IS_VALUE | IS_TARGET,
    NAME = IS_VALUE | IS_TARGET | IS_TOKEN,
};

enum { KEEP_BYTES = 65536 };

static const uint8_t char_class[256] = {
    ['\t'] = IS_VALUE,     [' '] = IS_VALUE,
    ['!'] = NAME,          ['"'] = VISIBLE,
    ['#' ... '\''] = NAME, ['(' ... ')'] = VISIBLE,
    ['*' ... '+'] = NAME,  [','] = VISIBLE,
    ['-' ... '.'] = NAME,  ['/'] = VISIBLE,
    ['0' ... '9'] = NAME,  [':' ... '@'] = VISIBLE,
    ['A' ... 'Z'] = NAME,  ['[' ... ']'] = VISIBLE,
    ['^' ... 'z'] = NAME,  ['{'] = VISIBLE,
    ['|'] = NAME,          ['}'] = VISIBLE,
    ['~'] = NAME,          [0x80 ... 0xff] = IS_VALUE,
};

static bool is(char c, uint8_t class)
{
    return char_class[(uint8_t)c] & class;
}

/* Length of the leading run of @class. */
static size_t span(struct str s, uint8_t class)
{
    size_t n = 0;

    while (n < s.len && is(s.ptr[n], class))
        n++;
    return n;
}

enum framing { BODY_NONE, BODY_LENGTH, BODY_CHUNKED };

enum chunk_state {
    CHUNK_SIZE,
    CHUNK_EXTENSION,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    TRAILER_START,
    TRAILER_LINE,
    TRAILER_LF,
    CHUNKS_END_LF,
    CHUNKS_DONE,
};

struct http1_parser {
    struct http1_limits limits;
    int failure;   /* once refused, a connection stays refused */
    bool complete; /* the next call starts a new request */

    /* Search for the end of the head; all are offsets into the bytes. */
    size_t head_start; /* behind empty lines that precede the request */
    size_t line_start;
    size_t scanned;
    size_t head_len; /* 0 while the head is incomplete */

    enum framing framing;
    size_t body_limit;
    uint64_t length;
    bool wants_continue; /* not told yet */
    bool keep_alive, expects_continue;

    enum chunk_state chunk;
    size_t raw;      /* body bytes worked off */
    size_t overhead; /* of them, those that are no data */
    size_t digits;   /* of the chunk size */
    uint64_t chunk_left;
    struct buf body;
};

struct http1_parser *http1_parser_new(const struct http1_limits *limits)
{
    struct http1_parser *p = xcalloc(1, sizeof(*p));

    p->limits = *limits;
    return p;
}

struct http1_parser *http1_parser_free(struct http1_parser *p)
{
    if (p) {
        buf_done(&p->body);
        free(p);
    }
    return NULL;
}

static void start_over(struct http1_parser *p)
{
    struct buf body = p->body;

    if (body.cap > KEEP_BYTES)
        buf_done(&body);
    buf_clear(&body);
    *p = (struct http1_parser){.limits = p->limits, .body = body};
}

/* --- where the head ends --------------------------------------------------------------------- */

/* Says which part is to blame. Looks only at the bytes within the limit, so that the answer does
 * not depend on how the bytes arrived. */
static int head_too_large(const struct http1_parser *p, struct str bytes)
{
    struct str seen = str_skip(str_head(bytes, p->limits.head_bytes), p->head_start);

    return str_index(seen, '\n') == seen.len ? -414 : -431;
}

static int find_head(struct http1_parser *p, struct str bytes)
{
    size_t limit = p->limits.head_bytes;

    for (;;) {
        size_t lf;

        /* A client that speaks TLS, or nonsense, is told at its first byte. */
        if (p->line_start == p->head_start && p->head_start < MIN(bytes.len, limit) &&
            !is(bytes.ptr[p->head_start], IS_TOKEN) && bytes.ptr[p->head_start] != '\r')
            return -400;
        lf = p->scanned + str_index(str_skip(bytes, p->scanned), '\n');
        if (lf >= MIN(bytes.len, limit))
            break;
        if (lf == 0 || bytes.ptr[lf - 1] != '\r')
            return -400;
        p->scanned = lf + 1;
        if (lf - 1 != p->line_start) {
            p->line_start = lf + 1;
        } else if (p->line_start != p->head_start) {
            p->head_len = lf + 1;
            return 0;
        } else {
            p->head_start = p->line_start = lf + 1;
        }
    }
    if (bytes.len > limit)
        return head_too_large(p, bytes);
    p->scanned = bytes.len;
    return HTTP1_MORE;
}

/* --- what the head says ---------------------------------------------------------------------- */

/* Takes the line up to CRLF off the front; the caller knows that there is one. */
static struct str take_line(struct str *head)
{
    size_t lf = str_index(*head, '\n');
    struct str line = str_head(*head, lf - 1);

    *head = str_skip(*head, lf + 1);
    return line;
}

/* "http://host/path" becomes "/path"; false when the target is of no form that we serve. */
static bool strip_authority(struct str *target, struct str method)
{
    size_t scheme;

    if (target->len && target->ptr[0] == '/')
        return true;
    if (str_is(*target, "*"))
        return str_is(method, "OPTIONS");
    scheme = str_starts(*target, STR("http://")) ? 7 : str_starts(*target, STR("https://")) ? 8 : 0;
    if (!scheme || scheme == target->len)
        return false;
    while (scheme < target->len && target->ptr[scheme] != '/' && target->ptr[scheme] != '?')
        scheme++;
    *target = str_skip(*target, scheme);
    return true;
}

static int parse_request_line(struct str line, struct http1_request *ret)
{
    struct str target, version;
    size_t n = span(line, IS_TOKEN);

    if (n == 0 || n == line.len || line.ptr[n] != ' ')
        return -400;
    ret->method = str_head(line, n);
    line = str_skip(line, n + 1);
    n = span(line, IS_TARGET);
    target = str_head(line, n);
    version = str_skip(line, n);
    if (n > HTTP1_TARGET_MAX)
        return -414;
    if (version.len != STR(" HTTP/1.1").len || !str_starts(version, STR(" HTTP/")) ||
        version.ptr[7] != '.')
        return -400;
    if (version.ptr[6] < '0' || version.ptr[6] > '9' || version.ptr[8] < '0' ||
        version.ptr[8] > '9')
        return -400;
    if (version.ptr[6] != '1')
        return -505;
    ret->minor = (uint8_t)(version.ptr[8] - '0');
    if (!strip_authority(&target, ret->method))
        return -400;
    ret->path = str_head(target, str_index(target, '?'));
    ret->query = str_skip(target, ret->path.len + 1);
    if (!ret->path.len)
        ret->path = STR("/");
    return 0;
}

/* The name must run up to its colon, which also refuses folded lines and spaces before it. */
static int parse_header(struct str line, struct http1_header *ret)
{
    size_t colon = span(line, IS_TOKEN);
    struct str value = str_skip(line, colon + 1);

    if (colon == 0 || colon == line.len || line.ptr[colon] != ':' ||
        span(value, IS_VALUE) != value.len)
        return -400;
    ret->name = str_head(line, colon);
    ret->value = str_trim(value);
    return 0;
}

static int parse_head(struct str head, struct http1_request *ret)
{
    int r = parse_request_line(take_line(&head), ret);

    ret->n_headers = 0;
    ret->body = STR_NULL;
    if (r < 0)
        return r;
    for (;;) {
        struct str line = take_line(&head);

        if (!line.len)
            return 0;
        if (ret->n_headers == HTTP1_HEADERS_MAX)
            return -431;
        r = parse_header(line, &ret->headers[ret->n_headers]);
        if (r < 0)
            return r;
        ret->n_headers++;
    }
}

/* What the headers say about this connection and the body. */
struct facts {
    unsigned hosts, lengths, codings;
    struct str host, length, coding;
    bool close, keep_alive, expects_continue;
};

static void note_connection(struct facts *f, struct str options)
{
    for (bool more = true; more;) {
        struct str option;

        more = str_cut(&options, ',', &option);
        option = str_trim(option);
        f->close |= str_eq_nocase(option, STR("close"));
        f->keep_alive |= str_eq_nocase(option, STR("keep-alive"));
    }
}

static void note_header(struct facts *f, const struct http1_header *h)
{
    if (str_eq_nocase(h->name, STR("host"))) {
        f->hosts++;
        f->host = h->value;
    } else if (str_eq_nocase(h->name, STR("content-length"))) {
        f->lengths++;
        f->length = h->value;
    } else if (str_eq_nocase(h->name, STR("transfer-encoding"))) {
        f->codings++;
        f->coding = h->value;
    } else if (str_eq_nocase(h->name, STR("connection"))) {
        note_connection(f, h->value);
    } else if (str_eq_nocase(h->name, STR("expect"))) {
        f->expects_continue |= str_eq_nocase(h->value, STR("100-continue"));
    }
}

static bool host_ok(const struct facts *f, uint8_t minor)
{
    if (f->hosts != 1)
        return f->hosts == 0 && minor == 0;
    for (size_t i = 0; i < f->host.len; i++)
        if (!is(f->host.ptr[i], IS_TARGET) || memchr("/?#@,\\", f->host.ptr[i], 6))
            return false;
    return true;
}

/* RFC 9112 §6.3, without the leniencies that proxies differ in. */
static int find_framing(struct http1_parser *p, const struct facts *f, uint8_t minor)
{
    if (f->codings) {
        if (f->lengths || f->codings > 1 || minor == 0)
            return -400;
        if (!str_eq_nocase(f->coding, STR("chunked")))
            return -501;
        p->framing = BODY_CHUNKED;
        return 0;
    }
    if (!f->lengths)
        return 0;
    if (f->lengths > 1 || !f->length.len)
        return -400;
    for (size_t i = 0; i < f->length.len; i++)
        if (f->length.ptr[i] < '0' || f->length.ptr[i] > '9')
            return -400;
    if (!str_parse_u64(f->length, &p->length) || p->length > p->body_limit)
        return -413;
    p->framing = p->length ? BODY_LENGTH : BODY_NONE;
    return 0;
}

static int take_head(struct http1_parser *p, struct str bytes, struct http1_request *ret)
{
    struct facts f = {0};
    int r = find_head(p, bytes);

    if (r != 0)
        return r;
    r = parse_head(str_skip(str_head(bytes, p->head_len), p->head_start), ret);
    if (r < 0)
        return r;
    for (size_t i = 0; i < ret->n_headers; i++)
        note_header(&f, &ret->headers[i]);
    if (!host_ok(&f, ret->minor))
        return -400;
    p->keep_alive = !f.close && (ret->minor > 0 || f.keep_alive);
    p->expects_continue = f.expects_continue && ret->minor > 0;
    p->body_limit =
        p->limits.body_limit ? p->limits.body_limit(p->limits.arg, ret) : p->limits.body_bytes;
    r = find_framing(p, &f, ret->minor);
    p->wants_continue = p->expects_continue && p->framing != BODY_NONE;
    return r;
}

/* --- the body -------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int chunk_size_char(struct http1_parser *p, char c)
{
    int digit = hex_digit(c);

    if (digit >= 0) {
        if (++p->digits > 16)
            return -400;
        p->chunk_left = p->chunk_left << 4 | (uint64_t)digit;
        return 0;
    }
    if (!p->digits || (c != '\r' && c != ';'))
        return -400;
    if (p->chunk_left > p->body_limit - p->body.len)
        return -413;
    p->chunk = c == ';' ? CHUNK_EXTENSION : CHUNK_SIZE_LF;
    return 0;
}

/* For places where exactly one byte is right. */
static int expect_char(struct http1_parser *p, char c, char want, enum chunk_state next)
{
    if (c != want)
        return -400;
    p->chunk = next;
    return 0;
}

static int trailer_char(struct http1_parser *p, char c)
{
    if (c == '\r')
        p->chunk = p->chunk == TRAILER_START ? CHUNKS_END_LF : TRAILER_LF;
    else if (!is(c, p->chunk == TRAILER_START ? IS_TOKEN : IS_VALUE))
        return -400;
    else
        p->chunk = TRAILER_LINE; /* trailers are dropped: nothing of ours uses them */
    return 0;
}

/* One byte of framing. */
static int chunk_char(struct http1_parser *p, char c)
{
    switch (p->chunk) {
    case CHUNK_SIZE:
        return chunk_size_char(p, c);
    case CHUNK_EXTENSION:
        if (c == '\r')
            p->chunk = CHUNK_SIZE_LF;
        return c == '\r' || is(c, IS_VALUE) ? 0 : -400;
    case CHUNK_SIZE_LF:
        p->digits = 0;
        return expect_char(p, c, '\n', p->chunk_left ? CHUNK_DATA : TRAILER_START);
    case CHUNK_DATA_CR:
        return expect_char(p, c, '\r', CHUNK_DATA_LF);
    case CHUNK_DATA_LF:
        return expect_char(p, c, '\n', CHUNK_SIZE);
    case TRAILER_START:
    case TRAILER_LINE:
        return trailer_char(p, c);
    case TRAILER_LF:
        return expect_char(p, c, '\n', TRAILER_START);
    case CHUNKS_END_LF:
        return expect_char(p, c, '\n', CHUNKS_DONE);
    case CHUNK_DATA:
    case CHUNKS_DONE:
        break;
    }
    return -400;
}

static int take_chunks(struct http1_parser *p, struct str bytes)
{
    int r;

    while (p->chunk != CHUNKS_DONE && p->raw < bytes.len) {
        if (p->chunk == CHUNK_DATA) {
            size_t n = (size_t)MIN((uint64_t)(bytes.len - p->raw), p->chunk_left);

            buf_put(&p->body, bytes.ptr + p->raw, n);
            p->raw += n;
            p->chunk_left -= n;
            if (!p->chunk_left)
                p->chunk = CHUNK_DATA_CR;
            continue;
        }
        r = chunk_char(p, bytes.ptr[p->raw++]);
        if (r < 0)
            return r;
        /* The caller holds the raw bytes too: framing may not cost it more than the data does. */
        if (++p->overhead > p->limits.head_bytes + p->body_limit)
            return -413;
    }
    return p->chunk == CHUNKS_DONE ? HTTP1_COMPLETE : HTTP1_MORE;
}

static int take_body(struct http1_parser *p, struct str bytes, struct str *ret_body)
{
    int r = HTTP1_COMPLETE;

    if (p->framing == BODY_LENGTH) {
        if (bytes.len < p->length)
            return HTTP1_MORE;
        p->raw = (size_t)p->length;
        *ret_body = str_head(bytes, p->raw);
    } else if (p->framing == BODY_CHUNKED) {
        r = take_chunks(p, bytes);
        *ret_body = buf_str(&p->body);
    }
    return r;
}

static int parse(struct http1_parser *p, struct str bytes, struct http1_request *ret,
                 bool *ret_wants_continue)
{
    bool known = p->head_len > 0;
    struct str body = STR_NULL;
    int r;

    if (!known) {
        r = take_head(p, bytes, ret);
        if (r != 0)
            return r;
    }
    r = take_body(p, str_skip(bytes, p->head_len), &body);
    if (r == HTTP1_MORE && p->wants_continue) {
        p->wants_continue = false;
        *ret_wants_continue = true;
    }
    if (r != HTTP1_COMPLETE)
        return r;
    if (known) /* the bytes may have moved since */
        (void)parse_head(str_skip(str_head(bytes, p->head_len), p->head_start), ret);
    ret->keep_alive = p->keep_alive;
    ret->expects_continue = p->expects_continue;
    ret->body = body;
    return HTTP1_COMPLETE;
}

int http1_parse(struct http1_parser *p, struct str bytes, struct http1_request *ret,
                size_t *ret_used, bool *ret_wants_continue)
{
    int r;

    if (p->failure)
        return p->failure;
    if (p->complete)
        start_over(p);
    *ret_wants_continue = false;
    r = parse(p, bytes, ret, ret_wants_continue);
    if (r < 0)
        p->failure = r;
    if (r == HTTP1_COMPLETE) {
        p->complete = true;
        *ret_used = p->head_len + p->raw;
    }
    return r;
}

bool http1_in_body(const struct http1_parser *p)
{
    return p->head_len && !p->complete;
}

/* --- helpers --------------------------------------------------------------------------------- */

struct str http1_header_get(const struct http1_request *r, const char *name)
{
    struct str wanted = str_from(name);

    for (size_t i = 0; i < r->n_headers; i++)
        if (str_eq_nocase(r->headers[i].name, wanted))
            return r->headers[i].value;
    return STR_NULL;
}

void http_percent_decode(struct str s, bool form, struct buf *out)
{
    for (size_t i = 0; i < s.len; i++) {
        int high = i + 2 < s.len ? hex_digit(s.ptr[i + 1]) : -1;
        int low = i + 2 < s.len ? hex_digit(s.ptr[i + 2]) : -1;

        if (s.ptr[i] == '%' && high >= 0 && low >= 0) {
            buf_put_char(out, (char)(high << 4 | low));
            i += 2;
        } else {
            buf_put_char(out, form && s.ptr[i] == '+' ? ' ' : s.ptr[i]);
        }
    }
}

bool http_query_get(struct str query, const char *key, struct buf *out)
{
    for (bool more = true; more;) {
        struct str pair, name;

        more = str_cut(&query, '&', &pair);
        (void)str_cut(&pair, '=', &name);
        if (!str_is(name, key))
            continue;
        buf_clear(out);
        http_percent_decode(pair, true, out);
        return true;
    }
    return false;
}

const char *http_status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } known[] = {
        {100, "Continue"},
        {101, "Switching Protocols"},
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {206, "Partial Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {308, "Permanent Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {411, "Length Required"},
        {412, "Precondition Failed"},
        {413, "Payload Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Entity"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {499, "Client Closed Request"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
        {507, "Insufficient Storage"},
        {529, "Site is overloaded"},
    };

    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (known[i].status == status)
            return known[i].text;
    return "Unknown";
}
