/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/chat_native.h"

#include "lib/base/mem.h"

static struct str lowered(const struct str s, struct buf *out)
{
    for (size_t i = 0; i < s.len; i++)
        buf_put_char(out, s.ptr[i] >= 'A' && s.ptr[i] <= 'Z' ? (char)(s.ptr[i] + 32) : s.ptr[i]);
    return buf_str(out);
}

static bool is_separator(char c)
{
    return c == '-' || c == '_' || c == '.';
}

/* "deepseek", perhaps a separator, @version, and then nothing or a separator. */
static bool is_deepseek(struct str name, struct str version)
{
    if (!str_starts(name, STR("deepseek")))
        return false;
    name = str_skip(name, strlen("deepseek"));
    if (name.len && is_separator(name.ptr[0]))
        name = str_skip(name, 1);
    if (!str_starts(name, version))
        return false;
    name = str_skip(name, version.len);
    return name.len == 0 || is_separator(name.ptr[0]);
}

static bool is_experimental(struct str name)
{
    return str_has(name, STR("exp"));
}

static bool is_kimi_k3(struct str name)
{
    return str_has(name, STR("kimi-k3")) || str_has(name, STR("kimi_k3")) ||
           str_has(name, STR("kimik3"));
}

static bool is_named_v32(struct str name)
{
    return str_has(name, STR("deepseek")) && str_has(name, STR("v3.2")) && !is_experimental(name);
}

static chat_native_fn find_by_name(struct str name)
{
    if (is_deepseek(name, STR("v4.1")))
        return deepseek_v41_put;
    if (is_deepseek(name, STR("v4")))
        return deepseek_v4_put;
    if (is_named_v32(name))
        return deepseek_v32_put;
    return is_kimi_k3(name) ? kimi_k3_put : NULL;
}

chat_native_fn chat_native_find(struct str model_type, struct str name, enum chat_release release)
{
    AUTO(buf_done) struct buf type_bytes = BUF_NULL;
    AUTO(buf_done) struct buf name_bytes = BUF_NULL;
    struct str type = lowered(model_type, &type_bytes);

    name = lowered(name, &name_bytes);
    if (release == CHAT_AS_SENT)
        return NULL;
    if (release == CHAT_OF_0_9)
        return is_named_v32(name) ? deepseek_v32_put : NULL;
    if (type.len == 0)
        return find_by_name(name);
    if (str_is(type, "deepseek_v41"))
        return deepseek_v41_put;
    if (str_is(type, "deepseek_v4"))
        return deepseek_v4_put;
    /* V3.2-Exp has the type of V3.2 and a template of its own */
    if ((str_is(type, "deepseek_v32") || str_is(type, "deepseek_v3_2")) && !is_experimental(name))
        return deepseek_v32_put;
    return str_is(type, "kimi_k3") ? kimi_k3_put : NULL;
}
