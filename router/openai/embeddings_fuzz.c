/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and workers' answers of /v1/embeddings: what is taken is passed on as JSON. */
#include <assert.h>

#include "lib/base/err.h"
#include "lib/base/json_pull.h"
#include "router/openai/embeddings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect_json(const struct buf *text)
{
    struct json_pull p;
    struct err e;

    json_pull_init(&p, buf_str(text));
    assert(json_pull_skip(&p, NULL) && json_pull_end(&p, &e) == 0);
}

static void request(struct str body)
{
    AUTO(arena_free) struct arena *a = arena_new();
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct openai_request r;
    struct api_error e;

    if (!embeddings_request_parse(body, a, &r, &e)) {
        assert(e.status == 400);
        return;
    }
    for (int of_1 = 0; of_1 < 2; of_1++) {
        embeddings_put_body(&out, body, of_1);
        expect_json(&out);
        buf_clear(&out);
    }
    if (!embeddings_request_settle(&r, true, &e))
        assert(e.status == 400);
    embeddings_put_ids(&out, &r, &(struct embeddings_ids){NULL, NULL, 0}, STR("sum"));
    expect_json(&out);
}

static void answer(struct str json, bool base64)
{
    AUTO(embeddings_answer_done) struct embeddings_answer a = {.base64 = base64};
    AUTO(embeddings_answer_done) struct embeddings_answer b = {.base64 = base64};
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct err e;

    if (embeddings_add_vectors(&a, json, &e) == 0)
        embeddings_put(&a, STR("m"), &out);
    else if (embeddings_add_answer(&b, json, &e) == 0)
        embeddings_put(&b, STR("m"), &out);
    else
        return;
    expect_json(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = str_slice(data, size);

    request(text);
    answer(text, false);
    answer(text, true);
    return 0;
}
