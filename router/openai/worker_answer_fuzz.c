/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks that workers write: what is taken is written as JSON, chunks and bodies alike, and what those
 * say is read again. */
#include <assert.h>

#include "lib/base/err.h"
#include "lib/base/json_pull.h"
#include "router/openai/worker_answer.h"
#include "router/openai/worker_said.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect_json(struct str text)
{
    struct json_pull p;
    struct err e;

    json_pull_init(&p, text);
    assert(json_pull_skip(&p, NULL) && json_pull_end(&p, &e) == 0);
}

/* A chunk a line. */
static void answer(enum api api, const struct chunk_style *style, struct str all)
{
    AUTO(worker_answer_free) struct worker_answer *w = worker_answer_new(api, style, 1);
    AUTO(buf_done) struct buf out = BUF_NULL, choices = BUF_NULL;
    AUTO(worker_said_done) struct worker_said said;
    struct str line;
    struct err e;

    worker_said_init(&said);
    for (bool more = true; more;) {
        more = str_cut(&all, '\n', &line);
        buf_clear(&out);
        if (worker_answer_put_chunk(w, line, &out, &e) == 0)
            expect_json(buf_str(&out));
        else
            assert(out.len == 0);
        (void)worker_said_read_chunk(&said, buf_str(&out));
        (void)!worker_answer_gather(w, line, &e);
    }
    worker_answer_put_choices(w, &choices);
    worker_said_read_first(&said, buf_str(&choices));
    assert(said.text.len <= all.len + choices.len);
    worker_said_read_calls(&said, buf_str(&choices));
    buf_clear(&out);
    worker_answer_put_body(w, buf_str(&choices), &out);
    expect_json(buf_str(&out));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum api apis[] = {API_CHAT, API_COMPLETIONS};

    for (size_t i = 0; i < ARRAY_LEN(apis); i++) {
        answer(apis[i], &CHUNKS_OF_0_9, str_slice(data, size));
        answer(apis[i], &CHUNKS_OF_1, str_slice(data, size));
    }
    return 0;
}
