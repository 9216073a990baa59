/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The models of a frontend, one for each set of workers: loading them, and following their cards.
 *
 * A changed card loads a model that follows the one in force when it is ready, and not before: what
 * is known to work goes on if the new files cannot be had. One loop thread.
 */
#pragma once

#include "router/frontend/frontend_conf.h"
#include "router/frontend/model.h"
#include "router/frontend/serving.h"

struct models;

/* All borrowed. serving->models is made, filled and emptied by these calls alone. */
struct models *models_new(struct loop *l, struct serving *serving, const struct frontend_conf *conf,
                          const char *(*env)(const char *name)) __attribute__((returns_nonnull));
/* Drops all models, and waits for what is being loaded. */
struct models *models_free(struct models *ms); /* NULL in, NULL out */
/* Borrowed. */
struct model *models_add(struct models *ms, const struct served_model *found)
    __attribute__((returns_nonnull));
void models_change(struct models *ms, const struct served_model *found);
/* The caller's, for model_drop(); NULL when there is none. */
struct model *models_remove(struct models *ms, const char *set);
