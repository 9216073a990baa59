/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a card's runtime_config says of guided calls of tools: structural_tag, or the same in members of
 * their own, as older readers know it. Pure; views the card's text.
 */
#pragma once

#include "lib/base/str.h"
#include "router/discovery/card.h"

/* JSON values of the members; empty = absent. */
struct card_tags {
    struct str whole, mode, scope, schema;
};

/* Where the value of such a member goes; NULL = it is none. */
struct str *card_tags_find(struct card_tags *t, struct str key);
/* Sets the fields of @c that say it. A value of another type says nothing. */
void card_tags_settle(const struct card_tags *t, struct model_card *c);
