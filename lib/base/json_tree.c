/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A `struct json` is a cJSON node. cJSON keeps the tree; reading is done by json_pull and writing
 * by json_put, because cJSON's own reader rounds integers and its writer prints some of them with
 * an exponent. Nodes and names come from malloc(), which cJSON frees with by default.
 */
#include "lib/base/json_tree.h"

#include <assert.h>
#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>

#include "lib/base/err.h"
#include "lib/base/json_put.h"

#define NODE(v) ((cJSON *)(v))
#define CONST_NODE(v) ((const cJSON *)(v))
#define JSON(node) ((struct json *)(node))

/* Beyond this not every integer is a double. */
#define EXACT_MAX (INT64_C(1) << 53)

_Static_assert((int)JSON_TREE_DEPTH == (int)JSON_PULL_DEPTH, "the scanner keeps the tree's depth");

/* Members of an object that are compared pair by pair for duplicates; more are sorted. */
enum { PAIRS_MAX = 16 };

static cJSON *need(cJSON *node)
{
    if (!node)
        abort(); /* out of memory, as in xmalloc() */
    return node;
}

struct json *json_free(struct json *v)
{
    cJSON_Delete(NODE(v));
    return NULL;
}

/* --- members in order of their names --------------------------------------------------------- */

struct member {
    cJSON *node;
    size_t at;
};

static int by_name_then_place(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    int order = strcmp(x->node->string, y->node->string);

    return order ? order : (x->at > y->at) - (x->at < y->at);
}

/* The caller frees. */
static struct member *sorted_members(const cJSON *object, size_t *ret_n)
{
    size_t n = (size_t)cJSON_GetArraySize(object), i = 0;
    struct member *members = xreallocarray(NULL, n, sizeof(*members));

    for (cJSON *child = object->child; child; child = child->next, i++)
        members[i] = (struct member){child, i};
    qsort(members, n, sizeof(*members), by_name_then_place);
    *ret_n = n;
    return members;
}

/* --- reading --------------------------------------------------------------------------------- */

struct reader {
    struct json_pull pull;
    struct buf scratch; /* one decoded string at a time */
    int code;           /* what json_parse() returns if the scanner has an error */
    bool wide;          /* integers beyond 2^53 are kept */
};

static cJSON *read_value(struct reader *rd);

/* Decoded and NUL-terminated in the scratch; NULL on error. */
static const char *decode(struct reader *rd, struct str raw)
{
    buf_clear(&rd->scratch);
    if (!json_unescape(raw, &rd->scratch)) {
        json_pull_fail(&rd->pull, "half of a surrogate pair");
        return NULL;
    }
    if (memchr(buf_cstr(&rd->scratch), '\0', rd->scratch.len)) {
        json_pull_fail(&rd->pull, "NUL in a string");
        return NULL;
    }
    return buf_cstr(&rd->scratch);
}

static cJSON *read_string(struct reader *rd)
{
    const char *text;
    struct str raw;

    if (!json_pull_raw_string(&rd->pull, &raw))
        return NULL;
    text = decode(rd, raw);
    return text ? need(cJSON_CreateString(text)) : NULL;
}

/* Bits of cJSON's type that it neither uses nor loses when it copies. */
enum { WRITTEN_AS_FLOAT = 1 << 16, WRITTEN_AGAIN = 1 << 17 };

static bool is_integer(struct str text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] == '.' || text.ptr[i] == 'e' || text.ptr[i] == 'E')
            return false;
    return true;
}

/* What no double holds keeps its text. */
static cJSON *new_wide(struct str text)
{
    double value = 0;
    cJSON *node;

    node = need(cJSON_CreateNumber(str_parse_f64(text, &value) ? value : 0));
    node->valuestring = str_dup(text);
    return node;
}

static bool is_wide(struct str text)
{
    int64_t i;
    uint64_t u;

    return str_parse_i64(text, &i) || str_parse_u64(text, &u);
}

static cJSON *read_number(struct reader *rd)
{
    struct json_pull number;
    struct str text;
    int64_t integer;
    double value;
    cJSON *node;

    if (!json_pull_skip(&rd->pull, &text))
        return NULL;
    if (is_integer(text)) {
        if (str_parse_i64(text, &integer) && integer >= -EXACT_MAX && integer <= EXACT_MAX)
            return need(cJSON_CreateNumber((double)integer));
        if (rd->wide && is_wide(text))
            return new_wide(text);
        if (!rd->wide) {
            rd->code = -ERANGE;
            json_pull_fail(&rd->pull, "an integer beyond 2^53");
            return NULL;
        }
    }
    json_pull_init(&number, text);
    if (!json_pull_f64(&number, &value)) {
        json_pull_fail(&rd->pull, number.error);
        return NULL;
    }
    node = need(cJSON_CreateNumber(value));
    node->type |= WRITTEN_AS_FLOAT;
    return node;
}

static cJSON *read_array(struct reader *rd)
{
    cJSON *array = need(cJSON_CreateArray());

    if (json_pull_array(&rd->pull)) {
        while (json_pull_element(&rd->pull)) {
            cJSON *child = read_value(rd);

            if (!child)
                break;
            (void)cJSON_AddItemToArray(array, child);
        }
    }
    return array;
}

/* Owned by the caller; NULL at the end of the object and on error. */
static char *read_key(struct reader *rd)
{
    const char *text;
    struct str raw;

    if (!json_pull_key(&rd->pull, &raw))
        return NULL;
    text = decode(rd, raw);
    return text ? xstrdup(text) : NULL;
}

static bool has_duplicates(const cJSON *object)
{
    for (const cJSON *a = object->child; a; a = a->next)
        for (const cJSON *b = a->next; b; b = b->next)
            if (strcmp(a->string, b->string) == 0)
                return true;
    return false;
}

/* The last of several members with one name stays, as in the API server. */
static void drop_duplicates(cJSON *object, size_t members_read)
{
    AUTO(mem_free) struct member *members = NULL;
    size_t n;

    if (members_read <= PAIRS_MAX && !has_duplicates(object))
        return;
    members = sorted_members(object, &n);
    for (size_t i = 0; i + 1 < n; i++)
        if (strcmp(members[i].node->string, members[i + 1].node->string) == 0) {
            members[i + 1].node->type |= WRITTEN_AGAIN;
            cJSON_Delete(cJSON_DetachItemViaPointer(object, members[i].node));
        }
}

static cJSON *read_object(struct reader *rd)
{
    cJSON *object = need(cJSON_CreateObject()), *child;
    size_t n = 0;
    char *key;

    if (json_pull_object(&rd->pull)) {
        while ((key = read_key(rd))) {
            child = read_value(rd);
            if (!child) {
                free(key);
                break;
            }
            child->string = key;
            (void)cJSON_AddItemToArray(object, child);
            n++;
        }
    }
    drop_duplicates(object, n);
    return object;
}

/* NULL, or an unfinished tree, when the scanner has an error. */
static cJSON *read_value(struct reader *rd)
{
    bool flag;

    switch (json_pull_peek(&rd->pull)) {
    case JSON_KIND_OBJECT:
        return read_object(rd);
    case JSON_KIND_ARRAY:
        return read_array(rd);
    case JSON_KIND_STRING:
        return read_string(rd);
    case JSON_KIND_NUMBER:
        return read_number(rd);
    case JSON_KIND_BOOL:
        return json_pull_bool(&rd->pull, &flag) ? need(cJSON_CreateBool(flag)) : NULL;
    case JSON_KIND_NULL:
        return json_pull_skip(&rd->pull, NULL) ? need(cJSON_CreateNull()) : NULL;
    case JSON_KIND_NONE:
        break;
    }
    return NULL;
}

static int parse(struct json **ret, struct str text, bool wide, struct err *e)
{
    AUTO(json_free) struct json *root = NULL;
    struct reader rd = {.code = -EINVAL, .wide = wide};
    int r;

    if (text.len > JSON_TREE_MAX_BYTES)
        return err_set(e, -E2BIG, "json: %zu bytes, more than %d", text.len, JSON_TREE_MAX_BYTES);
    json_pull_init(&rd.pull, text);
    root = JSON(read_value(&rd));
    r = json_pull_end(&rd.pull, e);
    buf_done(&rd.scratch);
    if (r < 0)
        return err_wrap(e, rd.code, "json");
    *ret = TAKE(root);
    return 0;
}

int json_parse(struct json **ret, struct str text, struct err *e)
{
    return parse(ret, text, false, e);
}

int json_parse_wide(struct json **ret, struct str text, struct err *e)
{
    return parse(ret, text, true, e);
}

struct json *json_pull_tree(struct json_pull *p)
{
    AUTO(json_free) struct json *root = NULL;
    struct reader rd = {.pull = *p, .wide = true};

    if (p->end - p->at > JSON_TREE_MAX_BYTES)
        json_pull_fail(&rd.pull, "more than a tree may have");
    else
        root = JSON(read_value(&rd));
    buf_done(&rd.scratch);
    *p = rd.pull;
    return json_pull_ok(p) ? TAKE(root) : NULL;
}

/* --- writing --------------------------------------------------------------------------------- */

static void put_value(struct json_put *j, const cJSON *v, bool sorted);

static void put_member(struct json_put *j, const cJSON *member, bool sorted)
{
    json_put_key(j, member->string);
    put_value(j, member, sorted);
}

static void put_object(struct json_put *j, const cJSON *v, bool sorted)
{
    AUTO(mem_free) struct member *members = NULL;
    size_t n = 0;

    json_put_object(j);
    if (sorted) {
        members = sorted_members(v, &n);
        for (size_t i = 0; i < n; i++)
            put_member(j, members[i].node, sorted);
    } else {
        for (const cJSON *child = v->child; child; child = child->next)
            put_member(j, child, sorted);
    }
    json_put_object_end(j);
}

static void put_array(struct json_put *j, const cJSON *v, bool sorted)
{
    json_put_array(j);
    for (const cJSON *child = v->child; child; child = child->next)
        put_value(j, child, sorted);
    json_put_array_end(j);
}

static void put_value(struct json_put *j, const cJSON *v, bool sorted)
{
    int64_t integer;
    double number = 0;

    switch (json_kind_of((const struct json *)v)) {
    case JSON_KIND_OBJECT:
        put_object(j, v, sorted);
        break;
    case JSON_KIND_ARRAY:
        put_array(j, v, sorted);
        break;
    case JSON_KIND_STRING:
        json_put_cstr(j, v->valuestring);
        break;
    case JSON_KIND_NUMBER:
        if (v->valuestring)
            json_put_raw(j, str_from(v->valuestring));
        else if (json_i64((const struct json *)v, &integer))
            json_put_i64(j, integer);
        else if (json_f64((const struct json *)v, &number))
            json_put_f64(j, number);
        break;
    case JSON_KIND_BOOL:
        json_put_bool(j, cJSON_IsTrue(v));
        break;
    case JSON_KIND_NULL:
    case JSON_KIND_NONE:
        json_put_null(j);
        break;
    }
}

void json_print(const struct json *v, struct buf *out)
{
    struct json_put j = json_put_on(out);

    put_value(&j, CONST_NODE(v), false);
}

void json_print_sorted(const struct json *v, struct buf *out)
{
    struct json_put j = json_put_on(out);

    put_value(&j, CONST_NODE(v), true);
}

char *json_to_cstr(const struct json *v)
{
    struct buf out = BUF_NULL;

    json_print(v, &out);
    return buf_take_cstr(&out);
}

/* --- looking --------------------------------------------------------------------------------- */

enum json_kind json_kind_of(const struct json *v)
{
    switch (v ? CONST_NODE(v)->type & 0xFF : cJSON_Invalid) {
    case cJSON_Object:
        return JSON_KIND_OBJECT;
    case cJSON_Array:
        return JSON_KIND_ARRAY;
    case cJSON_String:
        return JSON_KIND_STRING;
    case cJSON_Number:
        return JSON_KIND_NUMBER;
    case cJSON_True:
    case cJSON_False:
        return JSON_KIND_BOOL;
    case cJSON_NULL:
        return JSON_KIND_NULL;
    default:
        return JSON_KIND_NONE;
    }
}

struct json *json_get(const struct json *object, const char *key)
{
    if (!json_is_object(object))
        return NULL;
    return JSON(cJSON_GetObjectItemCaseSensitive(CONST_NODE(object), key));
}

struct json *json_path(const struct json *object, ...)
{
    struct json *found = NULL;
    const char *key;
    va_list ap;

    va_start(ap, object);
    while ((key = va_arg(ap, const char *))) {
        found = json_get(object, key);
        object = found;
    }
    va_end(ap);
    return found;
}

size_t json_len(const struct json *array_or_object)
{
    return array_or_object ? (size_t)cJSON_GetArraySize(CONST_NODE(array_or_object)) : 0;
}

struct json *json_at(const struct json *array, size_t i)
{
    if (!json_is_array(array) || i > INT32_MAX)
        return NULL;
    return JSON(cJSON_GetArrayItem(CONST_NODE(array), (int)i));
}

const char *json_key(const struct json *member)
{
    return member ? CONST_NODE(member)->string : NULL;
}

struct json *json_first(const struct json *array_or_object)
{
    return array_or_object ? JSON(CONST_NODE(array_or_object)->child) : NULL;
}

struct json *json_next(const struct json *child)
{
    return child ? JSON(CONST_NODE(child)->next) : NULL;
}

const char *json_cstr(const struct json *v)
{
    return json_is_string(v) ? CONST_NODE(v)->valuestring : NULL;
}

const char *json_get_cstr(const struct json *object, const char *key)
{
    return json_cstr(json_get(object, key));
}

bool json_f64(const struct json *v, double *ret)
{
    if (json_kind_of(v) != JSON_KIND_NUMBER)
        return false;
    *ret = CONST_NODE(v)->valuedouble;
    return true;
}

bool json_is_float(const struct json *v)
{
    return json_kind_of(v) == JSON_KIND_NUMBER && CONST_NODE(v)->type & WRITTEN_AS_FLOAT;
}

bool json_is_repeated(const struct json *member)
{
    return member && CONST_NODE(member)->type & WRITTEN_AGAIN;
}

bool json_i64(const struct json *v, int64_t *ret)
{
    double number;

    if (json_kind_of(v) == JSON_KIND_NUMBER && CONST_NODE(v)->valuestring)
        return str_parse_i64(str_from(CONST_NODE(v)->valuestring), ret);
    if (!json_f64(v, &number) || number != trunc(number) || fabs(number) > (double)EXACT_MAX)
        return false;
    *ret = (int64_t)number;
    return true;
}

bool json_u64(const struct json *v, uint64_t *ret)
{
    const char *text = json_kind_of(v) == JSON_KIND_NUMBER ? CONST_NODE(v)->valuestring : NULL;

    return text && str_parse_u64(str_from(text), ret);
}

bool json_bool(const struct json *v, bool *ret)
{
    if (json_kind_of(v) != JSON_KIND_BOOL)
        return false;
    *ret = cJSON_IsTrue(CONST_NODE(v));
    return true;
}

bool json_get_i64(const struct json *object, const char *key, int64_t *ret)
{
    return json_i64(json_get(object, key), ret);
}

bool json_get_f64(const struct json *object, const char *key, double *ret)
{
    return json_f64(json_get(object, key), ret);
}

bool json_get_bool(const struct json *object, const char *key, bool *ret)
{
    return json_bool(json_get(object, key), ret);
}

/* --- building -------------------------------------------------------------------------------- */

struct json *json_new_object(void)
{
    return JSON(need(cJSON_CreateObject()));
}

struct json *json_new_array(void)
{
    return JSON(need(cJSON_CreateArray()));
}

struct json *json_new_str(struct str s)
{
    AUTO(mem_free) char *text = str_dup(s);

    return json_new_cstr(text);
}

struct json *json_new_cstr(const char *s)
{
    return JSON(need(cJSON_CreateString(s)));
}

struct json *json_new_i64(int64_t v)
{
    assert(v >= -EXACT_MAX && v <= EXACT_MAX);
    return JSON(need(cJSON_CreateNumber((double)v)));
}

struct json *json_new_f64(double v)
{
    return isfinite(v) ? JSON(need(cJSON_CreateNumber(v))) : json_new_null();
}

struct json *json_new_null(void)
{
    return JSON(need(cJSON_CreateNull()));
}

/* Only members of objects have a name. */
static void set_name(cJSON *node, const char *name)
{
    char *copy = name ? xstrdup(name) : NULL;

    free(node->string);
    node->string = copy;
}

struct json *json_dup(const struct json *v)
{
    cJSON *copy;

    if (!v)
        return NULL;
    copy = need(cJSON_Duplicate(CONST_NODE(v), true));
    set_name(copy, NULL);
    return JSON(copy);
}

struct json *json_set(struct json *object, const char *key, struct json *child)
{
    struct json *old = json_get(object, key);

    assert(json_is_object(object));
    if (!child) {
        json_del(object, key);
        return NULL;
    }
    set_name(NODE(child), key);
    if (old)
        (void)cJSON_ReplaceItemViaPointer(NODE(object), NODE(old), NODE(child));
    else
        (void)cJSON_AddItemToArray(NODE(object), NODE(child));
    return child;
}

struct json *json_set_cstr(struct json *object, const char *key, const char *s)
{
    return json_set(object, key, s ? json_new_cstr(s) : NULL);
}

struct json *json_set_i64(struct json *object, const char *key, int64_t v)
{
    return json_set(object, key, json_new_i64(v));
}

struct json *json_set_bool(struct json *object, const char *key, bool v)
{
    return json_set(object, key, JSON(need(cJSON_CreateBool(v))));
}

struct json *json_need_object(struct json *object, const char *key)
{
    struct json *member = json_get(object, key);

    return json_is_object(member) ? member : json_set(object, key, json_new_object());
}

struct json *json_need_array(struct json *object, const char *key)
{
    struct json *member = json_get(object, key);

    return json_is_array(member) ? member : json_set(object, key, json_new_array());
}

struct json *json_add(struct json *array, struct json *child)
{
    assert(json_is_array(array) && child);
    set_name(NODE(child), NULL);
    (void)cJSON_AddItemToArray(NODE(array), NODE(child));
    return child;
}

struct json *json_insert(struct json *array, size_t i, struct json *child)
{
    assert(json_is_array(array) && child && i <= INT32_MAX);
    set_name(NODE(child), NULL);
    (void)cJSON_InsertItemInArray(NODE(array), (int)i, NODE(child)); /* appends if i is beyond */
    return child;
}

static struct json *take(struct json *parent, struct json *child)
{
    if (!child)
        return NULL;
    (void)cJSON_DetachItemViaPointer(NODE(parent), NODE(child));
    set_name(NODE(child), NULL);
    return child;
}

void json_del(struct json *object, const char *key)
{
    (void)json_free(json_take(object, key));
}

struct json *json_take(struct json *object, const char *key)
{
    return take(object, json_get(object, key));
}

struct json *json_take_at(struct json *array, size_t i)
{
    return take(array, json_at(array, i));
}

/* --- comparing and merging ------------------------------------------------------------------- */

static bool same_scalar(const struct json *a, const struct json *b)
{
    if (json_is_string(a))
        return strcmp(json_cstr(a), json_cstr(b)) == 0;
    if (json_kind_of(a) == JSON_KIND_NUMBER)
        return CONST_NODE(a)->valuedouble == CONST_NODE(b)->valuedouble &&
               str_eq(str_from(CONST_NODE(a)->valuestring), str_from(CONST_NODE(b)->valuestring));
    return (CONST_NODE(a)->type & 0xFF) == (CONST_NODE(b)->type & 0xFF);
}

/* Whether @part is in @whole, and with @all nothing else is. */
static bool matches(const struct json *whole, const struct json *part, bool all)
{
    const struct json *at = json_first(whole);

    if (!whole || !part || json_kind_of(whole) != json_kind_of(part))
        return whole == part;
    if (!json_is_array(part) && !json_is_object(part))
        return same_scalar(whole, part);
    if ((all || json_is_array(part)) && json_len(whole) != json_len(part))
        return false;

    JSON_FOREACH (child, part) {
        /* Two versions of an object mostly have one order, so the search begins at the neighbour.
         */
        if (json_is_object(part) && (!at || strcmp(json_key(at), json_key(child)) != 0))
            at = json_get(whole, json_key(child));
        if (!at || !matches(at, child, all))
            return false;
        at = json_next(at);
    }
    return true;
}

bool json_equal(const struct json *a, const struct json *b)
{
    return matches(a, b, true);
}

bool json_contains(const struct json *whole, const struct json *part)
{
    return matches(whole, part, false);
}
