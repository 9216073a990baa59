/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/engine_output.h"

#include <errno.h>
#include <string.h>

#include "lib/base/err.h"
#include "router/wire/fields.h"

void engine_output_reader_done(struct engine_output_reader *r)
{
    free(r->ids);
    buf_done(&r->scratch);
    *r = (struct engine_output_reader){0};
}

static void ids_pull(struct engine_output_reader *r, struct json_pull *p, struct engine_output *o)
{
    size_t n = 0;
    uint64_t id;

    if (json_pull_peek(p) == JSON_KIND_NULL)
        json_pull_fail(p, "token_ids is null");
    if (!json_pull_array(p))
        return;
    while (json_pull_element(p) && json_pull_u64(p, &id)) {
        if (id > UINT32_MAX) {
            json_pull_fail(p, "token id out of range");
            return;
        }
        if (n == r->cap_ids) {
            /* Bounded by the frame: an id takes two bytes of it at least. */
            r->cap_ids = MAX(2 * n, (size_t)16);
            r->ids = xreallocarray(r->ids, r->cap_ids, sizeof(*r->ids));
        }
        r->ids[n++] = (uint32_t)id;
    }
    o->token_ids = r->ids;
    o->n_token_ids = n;
}

static const struct {
    const char *word;
    enum finish_reason reason;
} finish_words[] = {
    {"eos", FINISH_EOS},
    {"stop", FINISH_STOP},
    {"length", FINISH_LENGTH},
    {"cancelled", FINISH_CANCELLED},
    {"content_filter", FINISH_CONTENT_FILTER},
    {"abort", FINISH_CANCELLED}, /* read only: real engines emit it */
};

static void finish_word(struct str word, struct json_pull *p, struct engine_output *o)
{
    for (size_t i = 0; i < ARRAY_LEN(finish_words); i++) {
        if (str_is(word, finish_words[i].word)) {
            o->finish = finish_words[i].reason;
            return;
        }
    }
    if (!str_starts(word, STR("error"))) {
        json_pull_fail(p, "unknown finish_reason");
        return;
    }
    o->finish = FINISH_ERROR;
    o->finish_error = str_starts(word, STR("error: ")) ? str_skip(word, 7) : word;
}

static void finish_pull(struct engine_output_reader *r, struct json_pull *p,
                        struct engine_output *o)
{
    struct str key, word = STR_NULL;

    if (json_pull_peek(p) == JSON_KIND_STRING) {
        if (json_pull_string(p, &r->scratch, &word))
            finish_word(word, p, o);
        return;
    }
    if (!json_pull_object(p))
        return;
    o->finish = FINISH_ERROR;
    while (json_pull_key(p, &key)) {
        if (str_is(key, "error"))
            text_pull(p, &r->scratch, &o->finish_error);
        else
            skip_pull(p);
    }
}

static const struct field number_fields[] = {
    {"index", FIELD_U32, offsetof(struct engine_output, index)},
    {"cum_log_probs", FIELD_F64, offsetof(struct engine_output, cum_log_probs)},
};

/* Members that are passed on as JSON. */
static const struct {
    const char *key;
    size_t offset;
} json_fields[] = {
    {"tokens", offsetof(struct engine_output, tokens_json)},
    {"log_probs", offsetof(struct engine_output, log_probs_json)},
    {"top_logprobs", offsetof(struct engine_output, top_logprobs_json)},
    {"stop_reason", offsetof(struct engine_output, stop_reason_json)},
    {"disaggregated_params", offsetof(struct engine_output, disaggregated_params_json)},
    {"completion_usage", offsetof(struct engine_output, completion_usage_json)},
    {"extra_args", offsetof(struct engine_output, extra_args_json)},
};

static bool json_field_pull(struct json_pull *p, struct str key, struct engine_output *o)
{
    for (size_t i = 0; i < ARRAY_LEN(json_fields); i++) {
        if (str_is(key, json_fields[i].key)) {
            json_text_pull(p, (struct str *)(void *)((char *)o + json_fields[i].offset));
            return true;
        }
    }
    return false;
}

static void output_pull(struct engine_output_reader *r, struct json_pull *p,
                        struct engine_output *o, bool *ret_has_ids)
{
    struct str key;

    while (json_pull_key(p, &key)) {
        if (str_is(key, "token_ids")) {
            ids_pull(r, p, o);
            *ret_has_ids = true;
        } else if (str_is(key, "text")) {
            if (!json_pull_null(p))
                o->has_text = json_pull_string(p, &r->scratch, &o->text);
        } else if (str_is(key, "finish_reason")) {
            finish_pull(r, p, o);
        } else if (!json_field_pull(p, key, o) &&
                   !fields_pull(p, key, number_fields, ARRAY_LEN(number_fields), o)) {
            skip_pull(p);
        }
    }
}

int engine_output_parse(struct engine_output_reader *r, struct str json, struct engine_output *ret,
                        struct err *e)
{
    struct engine_output o = {0};
    struct json_pull p;
    bool has_ids = false;
    int rc;

    buf_clear(&r->scratch);
    (void)buf_reserve(&r->scratch, json.len); /* views into it must not move */
    json_pull_init(&p, json);
    if (json_pull_object(&p))
        output_pull(r, &p, &o, &has_ids);
    rc = json_pull_end(&p, e);
    if (rc < 0)
        return err_wrap(e, rc, "engine output");
    if (!has_ids)
        return err_set(e, -EINVAL, "engine output: missing field `token_ids`");
    *ret = o;
    return 0;
}

/* --- writing ---------------------------------------------------------------------------------- */

static void finish_put(struct json_put *j, const struct engine_output *o)
{
    json_put_key(j, "finish_reason");
    if (o->finish == FINISH_NONE) {
        json_put_null(j);
    } else if (o->finish == FINISH_ERROR) {
        json_put_object(j);
        json_put_key(j, "error");
        json_put_str(j, o->finish_error);
        json_put_object_end(j);
    } else {
        json_put_cstr(j, finish_words[o->finish - FINISH_EOS].word);
    }
}

static void raw_or_null(struct json_put *j, const char *key, struct str json)
{
    json_put_key(j, key);
    if (json.len)
        json_put_raw(j, json);
    else
        json_put_null(j);
}

static void tokens_put(struct json_put *j, const struct engine_output *o)
{
    json_put_key(j, "tokens");
    if (o->tokens_json.len) {
        json_put_raw(j, o->tokens_json);
        return;
    }
    json_put_array(j);
    for (size_t i = 0; i < o->n_token_ids; i++)
        json_put_null(j);
    json_put_array_end(j);
}

void engine_output_put(struct buf *out, const struct engine_output *o)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    json_put_key(&j, "token_ids");
    json_put_array(&j);
    for (size_t i = 0; i < o->n_token_ids; i++)
        json_put_u64(&j, o->token_ids[i]);
    json_put_array_end(&j);
    tokens_put(&j, o);
    json_put_key(&j, "text");
    if (o->has_text)
        json_put_str(&j, o->text);
    else
        json_put_null(&j);
    field_put(&j, &number_fields[1], o, false);
    raw_or_null(&j, "log_probs", o->log_probs_json);
    raw_or_null(&j, "top_logprobs", o->top_logprobs_json);
    finish_put(&j, o);
    if (o->stop_reason_json.len)
        raw_or_null(&j, "stop_reason", o->stop_reason_json);
    field_put(&j, &number_fields[0], o, false);
    if (o->disaggregated_params_json.len)
        raw_or_null(&j, "disaggregated_params", o->disaggregated_params_json);
    if (o->extra_args_json.len)
        raw_or_null(&j, "extra_args", o->extra_args_json);
    if (o->completion_usage_json.len)
        raw_or_null(&j, "completion_usage", o->completion_usage_json);
    json_put_object_end(&j);
}
