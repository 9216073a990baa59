/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of a model hub, a line each; "-" begins a further answer. */
#include <stdlib.h>
#include <string.h>

#include "router/discovery/hub_answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hub_answer a = hub_answer_none();
    struct str rest = str_slice(data, size), line, name;

    for (bool more = size > 0; more;) {
        more = str_cut(&rest, '\n', &line);
        if (str_is(line, "-")) {
            hub_answer_add(&a, STR(""), STR_NULL);
        } else {
            (void)str_cut(&line, ':', &name);
            hub_answer_add(&a, name, str_trim(line));
        }
        /* What becomes a file name is one. */
        if ((a.etag[0] && !hub_word_is_valid(str_from(a.etag))) ||
            (a.commit[0] && !hub_word_is_valid(str_from(a.commit))) ||
            strlen(a.location) > HUB_LOCATION_MAX || (!a.has_range && a.from))
            abort();
    }
    line = str_slice(data, size);
    if (hub_name_is_valid(line) && (str_has(line, STR("..")) && line.len == 2))
        abort();
    return 0;
}
