/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whatever json_pull_skip() accepts can be walked value by value, and cJSON accepts it too, except
 * for what only cJSON minds: half surrogate pairs, numbers of more than 63 bytes.
 */
#include "lib/base/json_pull.h"

#include <assert.h>
#include <cjson/cJSON.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct walk {
    struct json_pull p;
    struct buf scratch;
    bool cjson_minds;
};

static void walk_value(struct walk *w);

static void walk_string(struct walk *w)
{
    struct str raw, plain;

    assert(json_pull_raw_string(&w->p, &raw));
    buf_clear(&w->scratch);
    if (!json_unescape(raw, &w->scratch)) {
        w->cjson_minds = true;
        return;
    }
    plain = buf_str(&w->scratch);
    assert(plain.len <= raw.len && str_is_utf8(plain));
}

/* An integer that one reader takes is the one that the other takes. */
static void walk_number(struct walk *w)
{
    struct json_pull u = w->p, i = w->p, f = w->p;
    uint64_t magnitude, same_magnitude;
    int64_t value, same_value;
    struct str text;
    double number;

    assert(json_pull_skip(&w->p, &text));
    if (json_pull_u64(&u, &magnitude))
        assert(str_parse_u64(text, &same_magnitude) && magnitude == same_magnitude);
    if (json_pull_i64(&i, &value))
        assert(str_parse_i64(text, &same_value) && value == same_value);
    if (json_pull_f64(&f, &number))
        assert(f.at == w->p.at);
    w->cjson_minds |= text.len > 63;
}

static void walk_members(struct walk *w, bool object)
{
    struct str key;

    assert(object ? json_pull_object(&w->p) : json_pull_array(&w->p));
    while (object ? json_pull_key(&w->p, &key) : json_pull_element(&w->p)) {
        buf_clear(&w->scratch);
        if (object && !json_unescape(key, &w->scratch))
            w->cjson_minds = true;
        walk_value(w);
    }
    assert(json_pull_ok(&w->p));
}

static void walk_value(struct walk *w)
{
    bool flag;

    switch (json_pull_peek(&w->p)) {
    case JSON_KIND_OBJECT:
        walk_members(w, true);
        break;
    case JSON_KIND_ARRAY:
        walk_members(w, false);
        break;
    case JSON_KIND_STRING:
        walk_string(w);
        break;
    case JSON_KIND_NUMBER:
        walk_number(w);
        break;
    case JSON_KIND_BOOL:
        assert(json_pull_bool(&w->p, &flag));
        break;
    case JSON_KIND_NULL:
        assert(json_pull_null(&w->p));
        break;
    case JSON_KIND_NONE:
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct walk w = {.cjson_minds = false};
    struct str text = {(const char *)data, size};
    cJSON *theirs;

    json_pull_init(&w.p, text);
    (void)json_pull_skip(&w.p, NULL);
    if (json_pull_end(&w.p, NULL) < 0)
        return 0;

    json_pull_init(&w.p, text);
    walk_value(&w);
    assert(json_pull_end(&w.p, NULL) == 0);
    buf_done(&w.scratch);

    theirs = cJSON_ParseWithLength(text.ptr, text.len);
    assert(theirs || w.cjson_minds);
    cJSON_Delete(theirs);
    return 0;
}
