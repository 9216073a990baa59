/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a chat template: refused with a line, or rendered within the limits to UTF-8.
 */
#include "router/token/template.h"

#include <assert.h>

#include "lib/base/err.h"
#include "lib/base/json_tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char VARS[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"be \xc3\xa9\"},"
    "{\"role\":\"user\",\"content\":\"<hi> & 'you'\"},{\"role\":\"assistant\",\"content\":null,"
    "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"b\":[1,2.5],\"a\":true}}}]}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}],"
    "\"bos_token\":\"<s>\",\"add_generation_prompt\":true,\"n\":7,\"l\":[3,1,2],\"s\":\"a b\"}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct json *vars;
    AUTO(template_free) struct template *t = NULL;
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct tm now = {.tm_year = 126, .tm_mday = 21};
    struct err e = {""};
    int r;

    if (!vars && json_parse(&vars, STR(VARS), &e) < 0)
        abort();
    if (template_parse(&t, str_slice(data, size), (enum template_style)(size % 2), &e) < 0) {
        assert(e.text[0]);
        return 0;
    }
    if (size % 4 > 1)
        template_act_as_1(t);
    r = template_render(t, &(struct template_context){.vars = vars, .now = &now}, &out, &e);
    assert(r == 0 ? str_is_utf8(buf_str(&out)) : e.text[0] && out.len == 0);
    return 0;
}
