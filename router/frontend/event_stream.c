/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/event_stream.h"

#include "lib/net/http_server.h"

void event_stream_open(struct http_exchange *x)
{
    if (http_stream_has_begun(x))
        return;
    http_add_header(x, "cache-control", STR("no-cache"));
    http_stream_begin(x, 200, "text/event-stream");
}

static void say_alive(void *arg)
{
    struct http_exchange *x = arg;

    event_stream_open(x);
    http_stream_write(x, STR(":\n\n"));
}

void event_stream_keep_alive(struct http_exchange *x, uint64_t ms)
{
    if (ms)
        http_on_silence(x, ms, say_alive, x);
}
