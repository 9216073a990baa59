/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/plan/words.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/buf.h"

void words_done(struct words *w)
{
    for (size_t i = 0; i < w->n; i++)
        free(w->at[i]);
    w->n = 0;
}

static void add_word(struct words *w, struct str word)
{
    if (w->n < WORDS_MAX)
        w->at[w->n++] = str_dup(word);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* One word of a shell's text, without its quotes; *at moves behind it. */
static void take_word(struct str text, size_t *at, struct buf *out)
{
    char quote = '\0';

    for (; *at < text.len && (quote || !is_blank(text.ptr[*at])); (*at)++) {
        char c = text.ptr[*at];

        if (c == quote)
            quote = '\0';
        else if (!quote && (c == '\'' || c == '"'))
            quote = c;
        else if (c != '\\' || quote == '\'' || *at + 1 == text.len)
            buf_put_char(out, c);
        else if (text.ptr[++*at] != '\n') /* else the line goes on */
            buf_put_char(out, text.ptr[*at]);
    }
}

static void split(struct words *w, struct str text)
{
    for (size_t at = 0; at < text.len;) {
        AUTO(buf_done) struct buf word = BUF_NULL;

        if (is_blank(text.ptr[at])) {
            at++;
            continue;
        }
        take_word(text, &at, &word);
        if (word.len)
            add_word(w, buf_str(&word));
    }
}

struct str words_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return str_from(slash ? slash + 1 : path);
}

static bool is_shell(const struct json *command)
{
    const char *first = json_cstr(json_at(command, 0));

    return first && str_ends(words_base_name(first), STR("sh"));
}

void words_read(struct words *w, const struct json *container)
{
    const struct json *lists[] = {json_get(container, "command"), json_get(container, "args")};
    bool shell = is_shell(lists[0]) || json_len(lists[0]) == 0; /* a worker's default is a shell */

    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        JSON_FOREACH (word, lists[i]) {
            const char *text = json_cstr(word);

            if (text && shell)
                split(w, str_from(text));
            else if (text)
                add_word(w, str_from(text));
        }
}

bool words_at_is(const struct words *w, size_t i, const char *want)
{
    return i < w->n && strcmp(w->at[i], want) == 0;
}

const char *words_option(const struct words *w, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < w->n; i++) {
        if (words_at_is(w, i, name))
            return i + 1 < w->n ? w->at[i + 1] : NULL;
        if (strncmp(w->at[i], name, len) == 0 && w->at[i][len] == '=')
            return w->at[i] + len + 1;
    }
    return NULL;
}
