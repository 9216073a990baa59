/* SPDX-License-Identifier: Apache-2.0 */
/* All JSON that steers a stream; what a control message says survives writing and reading. */
#include <stdlib.h>

#include "router/wire/control.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void again(const struct control *c)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct control d;

    control_put(&out, c);
    if (control_parse(buf_str(&out), &scratch, &d, NULL) != 0 || !str_eq(c->id, d.id) ||
        !str_eq(c->address, d.address) || !str_eq(c->subject, d.subject))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    AUTO(buf_done) struct buf sum = BUF_NULL;
    struct str in = str_slice(data, size), text = STR_NULL;
    struct wire_item it;
    struct control c;

    if (control_parse(in, &scratch, &c, NULL) == 0)
        again(&c);
    buf_clear(&scratch);
    if (handshake_parse(in, &scratch, &text, NULL) == 0)
        buf_put_str(&sum, text);
    buf_clear(&scratch);
    if (prologue_parse(in, &scratch, &text, NULL) == PROLOGUE_ERROR)
        buf_put_str(&sum, text);
    buf_clear(&scratch);
    if (wire_item_parse(in, &scratch, &it, NULL) == 0) {
        buf_put_str(&sum, it.error);
        buf_put_str(&sum, it.error_type);
        buf_put_str(&sum, it.event);
        buf_put_str(&sum, it.id);
        buf_put_str(&sum, it.data);
        buf_put_str(&sum, it.raw);
    }
    (void)control_word_of(in);
    return 0;
}
