/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/openai_read.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/err.h"

enum { PROMPT_IDS_MAX = 1 << 22 };

/* --- values ------------------------------------------------------------------------------------
 */

bool openai_wrong_type(struct openai_reader *rd, const char *key, const char *want)
{
    return api_malformed(
        rd->e, key, "Failed to deserialize the JSON body into the target type: %s: expected %s",
        key, want);
}

static bool is_new(struct openai_names *seen, struct str name)
{
    for (size_t i = 0; i < seen->n; i++)
        if (str_eq(seen->names[i], name))
            return false;
    if (seen->n < OPENAI_NAMES_MAX)
        seen->names[seen->n++] = name;
    return true;
}

static bool decode_key(struct openai_reader *rd, struct str *name)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    if (!memchr(name->ptr, '\\', name->len))
        return true;
    if (!json_unescape(*name, &out))
        return false;
    *name = str_slice(arena_strdup(rd->arena, buf_str(&out)), out.len);
    return true;
}

bool openai_next_key(struct openai_reader *rd, struct openai_names *seen, struct str *ret)
{
    if (!json_pull_key(&rd->p, ret))
        return false;
    if (!decode_key(rd, ret))
        json_pull_fail(&rd->p, "half of a surrogate pair");
    else if (seen && !is_new(seen, *ret))
        json_pull_fail(&rd->p, "a name that its object has already");
    return json_pull_ok(&rd->p);
}

bool openai_read_once(struct openai_reader *rd, size_t i, const char *key)
{
    uint64_t bit = UINT64_C(1) << i;

    if (rd->seen & bit)
        return api_malformed(rd->e, key,
                             "Failed to deserialize the JSON body into the target type: duplicate "
                             "field `%s`",
                             key);
    rd->seen |= bit;
    return true;
}

bool openai_out_of_range(struct openai_reader *rd, const char *key, const char *range)
{
    return api_fail(rd->e, 400, key, "Validation: %s must be %s", key, range);
}

/* Whether a value of that kind comes next. Text that is no JSON at all is reported at the end. */
bool openai_expect(struct openai_reader *rd, const char *key, enum json_kind kind, const char *want)
{
    enum json_kind next = json_pull_peek(&rd->p);

    if (next == kind)
        return true;
    return next == JSON_KIND_NONE ? false : openai_wrong_type(rd, key, want);
}

bool openai_read_string(struct openai_reader *rd, const char *key, struct str *ret)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct str s;

    if (!openai_expect(rd, key, JSON_KIND_STRING, "a string"))
        return false;
    if (!json_pull_string(&rd->p, &scratch, &s))
        return false;
    *ret = scratch.len ? str_slice(arena_strdup(rd->arena, s), s.len) : s;
    return true;
}

bool openai_read_bool(struct openai_reader *rd, const char *key, bool *ret)
{
    return openai_expect(rd, key, JSON_KIND_BOOL, "a boolean") && json_pull_bool(&rd->p, ret);
}

bool openai_read_u64(struct openai_reader *rd, const char *key, uint64_t max, struct opt_u64 *ret)
{
    uint64_t v;

    if (!openai_expect(rd, key, JSON_KIND_NUMBER, "a non-negative whole number"))
        return false;
    if (!json_pull_u64(&rd->p, &v) || v > max)
        return openai_wrong_type(rd, key, "a non-negative whole number");
    *ret = OPT_U64(v);
    return true;
}

bool openai_read_i64(struct openai_reader *rd, const char *key, struct opt_i64 *ret)
{
    int64_t v;

    if (!openai_expect(rd, key, JSON_KIND_NUMBER, "a whole number"))
        return false;
    if (!json_pull_i64(&rd->p, &v))
        return openai_wrong_type(rd, key, "a whole number");
    *ret = OPT_I64(v);
    return true;
}

bool openai_read_f64(struct openai_reader *rd, const char *key, double min, double max,
                     struct opt_f64 *ret)
{
    char range[80];
    double v;

    if (!openai_expect(rd, key, JSON_KIND_NUMBER, "a number"))
        return false;
    if (!json_pull_f64(&rd->p, &v))
        return openai_wrong_type(rd, key, "a number");
    (void)snprintf(range, sizeof(range), "between %g and %g, got %g", min, max, v);
    if (!(v >= min && v <= max))
        return openai_out_of_range(rd, key, range);
    *ret = OPT_F64(v);
    return true;
}

bool openai_read_tree(struct openai_reader *rd, const char *key, enum json_kind kind,
                      struct json **ret)
{
    if (!openai_expect(rd, key, kind, kind == JSON_KIND_ARRAY ? "an array" : "an object"))
        return false;
    *ret = json_free(*ret);
    *ret = json_pull_tree(&rd->p);
    return *ret != NULL;
}

/* A string or an array of at most @max strings. */
bool openai_read_strings(struct openai_reader *rd, const char *key, size_t max, struct str **ret,
                         size_t *ret_n)
{
    struct str *list = arena_alloc(rd->arena, max * sizeof(*list));
    size_t n = 0;

    if (json_pull_peek(&rd->p) == JSON_KIND_STRING) {
        if (!openai_read_string(rd, key, &list[n++]))
            return false;
    } else {
        if (!openai_expect(rd, key, JSON_KIND_ARRAY, "a string or an array of strings") ||
            !json_pull_array(&rd->p))
            return false;
        while (json_pull_element(&rd->p)) {
            if (n == max)
                return api_fail(rd->e, 400, key, "Validation: %s has more than %zu entries", key,
                                max);
            if (!openai_read_string(rd, key, &list[n++]))
                return false;
        }
    }
    *ret = list;
    *ret_n = n;
    return true;
}

static bool is_function(struct str json)
{
    return str_starts(json_pull_member(json, "name"), STR("\"")) &&
           json_pull_member(json, "parameters").len;
}

bool openai_refuse_functions(struct openai_reader *rd, const char *key)
{
    struct str one;

    if (!openai_expect(rd, key, JSON_KIND_ARRAY, "an array of functions") ||
        !json_pull_array(&rd->p))
        return false;
    while (json_pull_element(&rd->p)) {
        if (!json_pull_skip(&rd->p, &one))
            return false;
        if (!is_function(one))
            return openai_wrong_type(rd, key, "functions with a name and parameters");
    }
    return api_fail(rd->e, 501, key, "`%s` is not supported: use `tools`", key);
}

bool openai_refuse_function_call(struct openai_reader *rd, const char *key)
{
    struct str value;

    if (!json_pull_skip(&rd->p, &value))
        return false;
    if (!str_is(value, "\"auto\"") && !str_is(value, "\"none\"") &&
        !str_starts(json_pull_member(value, "name"), STR("\"")))
        return openai_wrong_type(rd, key, "auto, none or the name of a function");
    return api_fail(rd->e, 501, key, "`%s` is not supported: use `tool_choice`", key);
}

bool openai_read_ids(struct openai_reader *rd, const char *key, uint32_t **ret_ids, size_t *ret_n)
{
    struct buf ids = BUF_NULL;
    bool ok = true;

    while (ok && json_pull_element(&rd->p)) {
        uint64_t id;
        uint32_t narrow;

        ok = json_pull_u64(&rd->p, &id) && id <= UINT32_MAX &&
             ids.len < PROMPT_IDS_MAX * sizeof(narrow);
        narrow = ok ? (uint32_t)id : 0;
        buf_put(&ids, &narrow, sizeof(narrow));
    }
    *ret_n = ids.len / sizeof(uint32_t);
    *ret_ids = arena_alloc(rd->arena, ids.len);
    if (ids.len)
        memcpy(*ret_ids, buf_data(&ids), ids.len);
    buf_done(&ids);
    return ok ? true : openai_wrong_type(rd, key, "token ids between 0 and 4294967295");
}
