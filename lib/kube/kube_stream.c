/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/kube_stream.h"

#include <errno.h>

#include "lib/base/json_pull.h"

void kube_lines_done(struct kube_lines *l)
{
    buf_done(&l->bytes);
    *l = (struct kube_lines){0};
}

void kube_lines_clear(struct kube_lines *l)
{
    buf_clear(&l->bytes);
    l->scanned = 0;
    l->handed = 0;
}

void kube_lines_feed(struct kube_lines *l, struct str bytes)
{
    buf_consume(&l->bytes, l->handed);
    l->handed = 0;
    buf_put_str(&l->bytes, bytes);
}

bool kube_lines_next(struct kube_lines *l, struct str *ret_line)
{
    struct str line;
    size_t at;

    do {
        buf_consume(&l->bytes, l->handed);
        l->handed = 0;
        at = l->scanned + str_index(str_skip(buf_str(&l->bytes), l->scanned), '\n');
        if (at >= l->bytes.len) {
            /* What has been looked at is not looked at again when more bytes come. */
            l->scanned = l->bytes.len;
            return false;
        }
        line = str_trim(str_head(buf_str(&l->bytes), at));
        l->scanned = 0;
        l->handed = at + 1;
    } while (line.len == 0);
    *ret_line = line;
    return true;
}

size_t kube_lines_pending(const struct kube_lines *l)
{
    return l->bytes.len - l->handed;
}

static bool event_type(struct str name, enum kube_event_type *ret)
{
    static const struct str names[] = {
        [KUBE_EVENT_ADDED] = STR("ADDED"),     [KUBE_EVENT_MODIFIED] = STR("MODIFIED"),
        [KUBE_EVENT_DELETED] = STR("DELETED"), [KUBE_EVENT_BOOKMARK] = STR("BOOKMARK"),
        [KUBE_EVENT_ERROR] = STR("ERROR"),
    };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (str_eq(name, names[i])) {
            *ret = (enum kube_event_type)i;
            return true;
        }
    }
    return false;
}

int kube_event_parse(struct str line, struct kube_event *ret, struct err *e)
{
    struct kube_event event = {0};
    struct str key, type = STR_NULL;
    struct json_pull p;
    int r;

    json_pull_init(&p, line);
    if (json_pull_object(&p)) {
        while (json_pull_key(&p, &key)) {
            if (str_is(key, "type"))
                (void)json_pull_raw_string(&p, &type);
            else
                (void)json_pull_skip(&p, str_is(key, "object") ? &event.object : NULL);
        }
    }
    r = json_pull_end(&p, e);
    if (r < 0)
        return err_wrap(e, -EBADMSG, "watch event");
    if (!event_type(type, &event.type))
        return err_set(e, -EBADMSG, "watch event: unknown type '%.*s'",
                       (int)MIN(type.len, (size_t)32), type.ptr ? type.ptr : "");
    if (event.object.len == 0 || event.object.ptr[0] != '{')
        return err_set(e, -EBADMSG, "watch event: no object");
    *ret = event;
    return 0;
}

static void read_page_metadata(struct json_pull *p, struct kube_page *page)
{
    struct str key;

    if (!json_pull_object(p))
        return;
    while (json_pull_key(p, &key)) {
        if (str_is(key, "resourceVersion"))
            (void)json_pull_raw_string(p, &page->resource_version);
        else if (str_is(key, "continue"))
            (void)json_pull_raw_string(p, &page->next);
        else
            (void)json_pull_skip(p, NULL);
    }
}

int kube_page_parse(struct str text, void (*item)(void *arg, struct str object), void *arg,
                    struct kube_page *ret, struct err *e)
{
    struct kube_page page = {STR_NULL, STR_NULL};
    struct json_pull p;
    struct str key, object;

    json_pull_init(&p, text);
    if (json_pull_object(&p)) {
        while (json_pull_key(&p, &key)) {
            if (str_is(key, "metadata")) {
                read_page_metadata(&p, &page);
            } else if (str_is(key, "items")) {
                /* An empty list of some kinds is null; json_pull_array() takes that. */
                if (json_pull_array(&p))
                    while (json_pull_element(&p))
                        if (json_pull_skip(&p, &object))
                            item(arg, object);
            } else {
                (void)json_pull_skip(&p, NULL);
            }
        }
    }
    if (json_pull_end(&p, e) < 0)
        return err_wrap(e, -EBADMSG, "list");
    if (page.resource_version.len == 0)
        return err_set(e, -EBADMSG, "list: no resourceVersion");
    *ret = page;
    return 0;
}
