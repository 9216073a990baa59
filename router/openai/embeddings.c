/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/embeddings.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/digest.h"
#include "lib/base/err.h"
#include "lib/base/json_pull.h"
#include "lib/base/json_put.h"

/* --- payloads ---------------------------------------------------------------------------------- */

static void put_inputs(struct json_put *j, const struct embeddings_ids *ids)
{
    size_t begin = 0;

    json_put_array(j);
    for (size_t i = 0; i < ids->n; i++) {
        json_put_u32_array(j, ids->ids + begin, ids->ends[i] - begin);
        begin = ids->ends[i];
    }
    json_put_array_end(j);
}

void embeddings_put_ids(struct buf *out, const struct openai_request *in,
                        const struct embeddings_ids *ids, struct str mdc_sum)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    json_put_key(&j, "token_ids");
    put_inputs(&j, ids);
    json_put_key(&j, "model");
    json_put_str(&j, in->model);
    json_put_key(&j, "encoding_format");
    if (in->embedding.format.len)
        json_put_str(&j, in->embedding.format);
    else
        json_put_null(&j);
    if (in->embedding.truncate.set) { /* workers may do it, too */
        json_put_key(&j, "truncate_prompt_tokens");
        json_put_i64(&j, in->embedding.truncate.v);
    }
    json_put_key(&j, "dimensions");
    if (in->embedding.dimensions.set)
        json_put_u64(&j, in->embedding.dimensions.v);
    else
        json_put_null(&j);
    json_put_key(&j, "mdc_sum");
    json_put_str(&j, mdc_sum);
    json_put_key(&j, "annotations");
    json_put_array(&j);
    for (size_t i = 0; i < in->n_annotations; i++)
        json_put_str(&j, in->annotations[i]);
    json_put_array_end(&j);
    json_put_object_end(&j);
}

/* Its one member that is known. */
static void put_nvext(struct json_put *j, struct str nvext)
{
    struct str annotations = json_pull_member(nvext, "annotations");

    json_put_object(j);
    if (annotations.len && !str_is(annotations, "null")) {
        json_put_key(j, "annotations");
        json_put_raw(j, annotations);
    }
    json_put_object_end(j);
}

void embeddings_put_body(struct buf *out, struct str body, bool of_1)
{
    static const char *const names[] = {"model",
                                        "input",
                                        "user",
                                        "encoding_format",
                                        "dimensions",
                                        "nvext",
                                        "add_special_tokens",
                                        "truncate_prompt_tokens"};
    enum { N_OF_1 = 2 }; /* the last of them */
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    for (size_t i = 0; i < ARRAY_LEN(names) - (of_1 ? 0 : N_OF_1); i++) {
        struct str value = json_pull_member(body, names[i]);

        if (!value.len || str_is(value, "null"))
            continue;
        json_put_key(&j, names[i]);
        if (strcmp(names[i], "nvext") == 0)
            put_nvext(&j, value);
        else
            json_put_raw(&j, value);
    }
    json_put_object_end(&j);
}

/* --- numbers ----------------------------------------------------------------------------------- */

enum { DIGITS_MIN = 6, DIGITS_MAX = 9 }; /* of a float: so many may do, so many do */

/* The shortest text that reads back the same. */
static void put_float(struct buf *out, float v)
{
    double a = fabs((double)v);
    char text[32];
    int n;

    if (!isfinite(v)) {
        buf_put_cstr(out, "null");
        return;
    }
    for (int digits = isnormal(v) ? DIGITS_MIN : 1; a > 0 && digits < DIGITS_MAX; digits++) {
        /* Doubles tell which of them does without a text each. */
        double scale = pow(10, digits - 1 - floor(log10(a)));

        if (isfinite(scale) && scale > 0 && (float)(nearbyint(a * scale) / scale) == (float)a) {
            n = snprintf(text, sizeof(text), "%.*g", digits, (double)v);
            if (strtof(text, NULL) == v) {
                buf_put(out, text, (size_t)n);
                return;
            }
        }
    }
    n = snprintf(text, sizeof(text), "%.*g", DIGITS_MAX, (double)v);
    buf_put(out, text, (size_t)n);
}

static int put_decoded(struct buf *out, struct str base64, struct err *e)
{
    AUTO(buf_done) struct buf bytes = BUF_NULL;

    if (!base64_decode(&bytes, base64) || bytes.len % sizeof(float) != 0)
        return err_set(e, -EINVAL, "Failed to decode embedding payload");
    buf_put_char(out, '[');
    for (size_t at = 0; at < bytes.len; at += sizeof(float)) {
        const uint8_t *b = (const uint8_t *)buf_data(&bytes) + at;
        uint32_t word =
            (uint32_t)b[3] << 24 | (uint32_t)b[2] << 16 | (uint32_t)b[1] << 8 | (uint32_t)b[0];
        float v;

        memcpy(&v, &word, sizeof(v));
        if (at > 0)
            buf_put_char(out, ',');
        put_float(out, v);
    }
    buf_put_char(out, ']');
    return 0;
}

/* --- answers ----------------------------------------------------------------------------------- */

void embeddings_answer_done(struct embeddings_answer *a)
{
    buf_done(&a->data);
    buf_done(&a->model_json);
    buf_done(&a->object_json);
}

static enum json_kind kind_of(struct str json)
{
    struct json_pull p;

    json_pull_init(&p, json);
    return json.len ? json_pull_peek(&p) : JSON_KIND_NONE;
}

static bool is_numbers(struct str json)
{
    struct json_pull p;
    bool ok = true;

    json_pull_init(&p, json);
    if (kind_of(json) != JSON_KIND_ARRAY || !json_pull_array(&p))
        return false;
    while (ok && json_pull_element(&p))
        ok = json_pull_peek(&p) == JSON_KIND_NUMBER && json_pull_skip(&p, NULL);
    return ok;
}

/* Numbers stay as the worker wrote them. */
static int put_vector(const struct embeddings_answer *a, struct str json, struct buf *out,
                      struct err *e)
{
    bool is_text = kind_of(json) == JSON_KIND_STRING;

    if (is_text && !a->base64)
        return put_decoded(out, str_slice(json.ptr + 1, json.len - 2), e);
    if (!is_text && !is_numbers(json))
        return err_set(e, -EINVAL, "a vector that is neither numbers nor a text");
    buf_put_str(out, json);
    return 0;
}

static int add_vector(struct embeddings_answer *a, uint64_t index, struct str vector, struct err *e)
{
    int r;

    buf_printf(&a->data,
               "%s{\"index\":%llu,\"object\":\"embedding\",\"embedding\":", a->n ? "," : "",
               (unsigned long long)index);
    r = put_vector(a, vector, &a->data, e);
    buf_put_char(&a->data, '}');
    a->n++;
    return r;
}

static int add_tokens(struct embeddings_answer *a, struct str usage, struct err *e)
{
    uint64_t prompt, total;

    if (!str_parse_u64(json_pull_member(usage, "prompt_tokens"), &prompt) ||
        !str_parse_u64(json_pull_member(usage, "total_tokens"), &total))
        return err_set(e, -EINVAL, "missing field `prompt_tokens` or `total_tokens`");
    a->prompt_tokens += prompt;
    a->total_tokens += total;
    return 0;
}

/* Enters the array that is called @name. */
static int enter(struct str json, const char *name, struct json_pull *p, struct err *e)
{
    struct str array = json_pull_member(json, name);

    json_pull_init(p, json);
    if (!json_pull_skip(p, NULL) || json_pull_end(p, e) < 0)
        return err_set(e, -EINVAL, "it is no JSON");
    json_pull_init(p, array);
    return kind_of(array) == JSON_KIND_ARRAY && json_pull_array(p)
               ? 0
               : err_set(e, -EINVAL, "missing field `%s`", name);
}

int embeddings_add_vectors(struct embeddings_answer *a, struct str json, struct err *e)
{
    struct json_pull p;
    struct str vector;
    int r = enter(json, "embeddings", &p, e);

    while (r == 0 && json_pull_element(&p) && json_pull_skip(&p, &vector))
        r = add_vector(a, a->n, vector, e);
    return r < 0 ? r : add_tokens(a, json, e);
}

int embeddings_add_answer(struct embeddings_answer *a, struct str json, struct err *e)
{
    struct str item, model = json_pull_member(json, "model");
    struct str object = json_pull_member(json, "object");
    struct json_pull p;
    int r = enter(json, "data", &p, e);

    if (r == 0 && (kind_of(model) != JSON_KIND_STRING || kind_of(object) != JSON_KIND_STRING))
        return err_set(e, -EINVAL, "missing field `model` or `object`");
    while (r == 0 && json_pull_element(&p) && json_pull_skip(&p, &item)) {
        uint64_t index = a->n;

        (void)!str_parse_u64(json_pull_member(item, "index"), &index);
        r = add_vector(a, index, json_pull_member(item, "embedding"), e);
    }
    if (r < 0)
        return r;
    buf_clear(&a->model_json);
    buf_put_str(&a->model_json, model);
    buf_clear(&a->object_json);
    buf_put_str(&a->object_json, object);
    return add_tokens(a, json_pull_member(json, "usage"), e);
}

void embeddings_put(const struct embeddings_answer *a, struct str model, struct buf *out)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    json_put_key(&j, "object");
    json_put_raw(&j, a->object_json.len ? buf_str(&a->object_json) : STR("\"list\""));
    json_put_key(&j, "model");
    if (a->model_json.len)
        json_put_raw(&j, buf_str(&a->model_json));
    else
        json_put_str(&j, model);
    json_put_key(&j, "data");
    json_put_array(&j);
    if (a->data.len)
        json_put_raw(&j, buf_str(&a->data));
    json_put_array_end(&j);
    json_put_key(&j, "usage");
    json_put_object(&j);
    json_put_key(&j, "prompt_tokens");
    json_put_u64(&j, a->prompt_tokens);
    json_put_key(&j, "total_tokens");
    json_put_u64(&j, a->total_tokens);
    json_put_object_end(&j);
    json_put_object_end(&j);
}
