/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/plan/framework.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "operator/api/graph.h"

/* All words of command and args in one line, as a shell would see them. */
static void put_words(struct buf *out, const struct json *words)
{
    JSON_FOREACH (word, words) {
        if (json_cstr(word))
            buf_printf(out, "%s ", json_cstr(word));
    }
}

/* The next word of @rest. */
static bool next_word(struct str *rest, struct str *ret_word)
{
    size_t start = 0, end;

    if (rest->len == 0) /* of which the pointer may be NULL */
        return false;
    while (start < rest->len && isspace((unsigned char)rest->ptr[start]))
        start++;
    for (end = start; end < rest->len && !isspace((unsigned char)rest->ptr[end]); end++)
        ;
    *ret_word = str_slice(rest->ptr + start, end - start);
    *rest = str_skip(*rest, end);
    return end > start;
}

static bool is_python(struct str word)
{
    for (size_t i = word.len; i > 0; i--) {
        if (word.ptr[i - 1] == '/') {
            word = str_skip(word, i);
            break;
        }
    }
    return str_starts(word, STR("python"));
}

bool framework_runs_module(const struct json *container, const char *module)
{
    AUTO(buf_done) struct buf line = BUF_NULL;
    struct str rest, word;
    bool python = false, flag = false;

    put_words(&line, json_get(container, "command"));
    put_words(&line, json_get(container, "args"));
    for (rest = buf_str(&line); next_word(&rest, &word);) {
        if (python && flag && str_is(word, module))
            return true;
        flag = str_is(word, "-m");
        if (is_python(word))
            python = true;
    }
    return false;
}

const char *framework_detect(const struct json *container)
{
    static const char *const engines[][2] = {
        {"dynamo.vllm", "vllm"}, {"dynamo.sglang", "sglang"}, {"dynamo.trtllm", "trtllm"}};

    for (size_t i = 0; i < ARRAY_LEN(engines); i++) {
        if (framework_runs_module(container, engines[i][0]))
            return engines[i][1];
    }
    return NULL;
}

int framework_of(const char **ret, const struct json *spec, const struct json *container,
                 struct err *e)
{
    const char *named = json_get_cstr(spec, "backendFramework");
    const char *found = service_is_worker(spec) ? framework_detect(container) : NULL;

    if (named && !named[0])
        named = NULL;
    if (named && found && strcmp(named, found) != 0)
        return err_set(e, -EINVAL,
                       "failed to determine backend framework: backend framework mismatch: "
                       "detected \"%s\" from command but explicitly configured as \"%s\"",
                       found, named);
    *ret = named ? named : found;
    return 0;
}
