/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/stop.h"

void stop_init(struct stop *s, const struct stop_rules *rules)
{
    *s = (struct stop){.rules = rules};
}

void stop_done(struct stop *s)
{
    buf_done(&s->held);
}

void stop_flush(struct stop *s, struct buf *out)
{
    buf_put_str(out, str_skip(buf_str(&s->held), s->told));
    buf_clear(&s->held);
    s->told = 0;
}

static bool is_hidden(const struct stop_rules *rules, uint32_t id)
{
    for (size_t i = 0; i < rules->n_hidden_ids; i++)
        if (rules->hidden_ids[i] == id)
            return true;
    return false;
}

/* Finds the first of the list that occurs; *ret_at is where. */
static bool find_string(const struct stop_rules *rules, struct str text, size_t *ret_which,
                        size_t *ret_at)
{
    for (size_t i = 0; text.len > 0 && i < rules->n_strings; i++) {
        const char *hit = memmem(text.ptr, text.len, rules->strings[i].ptr, rules->strings[i].len);

        if (hit) {
            *ret_which = i;
            *ret_at = (size_t)(hit - text.ptr);
            return true;
        }
    }
    return false;
}

/* Bytes at the end of @text that may be the start of a stop string: the longest such. */
static size_t held_len(const struct stop_rules *rules, struct str text)
{
    size_t held = 0;

    for (size_t i = 0; i < rules->n_strings; i++) {
        struct str stop = rules->strings[i];

        for (size_t n = stop.len > text.len ? text.len : stop.len - 1; n > held; n--)
            if (memcmp(text.ptr + text.len - n, stop.ptr, n) == 0)
                held = n;
    }
    return held;
}

enum stop_result stop_count(struct stop *s, uint32_t id)
{
    s->tokens++;
    return s->tokens >= s->rules->min_tokens && is_hidden(s->rules, id) ? STOP_AT_ID : STOP_GO_ON;
}

/* Lets out the first @n bytes of @all but for what is out already. */
static void let_out(struct stop *s, struct str all, size_t n, struct buf *out)
{
    buf_put(out, all.ptr + s->told, n - s->told);
}

enum stop_result stop_push(struct stop *s, struct str text, struct buf *out)
{
    const struct stop_rules *rules = s->rules;
    struct str all;
    size_t at, held;

    if (s->tokens < rules->min_tokens) {
        buf_put_str(out, text);
        return STOP_GO_ON;
    }
    buf_put_str(&s->held, text);
    all = buf_str(&s->held);
    if (find_string(rules, all, &s->matched, &at)) {
        if (rules->include_string)
            at += rules->strings[s->matched].len;
        let_out(s, all, at, out);
        buf_clear(&s->held);
        s->found = true;
        return STOP_AT_STRING;
    }
    held = held_len(rules, all);
    let_out(s, all, rules->include_string ? all.len : all.len - held, out);
    buf_consume(&s->held, all.len - held);
    s->told = rules->include_string ? held : 0;
    return STOP_GO_ON;
}
