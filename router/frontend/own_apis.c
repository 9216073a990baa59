/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/own_apis.h"

#include "lib/base/mem.h"

const struct own_api OWN_RESPONSES = {"/v1/responses", "responses", 1};
const struct own_api OWN_MESSAGES = {"/v1/messages", "anthropic_messages", 2};
const struct own_api OWN_COUNT = {"/v1/messages/count_tokens", "count_tokens", 0};

static const struct own_api others[] = {
    {"/tokenize", "tokenize", 0}, {"/detokenize", "detokenize", 0}, {"/v1/score", "score", 0},
    {"/score", "score", 0},       {"/v1/rerank", "rerank", 0},      {"/v2/rerank", "rerank", 0},
    {"/rerank", "rerank", 0},     {"/pooling", "pooling", 0},       {"/classify", "classify", 0},
};

const struct own_api *own_api_find(struct str target)
{
    struct str path;

    (void)str_cut(&target, '?', &path);
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (str_is(path, others[i].path))
            return &others[i];
    return NULL;
}
