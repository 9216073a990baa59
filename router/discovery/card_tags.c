/* SPDX-License-Identifier: Apache-2.0 */
#include "router/discovery/card_tags.h"

#include "lib/base/json_pull.h"

struct str *card_tags_find(struct card_tags *t, struct str key)
{
    if (str_is(key, "structural_tag"))
        return &t->whole;
    if (str_is(key, "structural_tag_mode"))
        return &t->mode;
    if (str_is(key, "structural_tag_scope"))
        return &t->scope;
    return str_is(key, "structural_tag_schema") ? &t->schema : NULL;
}

void card_tags_settle(const struct card_tags *t, struct model_card *c)
{
    bool is_whole = t->whole.len && t->whole.ptr[0] == '{';
    struct str scope = is_whole ? json_pull_member(t->whole, "scope") : t->scope;
    struct str schema = is_whole ? json_pull_member(t->whole, "schema") : t->schema;

    c->tags_on = is_whole || str_is(t->mode, "\"on\"");
    c->tags_always = str_is(scope, "\"always\"");
    c->tags_strict = str_is(schema, "\"strict\"");
}
