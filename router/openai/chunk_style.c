/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/chunk_style.h"

#include <ctype.h>

#include "lib/base/json_put.h"
#include "lib/net/http_server.h"
#include "router/openai/api_error.h"
#include "router/openai/chunk.h"

void chunk_put_string(struct buf *out, struct str text)
{
    if (!text.ptr) {
        buf_put_cstr(out, "null");
        return;
    }
    buf_put_char(out, '"');
    json_escape(out, text);
    buf_put_char(out, '"');
}

static void put_calls(struct buf *out, struct str calls_json)
{
    buf_put_cstr(out, "\"tool_calls\":[");
    buf_put_str(out, calls_json);
    buf_put_char(out, ']');
}

/* --- 0.9.0: every member each time ------------------------------------------------------------ */

static void put_delta_0_9(struct buf *out, const struct chunk_delta *d, bool first)
{
    (void)first;
    buf_put_cstr(out, "\"content\":");
    chunk_put_string(out, d->text);
    if (d->calls_json.len) {
        buf_put_cstr(out, ",\"function_call\":null,");
        put_calls(out, d->calls_json);
        buf_put_cstr(out, ",\"role\":\"assistant\",\"refusal\":null,\"reasoning_content\":");
    } else { /* of a token: at once */
        buf_put_cstr(out, ",\"function_call\":null,\"tool_calls\":null,\"role\":\"assistant\","
                          "\"refusal\":null,\"reasoning_content\":");
    }
    chunk_put_string(out, d->reasoning.len ? d->reasoning : STR_NULL);
}

static void put_end_0_9(struct buf *out, const struct chunk_delta *d, const struct chunk_end *end)
{
    if (end && end->finish) {
        buf_put_cstr(out, ",\"finish_reason\":\"");
        buf_put_cstr(out, end->finish);
        buf_put_char(out, '"');
        if (end->stop_reason_json.len) {
            buf_put_cstr(out, ",\"stop_reason\":");
            buf_put_str(out, end->stop_reason_json);
        }
    }
    if (d->logprobs_json.len) {
        buf_put_cstr(out, ",\"logprobs\":");
        buf_put_str(out, d->logprobs_json);
    }
}

static void put_message_0_9(struct buf *out, const struct chunk_delta *whole)
{
    if (whole->text.len) {
        buf_put_cstr(out, "\"content\":");
        chunk_put_string(out, whole->text);
        buf_put_char(out, ',');
    }
    if (whole->calls_json.len) {
        put_calls(out, whole->calls_json);
        buf_put_char(out, ',');
    }
    buf_put_cstr(out, "\"role\":\"assistant\",\"reasoning_content\":");
    chunk_put_string(out, whole->reasoning.len ? whole->reasoning : STR_NULL);
}

/* The comment is the reference's form; the data is what OpenAI clients raise as an error. */
static void put_error_0_9(struct buf *out, int status, struct str text)
{
    struct api_error e;

    (void)api_fail(&e, status, NULL, "%.*s", STR_ARG(text));
    buf_put_cstr(out, "event: error\n: ");
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] == '\n')
            buf_put_cstr(out, "\n: ");
        else if (text.ptr[i] != '\r')
            buf_put_char(out, text.ptr[i]);
    }
    buf_put_cstr(out, "\ndata: ");
    api_error_put(out, &e);
    buf_put_cstr(out, "\n\n");
}

const struct chunk_style CHUNKS_OF_0_9 = {
    .chat_tail = ",\"service_tier\":null,\"system_fingerprint\":null,"
                 "\"object\":\"chat.completion.chunk\"",
    .chat_no_usage = ",\"usage\":null",
    .tells_empty = true,
    .tells_null_details = true,
    .named_call_stops = true,
    .stop_leaves_text = true,
    .lost_status = 500,
    .put_delta = put_delta_0_9,
    .put_end = put_end_0_9,
    .put_message = put_message_0_9,
    .put_error = put_error_0_9,
};

/* --- 1.6.1: what there is --------------------------------------------------------------------- */

static void comma(struct buf *out, bool *some)
{
    if (*some)
        buf_put_char(out, ',');
    *some = true;
}

/* @thoughts names the member that has them. */
static void put_delta_named(struct buf *out, const struct chunk_delta *d, bool first,
                            const char *thoughts)
{
    bool some = d->text.ptr != NULL;

    if (some) {
        buf_put_cstr(out, "\"content\":");
        chunk_put_string(out, d->text);
    }
    if (d->calls_json.len) {
        comma(out, &some);
        put_calls(out, d->calls_json);
    }
    if (first) {
        comma(out, &some);
        buf_put_cstr(out, "\"role\":\"assistant\"");
    }
    if (d->reasoning.len) {
        comma(out, &some);
        buf_printf(out, "\"%s\":", thoughts);
        chunk_put_string(out, d->reasoning);
    }
}

static void put_delta_1(struct buf *out, const struct chunk_delta *d, bool first)
{
    put_delta_named(out, d, first, "reasoning_content");
}

static void put_delta_short(struct buf *out, const struct chunk_delta *d, bool first)
{
    put_delta_named(out, d, first, "reasoning");
}

static void put_end_1(struct buf *out, const struct chunk_delta *d, const struct chunk_end *end)
{
    if (!end && !d->logprobs_json.len) { /* of a token: at once */
        buf_put_cstr(out, ",\"finish_reason\":null,\"logprobs\":null");
        return;
    }
    buf_put_cstr(out, ",\"finish_reason\":");
    chunk_put_string(out, end && end->finish ? str_from(end->finish) : STR_NULL);
    buf_put_cstr(out, ",\"logprobs\":");
    buf_put_str(out, d->logprobs_json.len ? d->logprobs_json : STR("null"));
}

static void put_message_named(struct buf *out, const struct chunk_delta *whole,
                              const char *thoughts)
{
    buf_put_cstr(out, "\"content\":");
    chunk_put_string(out, whole->text.len ? whole->text : STR_NULL);
    buf_put_cstr(out, ",\"refusal\":null,");
    if (whole->calls_json.len) {
        put_calls(out, whole->calls_json);
        buf_put_char(out, ',');
    }
    buf_put_cstr(out, "\"role\":\"assistant\"");
    if (whole->reasoning.len) {
        buf_printf(out, ",\"%s\":", thoughts);
        chunk_put_string(out, whole->reasoning);
    }
}

static void put_message_1(struct buf *out, const struct chunk_delta *whole)
{
    put_message_named(out, whole, "reasoning_content");
}

static void put_message_short(struct buf *out, const struct chunk_delta *whole)
{
    put_message_named(out, whole, "reasoning");
}

/* Its type is the status in words, internal_server_error, but for the commonest. */
static void put_error_1(struct buf *out, int status, struct str text)
{
    buf_put_cstr(out, "data: {\"error\":{\"message\":");
    chunk_put_string(out, text);
    buf_put_cstr(out, ",\"type\":\"");
    for (const char *c = status == 400 ? "invalid_request_error" : http_status_text(status); *c;
         c++)
        buf_put_char(out, *c == ' ' ? '_' : (char)tolower(*c));
    buf_put_cstr(out, "\",\"code\":");
    buf_put_u64dec(out, (uint64_t)status);
    buf_put_cstr(out, "}}\n\n");
}

#define STYLE_OF_1(delta, message)                                                                 \
    {                                                                                              \
        .is_of_1 = true, .chat_tail = ",\"object\":\"chat.completion.chunk\"",                     \
        .chat_no_usage = "", .tells_details = true, .tells_dp_ranks = true,                        \
        .tells_any_worker = true, .stops_behind_min = true, .counts_to_stop = true,                \
        .tells_broken_end = true, .hides_special = true, .lost_status = 503, .put_delta = (delta), \
        .put_end = put_end_1, .put_message = (message), .put_error = put_error_1,                  \
    }

const struct chunk_style CHUNKS_OF_1 = STYLE_OF_1(put_delta_1, put_message_1);
const struct chunk_style CHUNKS_OF_1_SHORT = STYLE_OF_1(put_delta_short, put_message_short);
