/* SPDX-License-Identifier: Apache-2.0 */
/* What engines tell: whatever is read stays within its bounds. */
#include <assert.h>
#include <string.h>

#include "router/engine/engine_facts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = str_slice(data, size);
    AUTO(engine_models_done) struct engine_models m = {.n = 0};
    struct engine_server_info in;
    struct engine_event_sources s;
    struct engine_load_report r;
    uint32_t ids[4];
    struct err e;

    if (engine_models_read(text, &m, &e) == 0) {
        assert(m.n > 0 && m.n <= ENGINE_MODELS_MAX);
        for (size_t i = 0; i < m.n; i++)
            assert(m.at[i].id[0] && strlen(m.at[i].id) <= ENGINE_NAME_MAX);
        assert(engine_models_equal(&m, &m));
    }
    engine_load_read(text, &r);
    assert(r.n_ranks <= ENGINE_RANKS_MAX && r.block_size <= 65536);
    for (uint32_t i = 0; i < r.n_ranks; i++)
        assert(r.ranks[i].usage >= 0 && r.ranks[i].usage <= 1);
    assert(engine_tokens_read(text, ids, ARRAY_LEN(ids)) <= ARRAY_LEN(ids));
    if (engine_server_info_read(text, &in, &e) == 0)
        assert(in.page_size <= 65536 && in.dp_size <= ENGINE_RANKS_MAX);
    if (engine_event_sources_read(text, &s, &e) == 0)
        assert(s.has_events == (s.events_port != 0));
    return 0;
}
