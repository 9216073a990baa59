/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structs in MessagePack: a map with names, or an array whose positions stand for names. Also the
 * scalar readers whose errors stick to the reader and need no check where they stand, and what writes
 * a member: its name and its value. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/msgpack.h"
#include "router/wire/optional.h"

struct members {
    const char *const *names;
    size_t n_names;
    uint32_t n, at;
    bool is_map;
};

static inline bool members_begin(struct msgpack_reader *m, struct members *s,
                                 const char *const *names, size_t n_names)
{
    *s = (struct members){.names = names, .n_names = n_names};
    s->is_map = msgpack_peek(m) == MSGPACK_MAP;
    return s->is_map ? msgpack_read_map(m, &s->n) : msgpack_read_array(m, &s->n);
}

/* Next member; false behind the last one or on error. A position without name gets "". */
static inline bool members_next(struct msgpack_reader *m, struct members *s, struct str *ret_name)
{
    if (m->error || s->at == s->n)
        return false;
    s->at++;
    if (s->is_map)
        return msgpack_read_str(m, ret_name);
    *ret_name = s->at <= s->n_names ? str_from(s->names[s->at - 1]) : STR_NULL;
    return true;
}

/* MEMBERS(&reader, &members, "first", "second", …) */
#define MEMBERS(m, s, ...)                                                                         \
    ({                                                                                             \
        static const char *const members_names_[] = {__VA_ARGS__};                                 \
        members_begin((m), (s), members_names_, sizeof(members_names_) / sizeof(*members_names_)); \
    })

/* For structs that are maps only. An error sticks to the reader. */
static inline void members_begin_map(struct msgpack_reader *m, struct members *s)
{
    *s = (struct members){.is_map = true};
    if (msgpack_peek(m) != MSGPACK_MAP)
        msgpack_fail(m, "expected a map");
    else
        (void)!msgpack_read_map(m, &s->n);
}

static inline void opt_read(struct msgpack_reader *m, struct opt_u64 *ret)
{
    if (!msgpack_read_nil(m))
        ret->set = msgpack_read_u64(m, &ret->v);
}

static inline void u32_read(struct msgpack_reader *m, uint32_t *ret)
{
    uint64_t v = 0;

    if (!msgpack_read_u64(m, &v))
        return;
    if (v > UINT32_MAX)
        msgpack_fail(m, "integer out of range");
    *ret = (uint32_t)v;
}

static inline void u64_read(struct msgpack_reader *m, uint64_t *ret)
{
    if (!msgpack_read_u64(m, ret))
        return;
}

static inline void str_read(struct msgpack_reader *m, struct str *ret)
{
    if (!msgpack_read_str(m, ret))
        return;
}

static inline void hash_read(struct msgpack_reader *m, uint64_t *ret)
{
    if (!msgpack_read_hash(m, ret))
        return;
}

static inline void u64_member_put(struct buf *out, const char *name, uint64_t v)
{
    msgpack_put_cstr(out, name);
    msgpack_put_u64(out, v);
}

static inline void str_member_put(struct buf *out, const char *name, struct str v)
{
    msgpack_put_cstr(out, name);
    msgpack_put_str(out, v);
}

static inline void bool_member_put(struct buf *out, const char *name, bool v)
{
    msgpack_put_cstr(out, name);
    msgpack_put_bool(out, v);
}

/* nil where it is not set */
static inline void opt_member_put(struct buf *out, const char *name, struct opt_u64 v)
{
    msgpack_put_cstr(out, name);
    if (v.set)
        msgpack_put_u64(out, v.v);
    else
        msgpack_put_nil(out);
}
