/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chats made of requests of other APIs, as trees that openai_request_parse() reads once printed.
 * Pure.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/json_tree.h"
#include "router/openai/openai.h"

/* False with @e filled: what is no request at all. */
bool chat_invalid(struct api_error *e, const char *param, const char *want);
/* Whether the member @key is the string @word. */
bool chat_is(const struct json *object, const char *key, const char *word);
/* Whether each of these members, or of all (NULL), stands there once. False with @e filled. */
bool chat_has_once(const struct json *object, const char *const *keys, size_t n,
                   struct api_error *e);
/* Whether it is an object, null or absent. */
bool chat_may_be_object(const struct json *v);
bool chat_is_one_of(const char *word, const char *const *words, size_t n);
/* A copy of the member @key of @from, unless it is null or absent. */
void chat_move(struct json *to, const char *as, const struct json *from, const char *key);

/* Parts of a message's content, at the end of it. @detail may be NULL. */
void chat_add_text(struct json *parts, const char *text);
void chat_add_image(struct json *parts, const char *url, const char *detail);
/* A call of a function, at the end of those of an assistant's message. */
void chat_add_call(struct json *message, const char *id, const char *name, const char *arguments);
/* A tool, whose function is returned to be filled. */
struct json *chat_add_tool(struct json *chat);
/* Reads it as openai_request_parse() does. */
MUST_CHECK bool chat_parse(const struct json *chat, struct arena *a, struct openai_request *ret,
                           struct api_error *e);
/* The one function that has to be called. */
void chat_choose_tool(struct json *chat, const char *name);
