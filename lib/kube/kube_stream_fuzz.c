/* SPDX-License-Identifier: Apache-2.0 */
/*
 * However a watch stream is cut, the same lines come out; and no line or page, however malformed,
 * yields views outside of itself.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/kube/kube_stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_inside(struct str whole, struct str part)
{
    assert(part.len == 0 ||
           (part.ptr >= whole.ptr && part.ptr + part.len <= whole.ptr + whole.len));
}

struct page_check {
    struct str text;
};

static void on_item(void *arg, struct str object)
{
    check_inside(((struct page_check *)arg)->text, object);
}

/* Feeds @text in pieces of @step bytes; the lines go to @out, each followed by a break. */
static void split(struct str text, size_t step, struct buf *out)
{
    struct kube_lines lines = {0};
    struct str line;

    while (text.len) {
        kube_lines_feed(&lines, str_head(text, step));
        text = str_skip(text, step);
        while (kube_lines_next(&lines, &line)) {
            buf_put_str(out, line);
            buf_put_char(out, '\n');
        }
    }
    kube_lines_done(&lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(buf_done) struct buf whole = BUF_NULL;
    AUTO(buf_done) struct buf pieces = BUF_NULL;
    struct page_check check;
    struct kube_event event;
    struct kube_page page;
    struct str text, line;

    if (size == 0)
        return 0;
    text = str_slice(data + 1, size - 1);
    split(text, text.len + 1, &whole);
    split(text, (size_t)data[0] % 17 + 1, &pieces);
    assert(str_eq(buf_str(&whole), buf_str(&pieces)));

    for (struct str rest = text; str_cut(&rest, '\n', &line);)
        if (kube_event_parse(line, &event, NULL) == 0)
            check_inside(line, event.object);
    check.text = text;
    if (kube_page_parse(text, on_item, &check, &page, NULL) == 0) {
        check_inside(text, page.resource_version);
        check_inside(text, page.next);
    }
    return 0;
}
