/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/tcp_frame.h"

#include <errno.h>

#include "lib/base/err.h"
#include "router/wire/two_part.h"

int tcp_frame_decode(struct str in, size_t max, struct tcp_frame *ret, size_t *ret_used,
                     struct err *e)
{
    size_t n_path, n_headers, n_payload, fixed;

    if (in.len < 2)
        return TCP_FRAME_MORE;
    n_path = load_u16be(in.ptr);
    if (n_path == 0 || n_path > TCP_FRAME_PATH_MAX)
        return err_set(e, -EBADMSG, "endpoint path of %zu bytes, allowed are 1 to %d", n_path,
                       TCP_FRAME_PATH_MAX);
    if (in.len < 2 + n_path + 2)
        return TCP_FRAME_MORE;
    n_headers = load_u16be(in.ptr + 2 + n_path);
    fixed = 2 + n_path + 2 + n_headers + 4;
    if (in.len < fixed)
        return TCP_FRAME_MORE;
    n_payload = load_u32be(in.ptr + fixed - 4);
    if (fixed > max || n_payload > max - fixed)
        return err_set(e, -EMSGSIZE, "request frame of %zu bytes, limit %zu", fixed + n_payload,
                       max);
    if (in.len - fixed < n_payload)
        return TCP_FRAME_MORE;

    ret->path = str_slice(in.ptr + 2, n_path);
    ret->headers = str_slice(in.ptr + 2 + n_path + 2, n_headers);
    ret->payload = str_slice(in.ptr + fixed, n_payload);
    *ret_used = fixed + n_payload;
    return 0;
}

int tcp_frame_put(struct buf *out, struct str path, struct str headers, struct str control,
                  struct str body, struct err *e)
{
    size_t payload;

    if (path.len == 0 || path.len > TCP_FRAME_PATH_MAX)
        return err_set(e, -EMSGSIZE, "endpoint path of %zu bytes", path.len);
    if (headers.len > UINT16_MAX)
        return err_set(e, -EMSGSIZE, "request headers of %zu bytes", headers.len);
    if (control.len > UINT32_MAX / 2 || body.len > UINT32_MAX / 2 - TWO_PART_HEAD)
        return err_set(e, -EMSGSIZE, "request body of %zu bytes", body.len);
    payload = TWO_PART_HEAD + control.len + body.len;

    buf_put_u16be(out, (uint16_t)path.len);
    buf_put_str(out, path);
    buf_put_u16be(out, (uint16_t)headers.len);
    buf_put_str(out, headers);
    buf_put_u32be(out, (uint32_t)payload);
    two_part_put(out, control, body);
    return 0;
}

int tcp_ack_decode(struct str in, struct str *ret_text, size_t *ret_used, struct err *e)
{
    size_t n;

    if (in.len < 4)
        return TCP_FRAME_MORE;
    n = load_u32be(in.ptr);
    if (n > TCP_ACK_TEXT_MAX)
        return err_set(e, -EMSGSIZE, "acknowledgement of %zu bytes", n);
    if (in.len - 4 < n)
        return TCP_FRAME_MORE;
    *ret_text = str_slice(in.ptr + 4, n);
    *ret_used = 4 + n;
    return 0;
}

void tcp_ack_put(struct buf *out, struct str text)
{
    text = str_head(text, TCP_ACK_TEXT_MAX);
    buf_put_u32be(out, (uint32_t)text.len);
    buf_put_str(out, text);
}
