/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/api/check.h"

#include "lib/base/test.h"

static struct json *parse(const char *text)
{
    struct json *v = NULL;
    struct err e;

    EXPECT_OK(json_parse(&v, str_from(text), &e), &e);
    return v;
}

static void expect_problems(void (*check)(const struct json *, struct problems *),
                            const char *object, const char *want)
{
    AUTO(json_free) struct json *v = parse(object);
    AUTO(problems_done) struct problems found = PROBLEMS_NULL;
    AUTO(mem_free) char *text = NULL;

    check(v, &found);
    text = problems_text(&found);
    assert_string_equal(text, want);
}

static void test_graph_rules(void **state)
{
    static const struct {
        const char *spec;
        const char *want;
    } cases[] = {
        {"{\"services\":{\"A\":{}}}", ""},
        {"{}", "spec.services must have at least one service"},
        {"{\"services\":null}", "spec.services must have at least one service"},
        {"{\"services\":{\"A\":{\"subComponentType\":null,"
         "\"sharedMemory\":{\"disabled\":true}}}}",
         ""},
        {"{\"services\":{\"A\":{\"sharedMemory\":{\"size\":\"1Gi\"}}}}", ""},
        {"{\"services\":{\"A\":{\"volumeMounts\":[{\"name\":\"v\","
         "\"useAsCompilationCache\":true}]}}}",
         ""},
        {"{\"services\":{\"A\":{\"replicas\":-1}}}",
         "spec.services[A].replicas must be non-negative"},
        {"{\"services\":{\"A\":{\"ingress\":{\"enabled\":true}},\"B\":{\"sharedMemory\":{}}}}",
         "spec.services[A].ingress.host is required when ingress is enabled\n"
         "spec.services[B].sharedMemory.size is required when disabled is false"},
        {"{\"services\":{\"A\":{}},\"restart\":{\"id\":\"x\"}}", ""},
        {"{\"services\":{\"A\":{}},\"restart\":{\"id\":\"x\","
         "\"strategy\":{\"order\":[\"A\"]}}}",
         ""},
        {"{\"services\":{\"A\":{}},\"pvcs\":[{\"name\":\"p\"},{\"name\":\"q\",\"create\":true}]}",
         "spec.pvcs[1].storageClass is required when create is true\n"
         "spec.pvcs[1].size is required when create is true\n"
         "spec.pvcs[1].volumeAccessMode is required when create is true"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(mem_free)
        char *dgd = xasprintf("{\"metadata\":{\"name\":\"g\"},\"spec\":%s}", cases[i].spec);

        expect_problems(check_graph, dgd, cases[i].want);
    }
}

/* --- against the answers of the reference's webhook ------------------------------------------- */

/* Rules of which we know a better one. */
static bool differs_on_purpose(const char *rule)
{
    return strcmp(rule, "two errors at once") == 0 ||      /* we report both */
           strcmp(rule, "origin version not semver") == 0; /* we neither write nor read it */
}

/* What follows "denied the request: "; NULL: admitted; "": refused by the schema already. */
static const char *denial(const struct json *record)
{
    static const char mark[] = "denied the request: ";
    const char *message = json_get_cstr(record, "message");
    int64_t code = 0;

    assert_true(json_get_i64(record, "code", &code));
    if (code < 300)
        return NULL;
    message = message && code == 403 ? strstr(message, mark) : NULL;
    return message ? message + sizeof(mark) - 1 : "";
}

static size_t check_line(struct str line)
{
    AUTO(json_free) struct json *record = NULL;
    AUTO(problems_done) struct problems found = PROBLEMS_NULL;
    AUTO(mem_free) char *text = NULL;
    const char *resource, *rule, *want;
    bool graph;
    struct err e;

    EXPECT_OK(json_parse(&record, line, &e), &e);
    rule = json_get_cstr(record, "rule");
    resource = json_get_cstr(record, "resource");
    want = denial(record);
    graph = strcmp(resource, "dynamographdeployments") == 0;
    if (!strstr(json_get_cstr(record, "operator"), "3967ec0fb, webhooks on") ||
        strcmp(json_get_cstr(record, "method"), "POST") != 0 ||
        (!graph && strcmp(resource, "dynamocomponentdeployments") != 0) || (want && !want[0]) ||
        differs_on_purpose(rule))
        return 0;
    (graph ? check_graph : check_component)(json_get(record, "object"), &found);
    text = problems_text(&found);
    if (strcmp(text, want ? want : "") != 0)
        fail_msg("%s:\n  reference: %s\n  ours:      %s", rule, want ? want : "(passes)", text);
    return 1;
}

static void test_reference_webhook(void **state)
{
    AUTO(mem_free) char *path = xasprintf("%s/data/operator/validation.jsonl", test_shared());
    AUTO(buf_done) struct buf file = BUF_NULL;
    struct str rest, line;
    size_t n = 0;
    bool more = true;

    (void)state;
    assert_true(test_read_file(path, &file));
    for (rest = buf_str(&file); more;) {
        more = str_cut(&rest, '\n', &line);
        if (line.len)
            n += check_line(line);
    }
    assert_int_equal(n, 34); /* that create what the schema admits */
    printf("%zu requests answered as the reference answers them\n", n);
}

int main(void)
{
    return TEST_RUN(T(test_graph_rules), T(test_reference_webhook));
}
