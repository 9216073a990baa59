/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/load/trace_line.h"

#include <errno.h>

#include "bench/load/prose.h"
#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/json_pull.h"

void trace_line_done(struct trace_line *t)
{
    free(t->hash_ids);
    *t = (struct trace_line){.hash_ids = NULL};
}

static void pull_hash_ids(struct json_pull *p, struct trace_line *t)
{
    t->n_hash_ids = 0;
    if (!json_pull_array(p))
        return;
    while (json_pull_element(p)) {
        if (t->n_hash_ids == t->cap_hash_ids) {
            t->cap_hash_ids = t->cap_hash_ids ? 2 * t->cap_hash_ids : 64;
            t->hash_ids = xreallocarray(t->hash_ids, t->cap_hash_ids, sizeof(*t->hash_ids));
        }
        t->hash_ids[t->n_hash_ids] = 0;
        json_pull_u64(p, &t->hash_ids[t->n_hash_ids]);
        t->n_hash_ids++;
    }
}

static void pull_members(struct json_pull *p, struct trace_line *t)
{
    struct str key;

    if (!json_pull_object(p))
        return;
    while (json_pull_key(p, &key)) {
        if (str_is(key, "timestamp"))
            (void)json_pull_f64(p, &t->timestamp_ms);
        else if (str_is(key, "input_length"))
            (void)json_pull_u64(p, &t->input_length);
        else if (str_is(key, "output_length"))
            (void)json_pull_u64(p, &t->output_length);
        else if (str_is(key, "hash_ids"))
            pull_hash_ids(p, t);
        else
            (void)json_pull_skip(p, NULL);
    }
}

int trace_line_parse(struct str line, struct trace_line *ret, struct err *e)
{
    struct json_pull p;
    int r;

    if (line.len > TRACE_LINE_MAX)
        return err_set(e, -EINVAL, "line of %zu bytes", line.len);
    ret->timestamp_ms = -1;
    ret->input_length = ret->output_length = 0;
    ret->n_hash_ids = 0;
    json_pull_init(&p, line);
    pull_members(&p, ret);
    r = json_pull_end(&p, e);
    if (r < 0)
        return r;
    if (!(ret->timestamp_ms >= 0 && ret->timestamp_ms < 1e12))
        return err_set(e, -EINVAL, "timestamp is missing or negative");
    if (ret->input_length < 1 || ret->input_length > TRACE_INPUT_MAX)
        return err_set(e, -EINVAL, "input_length is not between 1 and %d", TRACE_INPUT_MAX);
    if (ret->output_length < 1 || ret->output_length > TRACE_INPUT_MAX)
        return err_set(e, -EINVAL, "output_length is not between 1 and %d", TRACE_INPUT_MAX);
    return 0;
}

void trace_line_put_prompt(struct buf *out, const struct trace_line *t, uint32_t first,
                           uint32_t last, uint64_t salt)
{
    uint64_t random = 0;

    buf_put_char(out, '[');
    for (uint64_t i = 0; i < t->input_length; i++) {
        if (i % TRACE_BLOCK == 0) {
            uint64_t block = i / TRACE_BLOCK;

            random = block < t->n_hash_ids ? t->hash_ids[block] : salt ^ UINT64_MAX ^ block;
        }
        if (i > 0)
            buf_put_char(out, ',');
        buf_put_u64dec(out, prose_between(&random, first, last));
    }
    buf_put_char(out, ']');
}
