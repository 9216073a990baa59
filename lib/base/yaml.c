/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libyaml events become JSON text, which json_parse() reads: an alias is the text of its anchor
 * once more, a merge key the text between the braces, and "the last member of a name wins" is the
 * rule of kubectl and of json_parse() alike. Scalars follow what kubectl 1.34 answers, quirks
 * included: `y` is true, 017 is fifteen, 1:30 is a string, and a merge key overrides what stands
 * before it. Its one deviation: a key that is a float keeps its digits (kubectl rounds it to 32
 * bits).
 */
#include "lib/base/yaml.h"

#include <errno.h>
#include <math.h>
#include <yaml.h>

#include "lib/base/digest.h"
#include "lib/base/err.h"
#include "lib/base/json_put.h"
#include "lib/base/strmap.h"

#define EXACT_MAX (UINT64_C(1) << 53)

DEFINE_CLEANUP_EMBEDDED(yaml_event_t, yaml_event_delete)

struct reader {
    yaml_parser_t parser;
    struct strmap *anchors; /* of this document: name to struct anchor */
    size_t nodes;           /* made so far, aliases expanded */
    size_t copied;          /* bytes that anchors and aliases have copied */
    struct err *e;
};

struct anchor {
    size_t nodes;
    size_t len;
    char text[];
};

static int put_node(struct reader *rd, struct json_put *j, const yaml_event_t *event,
                    unsigned depth);

static int fail(struct reader *rd, const yaml_event_t *at, int code, const char *what)
{
    return err_set(rd->e, code, "yaml: line %zu: %s", at->start_mark.line + 1, what);
}

static int next_event(struct reader *rd, yaml_event_t *ret)
{
    if (yaml_parser_parse(&rd->parser, ret))
        return 0;
    return err_set(rd->e, -EINVAL, "yaml: line %zu: %s", rd->parser.problem_mark.line + 1,
                   rd->parser.problem ? rd->parser.problem : "malformed");
}

/* Bounds what aliases can blow a small text up to. */
static int spend(struct reader *rd, const yaml_event_t *at, size_t nodes, size_t copied)
{
    rd->nodes += nodes;
    rd->copied += copied;
    if (rd->nodes > YAML_MAX_NODES || rd->copied > JSON_TREE_MAX_BYTES)
        return fail(rd, at, -E2BIG, "too many values");
    return 0;
}

/* --- scalars --------------------------------------------------------------------------------- */

struct scalar {
    enum json_kind kind;
    bool truth;
    bool integer;  /* written as one */
    double number; /* beyond ±2^53, and not exact, when an integer cannot be kept */
};

static bool is_word(struct str text, const char *const *words)
{
    while (*words && !str_is(text, *words))
        words++;
    return *words != NULL;
}

static bool resolve_word(struct str text, struct scalar *ret)
{
    static const char *const null[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const yes[] = {"y",  "Y",  "yes",  "Yes",  "YES",  "on",
                                      "On", "ON", "true", "True", "TRUE", NULL};
    static const char *const no[] = {"n",   "N",   "no",    "No",    "NO",    "off",
                                     "Off", "OFF", "false", "False", "FALSE", NULL};
    static const char *const not_finite[] = {".nan",  ".NaN",  ".NAN",  ".inf",  ".Inf",
                                             ".INF",  "+.inf", "+.Inf", "+.INF", "-.inf",
                                             "-.Inf", "-.INF", NULL};

    if (is_word(text, null))
        *ret = (struct scalar){.kind = JSON_KIND_NULL};
    else if (is_word(text, yes) || is_word(text, no))
        *ret = (struct scalar){.kind = JSON_KIND_BOOL, .truth = is_word(text, yes)};
    else if (is_word(text, not_finite))
        *ret = (struct scalar){.kind = JSON_KIND_NUMBER, .number = NAN};
    else
        return false;
    return true;
}

/* Digits after the sign: 0x1f, 0b101, 0o17 and, as in C, 017. */
static bool parse_magnitude(struct str s, uint64_t *ret)
{
    char mark = s.len > 1 && s.ptr[0] == '0' ? s.ptr[1] : '1';

    switch (mark) {
    case 'x':
    case 'X':
        return str_parse_base(str_skip(s, 2), 16, ret);
    case 'b':
    case 'B':
        return str_parse_base(str_skip(s, 2), 2, ret);
    case 'o':
    case 'O':
        return str_parse_base(str_skip(s, 2), 8, ret);
    default:
        return str_parse_base(s, s.len > 1 && s.ptr[0] == '0' ? 8 : 10, ret);
    }
}

static bool resolve_number(struct str text, struct scalar *ret)
{
    char plain[64]; /* without underscores */
    struct str s = {plain, 0};
    bool negative = text.len && text.ptr[0] == '-';
    bool sign = negative || (text.len && text.ptr[0] == '+');
    uint64_t magnitude;

    if (text.len == 0 || !memchr("+-.0123456789", text.ptr[0], 13))
        return false;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] == '_')
            continue;
        if (s.len == sizeof(plain))
            return false;
        plain[s.len++] = text.ptr[i];
    }

    *ret = (struct scalar){.kind = JSON_KIND_NUMBER, .integer = true};
    if (parse_magnitude(str_skip(s, sign), &magnitude)) {
        ret->number = magnitude > EXACT_MAX ? (double)UINT64_MAX : (double)magnitude;
        if (negative)
            ret->number = -ret->number;
        return true;
    }
    /* 08 is no octal number, but it is a float; so are digits beyond 64 bits. */
    ret->integer =
        !memchr(s.ptr, '.', s.len) && !memchr(s.ptr, 'e', s.len) && !memchr(s.ptr, 'E', s.len);
    return str_parse_f64(s, &ret->number);
}

static struct scalar resolve(struct str text)
{
    struct scalar s;

    if (resolve_word(text, &s) || resolve_number(text, &s))
        return s;
    return (struct scalar){.kind = JSON_KIND_STRING};
}

static bool is_tag(const yaml_event_t *event, const char *name)
{
    static const struct str prefix = {"tag:yaml.org,2002:", 18};
    struct str tag = str_from((const char *)event->data.scalar.tag);

    return str_starts(tag, prefix) && str_is(str_skip(tag, prefix.len), name);
}

/* A tag decides, then quotes, then the text. False when the text is not what its tag says. */
static bool classify(const yaml_event_t *event, struct str text, struct scalar *ret)
{
    static const struct {
        const char *tag;
        enum json_kind kind;
    } tags[] = {{"int", JSON_KIND_NUMBER},
                {"float", JSON_KIND_NUMBER},
                {"bool", JSON_KIND_BOOL},
                {"null", JSON_KIND_NULL}};

    *ret = resolve(text);
    for (size_t i = 0; i < ARRAY_LEN(tags); i++)
        if (is_tag(event, tags[i].tag))
            return ret->kind == tags[i].kind && (ret->integer || !is_tag(event, "int"));
    if (event->data.scalar.tag || !event->data.scalar.plain_implicit)
        *ret = (struct scalar){.kind = JSON_KIND_STRING};
    return true;
}

static int put_number(struct reader *rd, struct json_put *j, const yaml_event_t *event,
                      const struct scalar *s)
{
    if (!isfinite(s->number))
        return fail(rd, event, -EINVAL, "JSON has no such number");
    if (s->integer && fabs(s->number) > (double)EXACT_MAX)
        return fail(rd, event, -ERANGE, "an integer beyond 2^53");
    json_put_f64(j, s->number);
    return 0;
}

static int put_scalar(struct reader *rd, struct json_put *j, const yaml_event_t *event)
{
    struct str text = str_slice(event->data.scalar.value, event->data.scalar.length);
    AUTO(buf_done) struct buf decoded = BUF_NULL;
    struct scalar s;

    if (!classify(event, text, &s))
        return fail(rd, event, -EINVAL, "the value is not of the type that its tag says");
    if (s.kind == JSON_KIND_NUMBER)
        return put_number(rd, j, event, &s);
    if (s.kind == JSON_KIND_NULL) {
        json_put_null(j);
        return 0;
    }
    if (s.kind == JSON_KIND_BOOL) {
        json_put_bool(j, s.truth);
        return 0;
    }
    if (is_tag(event, "binary")) {
        if (!base64_decode(&decoded, text))
            return fail(rd, event, -EINVAL, "!!binary is not base64");
        text = buf_str(&decoded);
    }
    if (text.len && memchr(text.ptr, '\0', text.len))
        return fail(rd, event, -EINVAL, "NUL in a string");
    json_put_str(j, text);
    return 0;
}

/* --- anchors --------------------------------------------------------------------------------- */

static void anchor_free(void *anchor)
{
    free(anchor);
}

static void remember(struct reader *rd, struct str name, struct str text, size_t nodes)
{
    struct anchor *a = xmalloc(sizeof(*a) + text.len);

    a->nodes = nodes;
    a->len = text.len;
    memcpy(a->text, text.ptr, text.len);
    free(strmap_set(rd->anchors, name, a));
}

static int put_alias(struct reader *rd, struct json_put *j, const yaml_event_t *event)
{
    struct str name = str_from((const char *)event->data.alias.anchor);
    const struct anchor *a = strmap_get(rd->anchors, name);
    int r;

    if (!a)
        return fail(rd, event, -EINVAL, "an alias without its anchor");
    r = spend(rd, event, a->nodes, a->len);
    if (r < 0)
        return r;
    json_put_raw(j, str_slice(a->text, a->len));
    return 0;
}

static struct str anchor_of(const yaml_event_t *event)
{
    if (event->type == YAML_SCALAR_EVENT)
        return str_from((const char *)event->data.scalar.anchor);
    if (event->type == YAML_SEQUENCE_START_EVENT)
        return str_from((const char *)event->data.sequence_start.anchor);
    if (event->type == YAML_MAPPING_START_EVENT)
        return str_from((const char *)event->data.mapping_start.anchor);
    return STR_NULL;
}

/* --- collections ----------------------------------------------------------------------------- */

static int put_sequence(struct reader *rd, struct json_put *j, unsigned depth)
{
    json_put_array(j);
    for (;;) {
        AUTO(yaml_event_delete) yaml_event_t event = {.type = YAML_NO_EVENT};
        int r = next_event(rd, &event);

        if (r < 0)
            return r;
        if (event.type == YAML_SEQUENCE_END_EVENT)
            break;
        r = put_node(rd, j, &event, depth);
        if (r < 0)
            return r;
    }
    json_put_array_end(j);
    return 0;
}

static int put_key(struct reader *rd, struct json_put *j, const yaml_event_t *event, unsigned depth)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct json_put key = json_put_on(&scratch);
    int r;

    if (event->type != YAML_SCALAR_EVENT && event->type != YAML_ALIAS_EVENT)
        return fail(rd, event, -EINVAL, "a key is a collection");
    r = put_node(rd, &key, event, depth);
    if (r < 0)
        return r;
    switch (buf_data(&scratch)[0]) {
    case '"':
        json_put_raw(j, buf_str(&scratch));
        break;
    case '{':
    case '[':
        return fail(rd, event, -EINVAL, "a key is a collection");
    case 'n':
        return fail(rd, event, -EINVAL, "a key is null");
    default: /* a number or bool as text */
        json_put_str(j, buf_str(&scratch));
        break;
    }
    buf_put_char(j->out, ':');
    j->comma = false;
    return 0;
}

static bool is_merge(const yaml_event_t *event)
{
    if (event->type != YAML_SCALAR_EVENT ||
        !str_is(str_slice(event->data.scalar.value, event->data.scalar.length), "<<"))
        return false;
    return event->data.scalar.tag ? is_tag(event, "merge") : event->data.scalar.plain_implicit;
}

static void put_members(struct json_put *j, struct str object)
{
    if (object.len > 2)
        json_put_raw(j, str_slice(object.ptr + 1, object.len - 2));
}

/* The first map of a list wins, so it comes last. False when one is no map. */
static bool put_list_members(struct json_put *j, struct str array)
{
    AUTO(mem_free) struct str *objects = NULL;
    struct json_pull p;
    size_t n = 0;

    json_pull_init(&p, array);
    if (json_pull_array(&p)) {
        while (json_pull_element(&p)) {
            if (json_pull_peek(&p) != JSON_KIND_OBJECT)
                return false;
            objects = xreallocarray(objects, n + 1, sizeof(*objects));
            (void)json_pull_skip(&p, &objects[n++]);
        }
    }
    if (json_pull_end(&p, NULL) < 0)
        return false;
    while (n > 0)
        put_members(j, objects[--n]);
    return true;
}

static int put_merge(struct reader *rd, struct json_put *j, unsigned depth)
{
    AUTO(yaml_event_delete) yaml_event_t event = {.type = YAML_NO_EVENT};
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct json_put merged = json_put_on(&scratch);
    int r = next_event(rd, &event);

    if (r < 0)
        return r;
    r = put_node(rd, &merged, &event, depth);
    if (r < 0)
        return r;
    if (buf_data(&scratch)[0] == '{')
        put_members(j, buf_str(&scratch));
    else if (buf_data(&scratch)[0] != '[' || !put_list_members(j, buf_str(&scratch)))
        return fail(rd, &event, -EINVAL, "a merge key needs a map or a list of maps");
    return spend(rd, &event, 0, scratch.len);
}

static int put_value(struct reader *rd, struct json_put *j, unsigned depth)
{
    AUTO(yaml_event_delete) yaml_event_t event = {.type = YAML_NO_EVENT};
    int r = next_event(rd, &event);

    return r < 0 ? r : put_node(rd, j, &event, depth);
}

static int put_mapping(struct reader *rd, struct json_put *j, unsigned depth)
{
    json_put_object(j);
    for (;;) {
        AUTO(yaml_event_delete) yaml_event_t key = {.type = YAML_NO_EVENT};
        int r = next_event(rd, &key);

        if (r < 0)
            return r;
        if (key.type == YAML_MAPPING_END_EVENT)
            break;
        if (is_merge(&key)) {
            r = put_merge(rd, j, depth);
        } else {
            r = put_key(rd, j, &key, depth);
            if (r == 0)
                r = put_value(rd, j, depth);
        }
        if (r < 0)
            return r;
    }
    json_put_object_end(j);
    return 0;
}

static int put_content(struct reader *rd, struct json_put *j, const yaml_event_t *event,
                       unsigned depth)
{
    if (event->type == YAML_SCALAR_EVENT)
        return put_scalar(rd, j, event);
    if (event->type == YAML_ALIAS_EVENT)
        return put_alias(rd, j, event);
    if (depth == YAML_DEPTH)
        return fail(rd, event, -EINVAL, "nested too deeply");
    if (event->type == YAML_SEQUENCE_START_EVENT)
        return put_sequence(rd, j, depth + 1);
    return put_mapping(rd, j, depth + 1);
}

static int put_node(struct reader *rd, struct json_put *j, const yaml_event_t *event,
                    unsigned depth)
{
    struct str name = anchor_of(event), text;
    size_t begin = j->out->len + j->comma, nodes = rd->nodes;
    int r = spend(rd, event, 1, 0);

    if (r < 0)
        return r;
    if (name.len) /* an alias inside must not find an earlier anchor of this name */
        free(strmap_remove(rd->anchors, name));
    r = put_content(rd, j, event, depth);
    if (r < 0 || name.len == 0)
        return r;
    text = str_skip(buf_str(j->out), begin);
    r = spend(rd, event, 0, text.len);
    if (r == 0)
        remember(rd, name, text, rd->nodes - nodes);
    return r;
}

/* --- input ----------------------------------------------------------------------------------- */

struct source {
    struct str rest;
    bool unfinished; /* the last line lacks its newline */
};

/* Adds that newline, as kubectl does: a block scalar that ends the file keeps it. */
static int read_source(void *opaque, unsigned char *into, size_t size, size_t *ret_n)
{
    struct source *source = opaque;
    size_t n = MIN(size, source->rest.len);

    if (n > 0) {
        memcpy(into, source->rest.ptr, n);
        source->rest = str_skip(source->rest, n);
    } else if (source->unfinished) {
        into[n++] = '\n';
        source->unfinished = false;
    }
    *ret_n = n;
    return 1;
}

/* --- documents ------------------------------------------------------------------------------- */

/* An empty document leaves nothing. */
static int put_document(struct reader *rd, struct json_put *j)
{
    size_t before = j->out->len;
    bool comma = j->comma;
    int r;

    rd->anchors = strmap_new();
    r = put_value(rd, j, 0);
    rd->anchors = strmap_free_with(rd->anchors, anchor_free);
    if (r == 0 && str_is(str_skip(buf_str(j->out), before + comma), "null")) {
        buf_truncate(j->out, before);
        j->comma = comma;
    }
    return r;
}

static int put_stream(struct reader *rd, struct json_put *j)
{
    json_put_array(j);
    for (;;) {
        AUTO(yaml_event_delete) yaml_event_t event = {.type = YAML_NO_EVENT};
        int r = next_event(rd, &event);

        if (r == 0 && event.type == YAML_DOCUMENT_START_EVENT)
            r = put_document(rd, j);
        if (r < 0)
            return r;
        if (event.type == YAML_STREAM_END_EVENT)
            break;
    }
    json_put_array_end(j);
    return 0;
}

int yaml_parse(struct json **ret, struct str text, struct err *e)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct json_put j = json_put_on(&out);
    struct source source = {text, !str_ends(text, STR("\n"))};
    struct reader rd = {.e = e};
    int r;

    if (text.len > YAML_MAX_BYTES)
        return err_set(e, -E2BIG, "yaml: %zu bytes, more than %d", text.len, YAML_MAX_BYTES);
    if (!yaml_parser_initialize(&rd.parser))
        abort(); /* out of memory, as in xmalloc() */
    yaml_parser_set_input(&rd.parser, read_source, &source);
    r = put_stream(&rd, &j);
    yaml_parser_delete(&rd.parser);
    if (r < 0)
        return r;
    r = json_parse(ret, buf_str(&out), e);
    return r < 0 ? err_wrap(e, r, "yaml") : 0;
}
