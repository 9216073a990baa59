/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/charsmap.h"

#include <errno.h>

#include "lib/base/err.h"
#include "router/token/regex.h"
#include "router/token/utf8.h"

enum { MAX_CLUSTER = 5 }; /* bytes of a grapheme cluster that is looked up as a whole */

/* --- loading ---------------------------------------------------------------------------------- */

static uint32_t read_u32(const char *p)
{
    const uint8_t *b = (const uint8_t *)p;

    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

int charsmap_load(struct charsmap *m, struct str bytes, struct err *e)
{
    uint32_t size;

    if (bytes.len == 0)
        return 0;
    size = bytes.len >= 4 ? read_u32(bytes.ptr) : UINT32_MAX;
    bytes = str_skip(bytes, 4);
    if (size > bytes.len || size % 4 != 0)
        return err_set(e, -EINVAL, "charsmap is cut short");
    if (!str_is_utf8(str_skip(bytes, size)))
        return err_set(e, -EINVAL, "texts of the charsmap are not UTF-8");
    m->n_units = size / 4;
    m->units = xcalloc(m->n_units + 1, sizeof(*m->units));
    for (size_t i = 0; i < m->n_units; i++)
        m->units[i] = read_u32(bytes.ptr + i * 4);
    buf_put_str(&m->texts, str_skip(bytes, size));
    return regex_compile(&m->cluster, STR("\\X"), REGEX_RUST, e);
}

void charsmap_done(struct charsmap *m)
{
    free(m->units);
    buf_done(&m->texts);
    (void)regex_free(m->cluster);
    *m = (struct charsmap){0};
}

/* --- the trie --------------------------------------------------------------------------------- */

/* A unit of Darts-clone: whether a leaf is below, its label, where its children are. */
static bool has_leaf(uint32_t unit)
{
    return unit >> 8 & 1;
}

static uint32_t label(uint32_t unit)
{
    return unit & (UINT32_C(1) << 31 | 0xff);
}

static uint32_t offset(uint32_t unit)
{
    return (unit >> 10) << ((unit & UINT32_C(1) << 9) >> 6);
}

/* Where the text of the shortest entry that @key begins with lies in the block; SIZE_MAX none. */
static size_t find(const struct charsmap *m, struct str key)
{
    uint32_t at = m->n_units ? offset(m->units[0]) : 0;

    for (size_t i = 0; i < key.len && key.ptr[i]; i++) {
        at ^= (uint8_t)key.ptr[i];
        if (at >= m->n_units || label(m->units[at]) != (uint8_t)key.ptr[i])
            break;
        if (has_leaf(m->units[at])) {
            at ^= offset(m->units[at]);
            return at < m->n_units ? m->units[at] & (UINT32_MAX >> 1) : SIZE_MAX;
        }
        at ^= offset(m->units[at]);
    }
    return SIZE_MAX;
}

/* Whether @key is mapped; then what to is appended. */
static bool put_mapped(const struct charsmap *m, struct str key, struct buf *out)
{
    struct str texts = buf_str(&m->texts);
    size_t at = find(m, key);

    if (at >= texts.len || utf8_is_continuation(texts.ptr[at]))
        return false;
    texts = str_skip(texts, at);
    buf_put(out, texts.ptr, strnlen(texts.ptr, texts.len));
    return true;
}

size_t charsmap_longest(const struct charsmap *m, struct str text, struct str *ret)
{
    uint32_t at = m->n_units ? offset(m->units[0]) : 0;
    struct str texts = buf_str(&m->texts);
    size_t longest = 0, start = 0;

    for (size_t i = 0; i < text.len && text.ptr[i]; i++) {
        uint32_t unit, leaf;

        at ^= (uint8_t)text.ptr[i];
        if (at >= m->n_units || label(m->units[at]) != (uint8_t)text.ptr[i])
            break;
        unit = m->units[at];
        at ^= offset(unit);
        leaf = has_leaf(unit) && at < m->n_units ? m->units[at] & (UINT32_MAX >> 1) : UINT32_MAX;
        if (leaf != UINT32_MAX && (i + 1 == text.len || !utf8_is_continuation(text.ptr[i + 1]))) {
            longest = i + 1;
            start = leaf;
        }
    }
    if (longest == 0 || start >= texts.len || utf8_is_continuation(texts.ptr[start]))
        return 0;
    texts = str_skip(texts, start);
    *ret = str_slice(texts.ptr, strnlen(texts.ptr, texts.len));
    return longest;
}

/* --- text ------------------------------------------------------------------------------------- */

static void put_cluster(const struct charsmap *m, struct str cluster, struct buf *out)
{
    if (cluster.len <= MAX_CLUSTER && put_mapped(m, cluster, out))
        return;
    while (cluster.len > 0) {
        struct str character = str_head(cluster, utf8_len(cluster.ptr[0]));

        if (!put_mapped(m, character, out))
            buf_put_str(out, character);
        cluster = str_skip(cluster, character.len);
    }
}

/* An ASCII character before another one, a short cut. */
static bool stands_alone(struct str text, size_t at)
{
    return at + 1 < text.len && !((text.ptr[at] | text.ptr[at + 1]) & 0x80) && text.ptr[at] != '\r';
}

int charsmap_apply(const struct charsmap *m, struct regex_scratch *scratch, struct str text,
                   size_t limit, struct buf *out)
{
    size_t at = 0, start, end;

    while (m->cluster && at < text.len) {
        int r = 1;

        if (stands_alone(text, at))
            end = at + 1;
        else
            r = regex_find(m->cluster, scratch, text, at, &start, &end);
        if (r < 0)
            return r;
        put_cluster(m, str_slice(text.ptr + at, end - at), out);
        if (out->len > limit)
            return -E2BIG;
        at = end;
    }
    buf_put_str(out, str_skip(text, at));
    return 0;
}
