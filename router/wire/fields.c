/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/fields.h"

static void value_pull(struct json_pull *p, enum field_type type, void *at)
{
    struct opt_u64 *u = at;
    struct opt_i64 *i = at;
    struct opt_f64 *f = at;
    struct opt_bool *b = at;

    if (json_pull_null(p))
        return;
    switch (type) {
    case FIELD_U32:
    case FIELD_U64:
        u->set = json_pull_u64(p, &u->v);
        if (u->set && type == FIELD_U32 && u->v > UINT32_MAX)
            json_pull_fail(p, "integer out of range");
        break;
    case FIELD_I64:
        i->set = json_pull_i64(p, &i->v);
        break;
    case FIELD_F64:
        f->set = json_pull_f64(p, &f->v);
        break;
    case FIELD_BOOL:
        b->set = json_pull_bool(p, &b->v);
        break;
    }
}

bool fields_pull(struct json_pull *p, struct str key, const struct field *table, size_t n,
                 void *base)
{
    for (size_t i = 0; i < n; i++) {
        if (!str_is(key, table[i].key))
            continue;
        value_pull(p, table[i].type, (char *)base + table[i].offset);
        return true;
    }
    return false;
}

static bool is_set(const struct field *f, const void *at)
{
    switch (f->type) {
    case FIELD_U32:
    case FIELD_U64:
        return ((const struct opt_u64 *)at)->set;
    case FIELD_I64:
        return ((const struct opt_i64 *)at)->set;
    case FIELD_F64:
        return ((const struct opt_f64 *)at)->set;
    case FIELD_BOOL:
        return ((const struct opt_bool *)at)->set;
    }
    return false;
}

void float_put(struct json_put *j, double v)
{
    size_t before = j->out->len;
    struct str text;

    json_put_f64(j, v);
    text = str_skip(buf_str(j->out), before);
    if (str_index(text, '.') == text.len && str_index(text, 'e') == text.len &&
        str_index(text, 'n') == text.len)
        buf_put_cstr(j->out, ".0");
}

void field_put(struct json_put *j, const struct field *f, const void *base, bool skip_unset)
{
    const void *at = (const char *)base + f->offset;
    bool set = is_set(f, at);

    if (!set && skip_unset)
        return;
    json_put_key(j, f->key);
    if (!set) {
        json_put_null(j);
        return;
    }
    switch (f->type) {
    case FIELD_U32:
    case FIELD_U64:
        json_put_u64(j, ((const struct opt_u64 *)at)->v);
        break;
    case FIELD_I64:
        json_put_i64(j, ((const struct opt_i64 *)at)->v);
        break;
    case FIELD_F64:
        float_put(j, ((const struct opt_f64 *)at)->v);
        break;
    case FIELD_BOOL:
        json_put_bool(j, ((const struct opt_bool *)at)->v);
        break;
    }
}

void fields_put(struct json_put *j, const struct field *table, size_t n, const void *base,
                bool skip_unset)
{
    for (size_t i = 0; i < n; i++)
        field_put(j, &table[i], base, skip_unset);
}
