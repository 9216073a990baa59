/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making of cards, for card.c and card_files.c.
 */
#pragma once

#include "router/discovery/card.h"

struct model_card *model_card_new(void) __attribute__((returns_nonnull));
/* Fills mdc_sum. @context_length as written in the card, not the effective one. */
void model_card_sum(struct model_card *c, struct str prompt_context, uint32_t context_length);
