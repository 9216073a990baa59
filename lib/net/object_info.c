/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/object_info.h"

#include <string.h>

#include "lib/base/digest.h"
#include "lib/base/json_pull.h"

static struct str unquoted(struct str json)
{
    return json.len >= 2 && json.ptr[0] == '"' ? str_slice(json.ptr + 1, json.len - 2) : STR_NULL;
}

static bool text_copy(char *ret, size_t size, struct str s)
{
    if (s.len >= size)
        return false;
    memcpy(ret, s.ptr ? s.ptr : "", s.len);
    ret[s.len] = '\0';
    return true;
}

/* It becomes a part of a subject. */
static bool is_token(struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];

        if (c <= ' ' || c >= 0x7f || memchr(".*>\\\"", c, 5))
            return false;
    }
    return s.len > 0;
}

bool object_info_parse(struct object_info *ret, struct str json, uint64_t bytes_max,
                       uint64_t pieces_max)
{
    struct object_info v = {.size = 0};
    struct str nuid = unquoted(json_pull_member(json, "nuid"));

    if (!is_token(nuid) || !text_copy(v.nuid, sizeof(v.nuid), nuid) ||
        !text_copy(v.digest, sizeof(v.digest), unquoted(json_pull_member(json, "digest"))) ||
        !str_parse_u64(json_pull_member(json, "size"), &v.size) ||
        !str_parse_u64(json_pull_member(json, "chunks"), &v.pieces) || v.size > bytes_max ||
        v.pieces > pieces_max || str_is(json_pull_member(json, "deleted"), "true"))
        return false;
    *ret = v;
    return true;
}

bool object_message_parse(struct str answer, uint64_t *ret_seq, struct buf *out)
{
    struct str message = json_pull_member(answer, "message");

    return str_parse_u64(json_pull_member(message, "seq"), ret_seq) &&
           base64_decode(out, unquoted(json_pull_member(message, "data")));
}
