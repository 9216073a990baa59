/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/template.h"

#include <errno.h>

#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "router/token/jinja_run.h"

struct template
{
    struct arena *a; /* owned; holds the source and the tree */
    struct jinja_node *body;
    enum template_style style;
    bool as_1;
};

const char *const TEMPLATE_STYLE_WORDS[] = {"transformers", "dynamo-0.9", NULL};

/*
 * The reference of 0.9.0 takes these two marks out as text, before parsing, so what stands around them is
 * not trimmed. Other spellings of the tags are parsed, and do nothing either.
 */
static struct str without_marks(struct arena *a, struct str source)
{
    static const char *const marks[] = {"{% generation %}", "{% endgeneration %}"};
    AUTO(buf_done) struct buf out = BUF_NULL;

    while (source.len > 0) {
        size_t skip = 0;

        for (size_t i = 0; i < ARRAY_LEN(marks); i++)
            if (str_starts(source, str_from(marks[i])))
                skip = strlen(marks[i]);
        if (skip == 0)
            buf_put_char(&out, source.ptr[0]);
        source = str_skip(source, skip ? skip : 1);
    }
    return str_slice(arena_strdup(a, buf_str(&out)), out.len);
}

int template_parse(struct template **ret, struct str source, enum template_style style,
                   struct err *e)
{
    AUTO(template_free) struct template *t = xcalloc(1, sizeof(*t));
    struct jinja_token *tokens = NULL;
    int r;

    if (source.len > TEMPLATE_MAX_SOURCE)
        return err_set(e, -E2BIG, "chat template: %zu bytes, more than %d", source.len,
                       TEMPLATE_MAX_SOURCE);
    if (!str_is_utf8(source))
        return err_set(e, -EINVAL, "chat template: not UTF-8");
    t->a = arena_new();
    t->style = style;
    if (style == TEMPLATE_DYNAMO_0_9)
        source = without_marks(t->a, source);
    else
        source = str_slice(arena_strdup(t->a, source), source.len);
    r = jinja_lex(source, t->a, &tokens, e);
    if (r == 0)
        r = jinja_parse(tokens, t->a, &t->body, e);
    if (r < 0)
        return err_wrap(e, r, "chat template");
    *ret = TAKE(t);
    return 0;
}

void template_act_as_1(struct template *t)
{
    t->as_1 = true;
}

struct template *template_free(struct template *t)
{
    if (!t)
        return NULL;
    (void)arena_free(t->a);
    free(t);
    return NULL;
}

int template_render(const struct template *t, const struct template_context *in, struct buf *out,
                    struct err *e)
{
    AUTO(arena_free) struct arena *a = arena_new();
    size_t before = out->len;
    struct jinja_run run = {.a = a,
                            .out = out,
                            .vars = in->vars,
                            .over = in->over,
                            .now = in->now,
                            .max_steps = in->steps,
                            .line = 1,
                            .e = e,
                            .old_prints = t->style == TEMPLATE_DYNAMO_0_9,
                            .as_1 = t->as_1};

    jinja_exec(&run, t->body);
    (void)json_free(run.read);
    if (run.r < 0) {
        buf_truncate(out, before);
        return err_wrap(e, run.r, "chat template");
    }
    return 0;
}
