/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/load/chat_stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* However the bytes are cut, the same is read. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(chat_stream_free) struct chat_stream *whole = chat_stream_new(true);
    AUTO(chat_stream_free) struct chat_stream *cut = chat_stream_new(true);

    (void)chat_stream_feed(whole, str_slice(data, size));
    for (size_t i = 0; i < size; i++)
        (void)chat_stream_feed(cut, str_slice(data + i, 1));
    if (chat_stream_fault(whole) != chat_stream_fault(cut) ||
        chat_stream_done(whole) != chat_stream_done(cut) ||
        !str_eq(chat_stream_text(whole), chat_stream_text(cut)))
        __builtin_trap();
    return 0;
}
