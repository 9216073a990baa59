/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/decisions/decision_file.h"

#include <errno.h>
#include <string.h>

#include "lib/base/json_pull.h"
#include "router/sched/decision_json.h"

/* {"overwritten":N} or {"restarted":true}, which a list begins with when it has a hole. */
static bool is_note(struct str line, uint64_t *ret_overwritten)
{
    bool restarted = false, known = false;
    struct json_pull p;
    struct str key;
    struct err e;

    *ret_overwritten = 0;
    json_pull_init(&p, line);
    if (!json_pull_object(&p))
        return false;
    while (json_pull_key(&p, &key)) {
        known = true;
        if (str_is(key, "overwritten"))
            (void)json_pull_u64(&p, ret_overwritten);
        else if (str_is(key, "restarted"))
            (void)json_pull_bool(&p, &restarted);
        else
            return false;
    }
    return json_pull_end(&p, &e) == 0 && known;
}

static int add_line(struct str line, struct decision_score *s, struct err *e)
{
    static struct decision_record record; /* too large for a stack of a thread */
    uint64_t overwritten;
    int r;

    if (line.len == 0)
        return 0;
    if (is_note(line, &overwritten)) {
        s->overwritten += overwritten;
        return 0;
    }
    r = decision_record_parse(line, &record, e);
    if (r == 0)
        decision_score_add(s, &record);
    return r;
}

static int add_lines(FILE *file, const char *path, struct decision_score *s, struct err *e)
{
    size_t size = DECISION_LINE_MAX + 2;
    AUTO(mem_free) char *text = xmalloc(size);
    unsigned long number = 0;

    while (fgets(text, (int)size, file)) {
        struct str line = str_from(text);
        struct err why;
        int r;

        number++;
        r = add_line(str_trim(line), s, &why);
        if (r < 0 && !str_ends(line, STR("\n")))
            return err_set(e, r, "%s:%lu: cut off: %s", path, number, why.text);
        if (r < 0)
            return err_set(e, r, "%s:%lu: no decision record: %s", path, number, why.text);
    }
    return ferror(file) ? err_errno(e, -errno, "%s", path) : 0;
}

int decision_file_score(const char *path, struct decision_score *s, struct err *e)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    int r;

    if (!file)
        return err_errno(e, -errno, "%s", path);
    r = add_lines(file, path, s, e);
    if (file != stdin)
        (void)fclose(file);
    return r;
}

static int write_json(const struct decision_score *s, const char *path, struct err *e)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    FILE *file = fopen(path, "we");
    bool ok;

    if (!file)
        return err_errno(e, -errno, "%s", path);
    decision_score_put_json(s, &out);
    ok = fwrite(buf_data(&out), 1, out.len, file) == out.len;
    ok = fclose(file) == 0 && ok;
    return ok ? 0 : err_set(e, -EIO, "%s: not written", path);
}

int decision_replay_run(const char *path, const struct decision_question *question,
                        const char *json, FILE *out, struct err *e)
{
    AUTO(decision_score_done) struct decision_score s;
    int r;

    decision_score_init(&s, question);
    r = decision_file_score(path, &s, e);
    if (r == 0 && json)
        r = write_json(&s, json, e);
    if (r < 0)
        return r;
    decision_score_print(&s, out);
    if (!decision_score_is_exact(&s))
        return err_set(e, -EBADMSG,
                       "%llu of %llu decisions came out otherwise, the first is seq %llu",
                       (unsigned long long)(s.scores_differ + s.picks_differ),
                       (unsigned long long)s.decisions, (unsigned long long)s.first_difference);
    return 0;
}
