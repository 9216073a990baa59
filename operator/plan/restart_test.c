/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/plan/restart.h"

#include "lib/base/test.h"

static struct json *parse(const char *text)
{
    struct json *v = NULL;
    struct err e;

    EXPECT_OK(json_parse(&v, str_from(text), &e), &e);
    return v;
}

/* Components g-a, g-b, g-c: each with its mark ("" = none), and whether it is ready. */
struct seen {
    const char *mark;
    bool ready;
};

static struct json *components(const struct seen seen[3])
{
    struct json *all = json_new_object();

    for (int i = 0; i < 3; i++) {
        AUTO(mem_free) char *name = xasprintf("g-%c", 'a' + i);
        AUTO(mem_free)
        char *text = xasprintf(
            "{\"metadata\":{\"generation\":2},\"spec\":{\"annotations\":{%s%s%s}},\"status\":{"
            "\"observedGeneration\":2,\"conditions\":[{\"type\":\"Available\","
            "\"status\":\"%s\"}]}}",
            seen[i].mark[0] ? "\"nvidia.com/restartAt\":\"" : "", seen[i].mark,
            seen[i].mark[0] ? "\"" : "", seen[i].ready ? "True" : "False");

        if (strcmp(seen[i].mark, "absent") != 0)
            json_set(all, name, parse(text));
    }
    return all;
}

static void marks_move_on_as_components_come_back(void **state)
{
    static const struct {
        const char *restart;
        struct seen seen[3];
        const char *marks;
        const char *status;
    } cases[] = {
        {"null", {{"", true}, {"r0", true}, {"", true}}, "{\"B\":\"r0\"}", "null"},
        /* one after another, by name */
        {"{\"id\":\"r1\"}",
         {{"", true}, {"r0", true}, {"", true}},
         "{\"A\":\"r1\",\"B\":\"r0\"}",
         "{\"observedID\":\"r1\",\"phase\":\"Restarting\",\"inProgress\":[\"A\"]}"},
        {"{\"id\":\"r1\"}",
         {{"r1", false}, {"", true}, {"", true}},
         "{\"A\":\"r1\"}",
         "{\"observedID\":\"r1\",\"phase\":\"Restarting\",\"inProgress\":[\"A\"]}"},
        {"{\"id\":\"r1\"}",
         {{"r1", true}, {"", true}, {"", true}},
         "{\"A\":\"r1\",\"B\":\"r1\"}",
         "{\"observedID\":\"r1\",\"phase\":\"Restarting\",\"inProgress\":[\"B\"]}"},
        {"{\"id\":\"r1\"}",
         {{"r1", true}, {"r1", true}, {"r1", true}},
         "{\"A\":\"r1\",\"B\":\"r1\",\"C\":\"r1\"}",
         "{\"observedID\":\"r1\",\"phase\":\"Completed\"}"},
        /* in the user's order */
        {"{\"id\":\"r1\",\"strategy\":{\"order\":[\"C\",\"A\",\"B\"]}}",
         {{"", true}, {"", true}, {"r1", true}},
         "{\"C\":\"r1\",\"A\":\"r1\"}",
         "{\"observedID\":\"r1\",\"phase\":\"Restarting\",\"inProgress\":[\"A\"]}"},
        /* all at once */
        {"{\"id\":\"r1\",\"strategy\":{\"type\":\"Parallel\"}}",
         {{"", true}, {"r1", true}, {"r1", false}},
         "{\"A\":\"r1\",\"B\":\"r1\",\"C\":\"r1\"}",
         "{\"observedID\":\"r1\",\"phase\":\"Restarting\",\"inProgress\":[\"A\",\"C\"]}"},
        /* what does not exist yet needs no restart and holds up nobody */
        {"{\"id\":\"r1\"}",
         {{"absent", false}, {"", true}, {"", true}},
         "{\"A\":\"r1\",\"B\":\"r1\"}",
         "{\"observedID\":\"r1\",\"phase\":\"Restarting\",\"inProgress\":[\"A\",\"B\"]}"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(mem_free)
        char *text =
            xasprintf("{\"metadata\":{\"name\":\"g\"},\"spec\":{\"restart\":%s,\"services\":{"
                      "\"B\":{},\"A\":{},\"C\":{}}}}",
                      cases[i].restart);
        AUTO(json_free) struct json *dgd = parse(text);
        AUTO(json_free) struct json *all = components(cases[i].seen);
        AUTO(json_free) struct json *marks = restart_marks(dgd, all);
        AUTO(json_free) struct json *status = restart_status(dgd, all);
        AUTO(json_free) struct json *want_marks = parse(cases[i].marks);
        AUTO(json_free) struct json *want_status = parse(cases[i].status);
        AUTO(mem_free) char *got = json_to_cstr(marks);

        if (!json_equal(marks, want_marks))
            fail_msg("case %zu: want %s, got %s", i, cases[i].marks, got);
        if (json_is_null(want_status))
            assert_null(status);
        else
            assert_true(json_equal(status, want_status));
    }
}

int main(void)
{
    return TEST_RUN(T(marks_move_on_as_components_come_back));
}
