/* SPDX-License-Identifier: Apache-2.0 */
/* Any file that is taken has a pool for any question; any request can be asked about. */
#include <assert.h>

#include "lib/base/log.h"
#include "router/service/pools.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What old names are warned of is none of a fuzzer's. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return log_setup("off", false, NULL);
}

static void ask(const struct pool_set *s, const struct pool_question *q)
{
    size_t order[POOLS_MAX], first = pool_set_choose(s, q), n;

    assert(first < s->n);
    n = pool_set_order(s, first, true, order);
    assert(n >= 1 && n <= s->n && order[0] == first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct pool_question questions[] = {
        {.n_tokens = 0},
        {.n_tokens = UINT64_MAX, .ttft_ms = {true, 1e308}, .itl_ms = {true, -1e308}},
        {.n_tokens = 999, .ttft_ms = {true, 50}, .itl_ms = {true, 5}, .priority = {true, 1}},
    };
    AUTO(pools_free) struct pools *p = NULL;
    struct pool_question q;
    struct err e;

    if (pool_question_parse(str_slice(data, size), &q, &e) != 0)
        q = questions[0];
    if (pools_parse(&p, str_slice(data, size), &e) != 0)
        return 0;
    for (size_t k = 0; k < POOL_KINDS; k++)
        for (size_t i = 0; p->sets[k].n && i < ARRAY_LEN(questions); i++)
            ask(&p->sets[k], &questions[i]);
    return 0;
}
