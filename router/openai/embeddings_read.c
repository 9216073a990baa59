/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of /v1/embeddings.
 */
#include "lib/base/err.h"
#include "router/openai/embeddings.h"
#include "router/openai/openai_read.h"

enum { INPUT_IDS_MAX = 1 << 22, ANNOTATIONS_MAX = 1024 };

static struct openai_prompt *add_input(struct openai_reader *rd)
{
    struct openai_request *r = rd->r;

    if (r->n_prompts == EMBEDDINGS_INPUTS_MAX) {
        (void)api_fail(rd->e, 400, "input", "Validation: input has more than %d entries",
                       EMBEDDINGS_INPUTS_MAX);
        return NULL;
    }
    if ((r->n_prompts & (r->n_prompts - 1)) == 0) { /* full: 0, 1, 2, 4, … */
        size_t room = r->n_prompts ? 2 * r->n_prompts : 1;
        struct openai_prompt *all = arena_alloc(rd->arena, room * sizeof(*all));

        if (r->n_prompts)
            memcpy(all, r->prompts, r->n_prompts * sizeof(*all));
        r->prompts = all;
    }
    r->prompts[r->n_prompts] = (struct openai_prompt){.is_ids = false};
    return &r->prompts[r->n_prompts++];
}

static bool add_text(struct openai_reader *rd)
{
    struct openai_prompt *in = add_input(rd);

    return in && openai_read_string(rd, "input", &in->text);
}

/* Within an array that has been entered. */
static bool add_ids(struct openai_reader *rd)
{
    AUTO(buf_done) struct buf ids = BUF_NULL;
    struct openai_prompt *in = add_input(rd);
    uint64_t id;

    if (!in)
        return false;
    while (json_pull_element(&rd->p)) {
        uint32_t narrow;

        if (json_pull_peek(&rd->p) != JSON_KIND_NUMBER || !json_pull_u64(&rd->p, &id) ||
            id > UINT32_MAX || ids.len >= INPUT_IDS_MAX * sizeof(narrow))
            return openai_wrong_type(rd, "input", "token ids between 0 and 4294967295");
        narrow = (uint32_t)id;
        buf_put(&ids, &narrow, sizeof(narrow));
    }
    in->is_ids = true;
    in->n_ids = ids.len / sizeof(uint32_t);
    in->ids = arena_alloc(rd->arena, ids.len);
    if (ids.len)
        memcpy(in->ids, buf_data(&ids), ids.len);
    return true;
}

/* "text", [ids], ["text", …] or [[ids], …]; an empty array asks for nothing. */
static bool key_input(struct openai_reader *rd, const char *key)
{
    enum json_kind kind = json_pull_peek(&rd->p);
    struct json_pull ahead = rd->p;
    bool ok = true, of_ids;

    if (kind == JSON_KIND_STRING)
        return add_text(rd);
    if (kind != JSON_KIND_ARRAY || !json_pull_array(&ahead))
        return openai_wrong_type(rd, key, "a string or an array");
    if (json_pull_peek(&ahead) == JSON_KIND_NUMBER)
        return json_pull_array(&rd->p) && add_ids(rd);
    of_ids = json_pull_peek(&ahead) == JSON_KIND_ARRAY;
    if (!json_pull_array(&rd->p))
        return false;
    while (ok && json_pull_element(&rd->p)) {
        if (of_ids)
            ok = openai_expect(rd, key, JSON_KIND_ARRAY, "arrays of token ids only") &&
                 json_pull_array(&rd->p) && add_ids(rd);
        else
            ok = add_text(rd);
    }
    return ok;
}

static bool key_model(struct openai_reader *rd, const char *key)
{
    return openai_read_string(rd, key, &rd->r->model);
}

static bool key_user(struct openai_reader *rd, const char *key)
{
    return openai_read_string(rd, key, &rd->r->user);
}

static bool key_format(struct openai_reader *rd, const char *key)
{
    struct str *format = &rd->r->embedding.format;

    if (!openai_read_string(rd, key, format))
        return false;
    return str_is(*format, "float") || str_is(*format, "base64")
               ? true
               : openai_wrong_type(rd, key, "`float` or `base64`");
}

static bool key_dimensions(struct openai_reader *rd, const char *key)
{
    return openai_read_u64(rd, key, UINT32_MAX, &rd->r->embedding.dimensions);
}

/* 0.9.0 and 1.6.1 know no other member, and workers get no other. */
static bool key_nvext(struct openai_reader *rd, const char *key)
{
    struct str name;
    bool ok = true;

    if (!openai_expect(rd, key, JSON_KIND_OBJECT, "an object") || !json_pull_object(&rd->p))
        return false;
    while (ok && json_pull_key(&rd->p, &name)) {
        if (!str_is(name, "annotations") || json_pull_peek(&rd->p) == JSON_KIND_NULL)
            json_pull_skip(&rd->p, NULL);
        else
            ok = openai_expect(rd, "annotations", JSON_KIND_ARRAY, "an array of strings") &&
                 openai_read_strings(rd, "annotations", ANNOTATIONS_MAX, &rd->r->annotations,
                                     &rd->r->n_annotations);
    }
    return ok;
}

/* Whether they are right depends on the model's generation: embeddings_request_settle(). */
static bool key_special(struct openai_reader *rd, const char *key)
{
    struct opt_bool *special = &rd->r->embedding.special;

    if (json_pull_peek(&rd->p) == JSON_KIND_BOOL) {
        special->set = true;
        return json_pull_bool(&rd->p, &special->v);
    }
    rd->r->embedding.wrong = key;
    return json_pull_skip(&rd->p, NULL);
}

static bool key_truncate(struct openai_reader *rd, const char *key)
{
    struct opt_i64 *truncate = &rd->r->embedding.truncate;
    struct str number;

    if (!json_pull_skip(&rd->p, &number))
        return false;
    truncate->set = str_parse_i64(number, &truncate->v);
    if (!truncate->set)
        rd->r->embedding.wrong = key;
    return true;
}

static const struct {
    const char *name;
    bool (*read)(struct openai_reader *rd, const char *key);
} KEYS[] = {{"model", key_model},
            {"input", key_input},
            {"encoding_format", key_format},
            {"dimensions", key_dimensions},
            {"user", key_user},
            {"nvext", key_nvext},
            {"add_special_tokens", key_special},
            {"truncate_prompt_tokens", key_truncate}};

_Static_assert(ARRAY_LEN(KEYS) <= OPENAI_ROWS_MAX, "a bit each");

static bool read_key(struct openai_reader *rd, struct str name, bool *ret_has_input)
{
    bool is_input = str_is(name, "input");

    *ret_has_input |= is_input;
    for (size_t i = 0; i < ARRAY_LEN(KEYS); i++)
        if (str_is(name, KEYS[i].name))
            return openai_read_once(rd, i, KEYS[i].name) &&
                   ((!is_input && json_pull_null(&rd->p)) || KEYS[i].read(rd, KEYS[i].name));
    json_pull_skip(&rd->p, NULL);
    return true;
}

bool embeddings_request_parse(struct str body, struct arena *a, struct openai_request *ret,
                              struct api_error *e)
{
    struct openai_reader rd = {.arena = a, .r = ret, .e = e};
    bool ok = true, has_input = false;
    struct str name;
    struct err why;

    *ret = (struct openai_request){.api = API_EMBEDDINGS};
    e->status = 0;
    json_pull_init(&rd.p, body);
    if (json_pull_peek(&rd.p) == JSON_KIND_OBJECT && json_pull_object(&rd.p))
        while (ok && json_pull_key(&rd.p, &name))
            ok = read_key(&rd, name, &has_input);
    else
        json_pull_fail(&rd.p, "expected an object");
    if (e->status)
        return false;
    if (json_pull_end(&rd.p, &why) < 0)
        return api_fail(e, 400, NULL, "Failed to parse the request body as JSON: %s", why.text);
    if (!has_input)
        return api_fail(e, 400, "input",
                        "Failed to deserialize the JSON body into the target type: missing field "
                        "`input`");
    if (!ret->model.ptr) /* an empty one is a model that is not there */
        return api_fail(e, 400, "model",
                        "Failed to deserialize the JSON body into the target type: missing field "
                        "`model`");
    if (ret->n_prompts)
        ret->prompt = ret->prompts[0];
    return true;
}

bool embeddings_request_settle(struct openai_request *r, bool of_1, struct api_error *e)
{
    const char *wrong = r->embedding.wrong;

    if (!of_1) {
        r->embedding.truncate = (struct opt_i64){.set = false};
        r->embedding.special = (struct opt_bool){.set = false};
        return true;
    }
    if (wrong)
        return api_fail(e, 400, wrong,
                        "Failed to deserialize the JSON body into the target type: %s must be %s",
                        wrong,
                        strcmp(wrong, "add_special_tokens") == 0 ? "a boolean" : "an integer");
    return true;
}
