/* SPDX-License-Identifier: Apache-2.0 */
#include "router/epp/annotate.h"

#include <errno.h>

#include "lib/base/json_pull.h"
#include "lib/base/json_put.h"

/* Members that are ours to say. */
static bool is_said(struct str key)
{
    static const char *const ours[] = {"backend_instance_id", "prefill_worker_id",
                                       "decode_worker_id", "enable_local_updates", "token_data"};

    for (size_t i = 0; i < ARRAY_LEN(ours); i++)
        if (str_is(key, ours[i]))
            return true;
    return false;
}

/* All members of an object but those that @leaves says; false when it is none. */
static bool copy_members(struct json_put *j, struct json_pull *p, bool (*leaves)(struct str key),
                         struct str *ret_nvext)
{
    struct str key, value;

    if (json_pull_peek(p) != JSON_KIND_OBJECT || !json_pull_object(p))
        return false;
    while (json_pull_key(p, &key)) {
        if (!json_pull_skip(p, &value))
            return false;
        if (ret_nvext && str_is(key, "nvext"))
            *ret_nvext = value;
        else if (!leaves || !leaves(key))
            json_put_member_raw(j, key, value);
    }
    return json_pull_ok(p);
}

static void put_said(struct json_put *j, const struct annotation *a)
{
    json_put_member_bool(j, "enable_local_updates", false);
    if (!a->prefill_id.set || a->prefill_id.v == a->decode_id) {
        json_put_member_u64(j, "backend_instance_id", a->decode_id);
    } else {
        json_put_member_u64(j, "prefill_worker_id", a->prefill_id.v);
        json_put_member_u64(j, "decode_worker_id", a->decode_id);
    }
    json_put_key(j, "token_data");
    json_put_u32_array(j, a->tokens, a->n_tokens);
}

int annotate_request(struct buf *out, struct str request, const struct annotation *a, struct err *e)
{
    struct json_put j = json_put_on(out);
    struct str nvext = STR_NULL;
    struct json_pull p, inner;

    json_pull_init(&p, request);
    json_put_object(&j);
    if (!copy_members(&j, &p, NULL, &nvext))
        return err_set(e, -EINVAL, "the request is no object");
    json_put_key(&j, "nvext");
    json_put_object(&j);
    json_pull_init(&inner, nvext.len ? nvext : STR("{}"));
    if (!json_pull_null(&inner) && !copy_members(&j, &inner, is_said, NULL))
        return err_set(e, -EINVAL, "nvext is no object");
    put_said(&j, a);
    json_put_object_end(&j);
    json_put_object_end(&j);
    return json_pull_end(&p, e);
}
