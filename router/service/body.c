/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/body.h"

#include <errno.h>

#include "lib/base/json_pull.h"

static void pull_str(struct arena *a, struct json_pull *p, struct str *ret)
{
    struct buf decoded = BUF_NULL;
    struct str text;

    if (json_pull_string(p, &decoded, &text))
        *ret = (struct str){arena_strdup(a, text), text.len};
    buf_done(&decoded);
}

static void pull_number(struct json_pull *p, uint64_t max, struct opt_u64 *ret)
{
    struct opt_u64 v = {.set = true};

    if (!json_pull_u64(p, &v.v))
        return;
    if (v.v > max)
        json_pull_fail(p, "the number is too large");
    *ret = v;
}

/* Room for what the next value, which is of that kind, may have: an element takes @least bytes of
 * text, comma included. */
static void *room_for(struct arena *a, const struct json_pull *p, enum json_kind kind, size_t least,
                      size_t size)
{
    struct json_pull ahead = *p;
    struct str text;

    if (json_pull_peek(&ahead) != kind || !json_pull_skip(&ahead, &text))
        return arena_alloc(a, size);
    return arena_alloc(a, (text.len / least + 1) * size);
}

static void *room_for_array(struct arena *a, const struct json_pull *p, size_t size)
{
    return room_for(a, p, JSON_KIND_ARRAY, 2, size);
}

static void pull_tokens(struct arena *a, struct json_pull *p, struct u32_list *ret)
{
    uint32_t *ids = room_for_array(a, p, sizeof(*ids));
    size_t n = 0;

    if (!json_pull_array(p))
        return;
    while (json_pull_element(p)) {
        uint64_t id = 0;

        (void)json_pull_u64(p, &id);
        if (id > UINT32_MAX)
            json_pull_fail(p, "the token id does not fit into 32 bits");
        ids[n++] = (uint32_t)id;
    }
    *ret = (struct u32_list){ids, n};
}

/* Hashes of engines are unsigned to some and signed to others (router.md §8.3). */
static void pull_hash(struct json_pull *p, uint64_t *ret)
{
    struct json_pull again = *p;
    int64_t negative = 0;

    if (json_pull_u64(p, ret))
        return;
    if (json_pull_i64(&again, &negative)) {
        *ret = (uint64_t)negative;
        *p = again;
    }
}

static void pull_hashes(struct arena *a, struct json_pull *p, struct u64_list *ret)
{
    uint64_t *hashes = room_for_array(a, p, sizeof(*hashes));
    size_t n = 0;

    if (!json_pull_array(p))
        return;
    while (json_pull_element(p)) {
        hashes[n] = 0;
        pull_hash(p, &hashes[n++]);
    }
    *ret = (struct u64_list){hashes, n};
}

static void pull_strings(struct arena *a, struct json_pull *p, struct str_list *ret)
{
    struct str *strings = room_for(a, p, JSON_KIND_ARRAY, 3, sizeof(*strings));
    size_t n = 0;

    if (!json_pull_array(p))
        return;
    while (json_pull_element(p))
        pull_str(a, p, &strings[n++]);
    *ret = (struct str_list){strings, n};
}

static void pull_numbers(struct arena *a, struct json_pull *p, struct number_list *ret)
{
    struct named_number *numbers = room_for(a, p, JSON_KIND_OBJECT, 5, sizeof(*numbers));
    struct str key;
    size_t n = 0;

    if (!json_pull_object(p))
        return;
    while (json_pull_key(p, &key)) {
        numbers[n].name = (struct str){arena_strdup(a, key), key.len};
        (void)json_pull_f64(p, &numbers[n++].v);
    }
    *ret = (struct number_list){numbers, n};
}

static void pull_json(struct arena *a, struct json_pull *p, struct str *ret)
{
    struct str text;

    if (json_pull_skip(p, &text))
        *ret = (struct str){arena_strdup(a, text), text.len};
}

static void pull_field(struct arena *a, struct json_pull *p, const struct body_field *f, void *into)
{
    void *at = (char *)into + f->offset;

    switch (f->type) {
    case BODY_STR:
        pull_str(a, p, at);
        break;
    case BODY_U64:
        pull_number(p, UINT64_MAX, at);
        break;
    case BODY_U32:
        pull_number(p, UINT32_MAX, at);
        break;
    case BODY_F64:
        ((struct opt_f64 *)at)->set = json_pull_f64(p, &((struct opt_f64 *)at)->v);
        break;
    case BODY_BOOL:
        ((struct opt_bool *)at)->set = json_pull_bool(p, &((struct opt_bool *)at)->v);
        break;
    case BODY_TOKENS:
        pull_tokens(a, p, at);
        break;
    case BODY_HASHES:
        pull_hashes(a, p, at);
        break;
    case BODY_STRINGS:
        pull_strings(a, p, at);
        break;
    case BODY_NUMBERS:
        pull_numbers(a, p, at);
        break;
    case BODY_MEDIA:
        media_list_pull(a, p, at);
        break;
    case BODY_OBJECT:
        if (json_pull_peek(p) != JSON_KIND_OBJECT)
            json_pull_fail(p, "an object was expected");
        pull_json(a, p, at);
        break;
    case BODY_JSON:
        pull_json(a, p, at);
        break;
    }
}

static const struct body_field *find(const struct body_field *table, size_t n, struct str key)
{
    for (size_t i = 0; i < n; i++)
        if (str_is(key, table[i].key))
            return &table[i];
    return NULL;
}

static bool is_json(struct str text, struct err *e)
{
    struct json_pull p;

    json_pull_init(&p, text);
    (void)json_pull_skip(&p, NULL);
    return json_pull_end(&p, e) == 0;
}

int body_parse(struct arena *a, struct str json, const struct body_field *table, size_t n,
               void *into, struct err *e)
{
    const struct body_field *at = NULL, *f;
    struct json_pull p;
    struct str key;
    uint64_t seen = 0;
    int r;

    json_pull_init(&p, json);
    if (json_pull_peek(&p) == JSON_KIND_NULL)
        json_pull_fail(&p, "null is no object"); /* what members may be, a body may not */
    if (json_pull_object(&p)) {
        while (json_pull_key(&p, &key)) {
            f = find(table, n, key);
            if (!f || json_pull_null(&p)) {
                if (!f)
                    (void)json_pull_skip(&p, NULL);
                continue;
            }
            pull_field(a, &p, f, into);
            seen |= UINT64_C(1) << (f - table);
            if (json_pull_ok(&p))
                continue;
            at = f;
            break;
        }
    }
    r = json_pull_end(&p, e);
    if (r < 0 && !is_json(json, e))
        return BODY_NOT_JSON;
    if (r < 0) {
        r = json_pull_end(&p, e);
        return at ? err_wrap(e, r, "%s", at->key) : r;
    }
    for (size_t i = 0; i < n; i++)
        if (table[i].required && !(seen & UINT64_C(1) << i))
            return err_set(e, -EINVAL, "missing field `%s`", table[i].key);
    return 0;
}

/* "name=value" each. */
static bool are_parameters(struct str s)
{
    while (s.len) {
        size_t end = str_index(s, ';');

        if (str_index(str_trim(str_head(s, end)), '=') >= str_trim(str_head(s, end)).len)
            return false;
        s = str_skip(s, MIN(end + 1, s.len));
    }
    return true;
}

bool body_is_json(struct str content_type)
{
    size_t end = str_index(content_type, ';');
    struct str type = str_trim(str_head(content_type, end));
    size_t slash = str_index(type, '/');
    struct str kind = str_skip(type, MIN(slash + 1, type.len));
    struct str tail = str_skip(kind, kind.len > 5 ? kind.len - 5 : 0);

    return str_eq_nocase(str_head(type, slash), STR("application")) &&
           (str_eq_nocase(kind, STR("json")) ||
            (kind.len > 5 && str_eq_nocase(tail, STR("+json")))) &&
           are_parameters(str_skip(content_type, MIN(end + 1, content_type.len)));
}
