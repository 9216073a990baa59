/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a user's pod settings go over our defaults, on JSON trees.
 *
 * One rule: what the user left empty (null, "", []) says nothing; a list or scalar replaces; an
 * object merges key by key. Environments merge by name. Source: operator.md §2.6. Pure.
 */
#pragma once

#include "lib/base/json_tree.h"

/* Lays a copy of @over on @base. */
void merge_over(struct json *base, const struct json *over);

/*
 * As merge_over(), with the exceptions of a container: the environment is left alone, a startup
 * probe replaces ours whole, a probe's handler replaces a handler of another kind, and a GET that
 * names its port has our scheme no more.
 */
void merge_container(struct json *base, const struct json *over);

/* The entry of that name; NULL when there is none. */
struct json *env_find(const struct json *env, const char *name);
/* Sets or adds a copy of @entry; an entry of that name keeps its place, as $(NAME) needs it. */
void env_put(struct json *env, const struct json *entry);
void env_put_value(struct json *env, const char *name, const char *value);
/* env_put() of every entry; both may be NULL, then nothing happens. */
void env_put_all(struct json *env, const struct json *entries);
void env_remove(struct json *env, const char *name);

/* A copy without what means "not given": nulls and empty lists, at every level. */
struct json *compact_copy(const struct json *v) __attribute__((returns_nonnull));
