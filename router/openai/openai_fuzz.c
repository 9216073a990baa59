/* SPDX-License-Identifier: Apache-2.0 */
/* Request bodies of both APIs: whatever is accepted has a model and a prompt, and what is not says
 * why. */
#include <assert.h>

#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "router/openai/chat_extras.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_json(struct str text)
{
    AUTO(json_free) struct json *v = NULL;
    struct err e;

    assert(!text.len || (json_parse_wide(&v, text, &e) == 0 && json_is_object(v)));
}

static void check_strictly(const struct openai_request *r, struct arena *a, bool of_1)
{
    static const uint64_t hashes[] = {1};
    const struct chat_extras_conf conf = {of_1, true, STR("p"), hashes, of_1};
    struct chat_extras told;
    struct api_error e;

    if (!openai_check_strictly(r, of_1, &e)) {
        assert(e.status == 400 && e.text[0]);
        return;
    }
    chat_extras_make(r, &conf, a, &told);
    check_json(told.media);
    check_json(told.uuids);
    check_json(told.args);
}

/* Tags of each parser are JSON, however tools look. */
static void check_tags(struct openai_request *r, struct arena *a)
{
    static const char *const parsers[] = {"hermes", "qwen3_coder", "deepseek_v4", "glm47",
                                          "kimi_k2"};

    for (size_t i = 0; i < ARRAY_LEN(parsers); i++) {
        openai_settle_tags(r, &(struct call_tags){parsers[i], true, true, i % 2}, a);
        check_json(r->sampling.guided_decoding_json);
    }
}

static void parse(enum api api, struct str body)
{
    AUTO(arena_free) struct arena *a = arena_new();
    struct openai_request r;
    struct api_error e;

    if (openai_request_parse(api, body, a, &r, &e)) {
        assert(r.model.len > 0);
        assert(api == API_CHAT ? json_len(r.messages) > 0
                               : r.prompt.text.len > 0 || r.prompt.n_ids > 0);
        assert(openai_request_choices(&r) >= 1 && openai_request_choices(&r) <= OPENAI_CHOICES_MAX);
        assert(str_is_utf8(r.model) && r.stop.n_stop <= 4);
        if (api == API_CHAT) {
            check_strictly(&r, a, true);
            check_strictly(&r, a, false);
            check_tags(&r, a);
        }
    } else {
        assert(e.status >= 400 && e.status < 600 && e.text[0]);
    }
    openai_request_done(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    parse(API_CHAT, str_slice(data, size));
    parse(API_COMPLETIONS, str_slice(data, size));
    return 0;
}
