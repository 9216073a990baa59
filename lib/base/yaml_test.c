/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/yaml.h"

#include <errno.h>
#include <glob.h>
#include <sys/wait.h>

#include "lib/base/test.h"

/* The documents of @text as compact JSON, or the error. The caller frees. */
static char *yaml_to_json(const char *text)
{
    AUTO(json_free) struct json *docs = NULL;
    struct err e;

    if (yaml_parse(&docs, str_from(text), &e) < 0)
        return xstrdup(e.text);
    return json_to_cstr(docs);
}

static void assert_yaml(const char *text, const char *want)
{
    AUTO(mem_free) char *got = yaml_to_json(text);

    if (strcmp(got, want) != 0)
        fail_msg("%s\ngot  %s\nwant %s", text, got, want);
}

struct scalar_case {
    const char *text;
    const char *want; /* what kubectl 1.34.4 makes of it; NULL where it fails */
};

/* `kubectl patch --local --type=merge -p {} -o json` of an object with the text as a list item. */
static const struct scalar_case scalars[] = {
    {"~", "null"},
    {"null", "null"},
    {"Null", "null"},
    {"NULL", "null"},
    {"nULL", "\"nULL\""},
    {"", "null"},
    {"true", "true"},
    {"True", "true"},
    {"TRUE", "true"},
    {"tRUE", "\"tRUE\""},
    {"yes", "true"},
    {"Yes", "true"},
    {"y", "true"},
    {"Y", "true"},
    {"on", "true"},
    {"ON", "true"},
    {"oN", "\"oN\""},
    {"no", "false"},
    {"n", "false"},
    {"N", "false"},
    {"off", "false"},
    {"Off", "false"},
    {"false", "false"},

    {"0", "0"},
    {"-0", "0"},
    {"+0", "0"},
    {"1", "1"},
    {"+1", "1"},
    {"-1", "-1"},
    {"017", "15"},
    {"0o17", "15"},
    {"0O17", "15"},
    {"-017", "-15"},
    {"08", "8"},
    {"019", "19"},
    {"0x1F", "31"},
    {"0X1f", "31"},
    {"-0x10", "-16"},
    {"0x", "\"0x\""},
    {"0b101", "5"},
    {"-0b11", "-3"},
    {"+0b11", "3"},
    {"0b2", "\"0b2\""},
    {"1_000", "1000"},
    {"1__0_", "10"},
    {"_1", "\"_1\""},
    {"0_7", "7"},
    {"0x1_F", "31"},
    {"9007199254740992", "9007199254740992"},
    {"0xFFFFFFFFFFFFFFFFFF", "\"0xFFFFFFFFFFFFFFFFFF\""},

    {"1.0", "1"},
    {"1.", "1"},
    {".5", "0.5"},
    {"+.5", "0.5"},
    {"-.5", "-0.5"},
    {".", "\".\""},
    {"+", "\"+\""},
    {"1e3", "1000"},
    {"1E3", "1000"},
    {"1e+3", "1000"},
    {"1.5e-3", "0.0015"},
    {".5e1", "5"},
    {"1e999", "\"1e999\""},
    {"1e", "\"1e\""},
    {"0.1_0", "0.1"},
    {"1_0.5", "10.5"},
    {".1_0", "0.1"},
    {".5_5e1", "5.5"},
    {"1_e3", "1000"},
    {"12e03", "12000"},
    {"-1e-7", "-1e-07"},
    {"1e21", "1e+21"},
    {"123456789.123", "123456789.123"},
    {"0.000001", "1e-06"},
    {"0x1.8p1", "\"0x1.8p1\""},
    {"0x1p-2", "\"0x1p-2\""},
    {".inf", NULL},
    {"-.inf", NULL},
    {"+.Inf", NULL},
    {".nan", NULL},
    {".NaN", NULL},
    {"inf", "\"inf\""},
    {"NaN", "\"NaN\""},
    {"Infinity", "\"Infinity\""},
    {"-.inf5", "\"-.inf5\""},

    {"1:30", "\"1:30\""},
    {"190:20:30", "\"190:20:30\""},
    {"2001-12-14", "\"2001-12-14\""},
    {"2001-12-14T21:59:43Z", "\"2001-12-14T21:59:43Z\""},
    {"2001-1-2", "\"2001-1-2\""},
    {"=", "\"=\""},
    {"<<", "\"<<\""},
    {"\"1\"", "\"1\""},
    {"'true'", "\"true\""},
    {">-", "\"\""},
    {"100m", "\"100m\""},
    {"2Gi", "\"2Gi\""},

    {"!!str 1", "\"1\""},
    {"!!str true", "\"true\""},
    {"!!str", "\"\""},
    {"!!int \"1\"", "1"},
    {"!!int 0x10", "16"},
    {"!!int x", NULL},
    {"!!int 1.5", NULL},
    {"!!float 1", "1"},
    {"!!float \"1.5\"", "1.5"},
    {"!!float x", NULL},
    {"!!bool yes", "true"},
    {"!!bool \"true\"", "true"},
    {"!!bool x", NULL},
    {"!!null \"\"", "null"},
    {"!!null x", NULL},
    {"!!null ~", "null"},
    {"!foo 1", "\"1\""},
    {"! 1", "\"1\""},
    {"!!binary aGVsbG8=", "\"hello\""},
    {"!!timestamp 2001-01-01", "\"2001-01-01\""},

    {"!!map {a: 1}", "{\"a\":1}"},
    {"!!seq [1]", "[1]"},
    {"!!set {a, b}", "{\"a\":null,\"b\":null}"},
    {"!!omap [a: 1]", "[{\"a\":1}]"},
    {"{1: a, 1.5: b, true: c, 0x10: d, 1e3: f, 1e30: g, 0.1: h}",
     "{\"1\":\"a\",\"1.5\":\"b\",\"true\":\"c\",\"16\":\"d\",\"1000\":\"f\",\"1e+30\":\"g\",\"0."
     "1\":\"h\"}"},
    {"{~: a}", NULL},
    {"{? [1] : a}", NULL},
    {"{2001-01-01: a}", "{\"2001-01-01\":\"a\"}"},
    {"{yes: 1}", "{\"true\":1}"},
    {"{a: 1, a: 2}", "{\"a\":2}"},
    {"{\"<<\": 1}", "{\"<<\":1}"},
    {"{1.0: a}", "{\"1\":\"a\"}"},
    {"{? a, b: 1}", "{\"a\":null,\"b\":1}"},
    {"[a: 1]", "[{\"a\":1}]"},
    {"{18446744073709551615: a}", NULL},

    {"{<<: {b: 2}, a: 1}", "{\"b\":2,\"a\":1}"},
    {"{<<: 1}", NULL},
    {"{<<: [1]}", NULL},
    {"{<<: {}, a: 1}", "{\"a\":1}"},
    {"[&x 1, *x]", "[1,1]"},
    {"{a: &x {b: 1}, c: *x}", "{\"a\":{\"b\":1},\"c\":{\"b\":1}}"},
    {"{a: &x {b: 1, c: 2}, d: {<<: *x, c: 3}}",
     "{\"a\":{\"b\":1,\"c\":2},\"d\":{\"b\":1,\"c\":3}}"},
    {"{a: &x {b: 1, c: 2}, d: {c: 3, <<: *x}}",
     "{\"a\":{\"b\":1,\"c\":2},\"d\":{\"b\":1,\"c\":2}}"},
    {"{a: &x {b: 1}, e: &y {b: 2}, d: {<<: [*x, *y]}}",
     "{\"a\":{\"b\":1},\"e\":{\"b\":2},\"d\":{\"b\":1}}"},
    {"{a: &x {b: 1}, d: {<<: *x, <<: {c: 1}}}", "{\"a\":{\"b\":1},\"d\":{\"b\":1,\"c\":1}}"},
    {"&x [*x]", NULL},
    {"[&x 1, &x [*x]]", NULL},
    {"*nope", NULL},
    {"{*nope : 1}", NULL},
    {"[&k key, {*k : 1}]", "[\"key\",{\"key\":1}]"},
    {"[&k [], {*k : 1}]", NULL},
    {"&a", "null"},
    {"&a x", "\"x\""},
    {"\"a\\", NULL},
    {"{", NULL},
    {"[a: b: c]", NULL},
};

static struct json *item_of(const char *text, struct err *e)
{
    AUTO(mem_free)
    char *doc = xasprintf("apiVersion: a.b/v1\nkind: Foo\nmetadata: {name: x1}\n"
                          "spec:\n  - %s\n",
                          text);
    AUTO(json_free) struct json *docs = NULL;

    if (yaml_parse(&docs, str_from(doc), e) < 0)
        return NULL;
    return json_take_at(json_get(json_at(docs, 0), "spec"), 0);
}

static void test_scalars_read_as_kubectl_reads_them(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scalars); i++) {
        const struct scalar_case *c = &scalars[i];
        struct err e = {""};
        AUTO(json_free) struct json *v = item_of(c->text, &e);
        AUTO(mem_free) char *got = v ? json_to_cstr(v) : NULL;

        if (!got != !c->want || (got && strcmp(got, c->want) != 0))
            fail_msg("%s: got %s %s, want %s", c->text, got ? got : "an error", e.text,
                     c->want ? c->want : "one");
    }
}

static void test_documents(void **state)
{
    (void)state;
    assert_yaml("", "[]");
    assert_yaml("# only a comment\n", "[]");
    assert_yaml("---\n---\n# nothing\n---\na: 1\n---\n...\n---\nb: 2\n", "[{\"a\":1},{\"b\":2}]");
    assert_yaml("{\"json\": [1, \"\\u00e9\", {\"x\": null}]}",
                "[{\"json\":[1,\"\xc3\xa9\",{\"x\":null}]}]");
    assert_yaml("a: |\n  line 1\n    line 2\n\nb: >-\n  folded\n  text\n\nc: |+\n  kept\n\n",
                "[{\"a\":\"line 1\\n  line 2\\n\",\"b\":\"folded text\",\"c\":\"kept\\n\\n\"}]");
    assert_yaml("a: |\n  no newline at the end", "[{\"a\":\"no newline at the end\\n\"}]");
    assert_yaml("- a\n-\n  - b\n  - c: d\n    e: f\n",
                "[[\"a\",[\"b\",{\"c\":\"d\",\"e\":\"f\"}]]]");
    assert_yaml("\xef\xbb\xbf"
                "a: 1\n",
                "[{\"a\":1}]");
    /* Anchors end with their document. */
    assert_yaml("a: &x 1\n---\nb: *x\n", "yaml: line 3: an alias without its anchor");
}

static void test_errors_name_the_line(void **state)
{
    (void)state;
    assert_yaml("a: 1\nb: [1,\n", "yaml: line 3: did not find expected node content");
    assert_yaml("a: @1\n", "yaml: line 1: found character that cannot start any token");
    assert_yaml("a:\n  b: .nan\n", "yaml: line 2: JSON has no such number");
    assert_yaml("a: \"x\\0y\"\n", "yaml: line 1: NUL in a string");
    assert_yaml("a: \xff\n", "yaml: line 1: invalid leading UTF-8 octet");
    assert_yaml("a:\n- 1\n- !!int x\n",
                "yaml: line 3: the value is not of the type that its tag says");
}

/* kubectl keeps 64 bits, a tree 53: what would be rounded is refused. */
static void test_integers_beyond_53_bits_are_refused(void **state)
{
    static const char *const cases[] = {"9007199254740993",
                                        "-9007199254740993",
                                        "18446744073709551615",
                                        "18446744073709551616",
                                        "-9223372036854775809",
                                        "0x20000000000001",
                                        "123456789012345678901234567890",
                                        "0777777777777777777777777777777"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct json *docs = NULL;
        struct err e;

        assert_int_equal(yaml_parse(&docs, str_from(cases[i]), &e), -ERANGE);
        assert_string_equal(e.text, "yaml: line 1: an integer beyond 2^53");
    }
}

static void test_depth_is_limited(void **state)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    AUTO(json_free) struct json *docs = NULL;

    (void)state;
    for (int i = 0; i < YAML_DEPTH; i++)
        buf_put_char(&text, '[');
    for (int i = 0; i < YAML_DEPTH; i++)
        buf_put_char(&text, ']');
    assert_int_equal(yaml_parse(&docs, buf_str(&text), NULL), 0);
    buf_clear(&text);
    for (int i = 0; i <= YAML_DEPTH; i++)
        buf_put_char(&text, '[');
    assert_int_equal(yaml_parse(&docs, buf_str(&text), NULL), -EINVAL);
}

/* Nine lines that stand for a thousand million values. */
static void test_alias_expansion_is_limited(void **state)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct json *docs = NULL;
    struct err e;

    (void)state;
    buf_put_cstr(&text, "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for (int i = 1; i < 9; i++) {
        buf_printf(&text, "a%d: &a%d [", i, i);
        for (int k = 0; k < 10; k++)
            buf_printf(&text, "%s*a%d", k ? ", " : "", i - 1);
        buf_put_cstr(&text, "]\n");
    }
    assert_int_equal(yaml_parse(&docs, buf_str(&text), &e), -E2BIG);
    assert_string_equal(e.text, "yaml: line 6: too many values");

    /* A long string many times is few values but many bytes. */
    buf_clear(&text);
    buf_put_cstr(&text, "- &s ");
    for (int i = 0; i < 1 << 20; i++)
        buf_put_char(&text, 's');
    for (int i = 0; i < 100; i++)
        buf_put_cstr(&text, "\n- *s");
    assert_int_equal(yaml_parse(&docs, buf_str(&text), NULL), -E2BIG);
    assert_null(docs);
}

/* --- against kubectl ------------------------------------------------------------------------- */

/* KUBECTL, else that of the test cluster (e2e/cluster), else none. The caller frees. */
static char *find_kubectl(void)
{
    const char *named = getenv("KUBECTL"), *home = getenv("HOME");
    AUTO(mem_free)
    char *pattern = xasprintf("%s/.cache/commutator/cluster/*/kubectl", home ? home : "");
    char *found = NULL;
    glob_t files;

    if (named)
        return xstrdup(named);
    if (glob(pattern, 0, NULL, &files) == 0) {
        found = xstrdup(files.gl_pathv[0]);
        globfree(&files);
    }
    return found;
}

/* What kubectl makes of @files, of which "-" is @input; it asks no server. */
static void ask_kubectl(const char *kubectl, char *const *files, size_t n, struct str input,
                        struct buf *out)
{
    static const char *const fixed[] = {"patch", "--local", "--type=merge", "-p",
                                        "{}",    "-o",      "json"};
    AUTO(mem_free) const char **argv = xcalloc(2 + ARRAY_LEN(fixed) + 2 * n, sizeof(*argv));
    FILE *stdin_file = tmpfile(), *stdout_file = tmpfile();
    size_t argc = 0;
    int status;
    pid_t pid;

    argv[argc++] = kubectl;
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
        argv[argc++] = fixed[i];
    for (size_t i = 0; i < n; i++) {
        argv[argc++] = "-f";
        argv[argc++] = files[i];
    }
    assert_true(stdin_file && stdout_file);
    assert_int_equal(pwrite(fileno(stdin_file), input.ptr, input.len, 0), input.len);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)dup2(fileno(stdin_file), STDIN_FILENO);
        (void)dup2(fileno(stdout_file), STDOUT_FILENO);
        (void)execv(kubectl, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    rewind(stdout_file);
    while (!feof(stdout_file))
        buf_commit(out, fread(buf_reserve(out, 65536), 1, 65536, stdout_file));
    (void)fclose(stdin_file);
    (void)fclose(stdout_file);
}

/* kubectl prints one object after the other. */
static struct json *next_object(struct str *rest)
{
    struct json *v = NULL;
    struct json_pull p;
    struct str text;
    struct err e;

    json_pull_init(&p, *rest);
    assert_true(json_pull_skip(&p, &text));
    *rest = str_skip(*rest, (size_t)(p.at - p.begin));
    EXPECT_OK(json_parse(&v, text, &e), &e);
    return v;
}

/* One array of documents for each file. */
static struct json *parse_files(char *const *files, size_t n)
{
    AUTO(json_free) struct json *all = json_new_array();

    for (size_t i = 0; i < n; i++) {
        AUTO(buf_done) struct buf text = BUF_NULL;
        struct json *docs = NULL;
        struct err e;

        assert_true(test_read_file(files[i], &text));
        EXPECT_OK(yaml_parse(&docs, buf_str(&text), &e), &e);
        assert_true(json_len(docs) > 0);
        (void)json_add(all, docs);
    }
    return TAKE(all);
}

static void test_graph_deployments_equal_kubectl_s_reading(void **state)
{
    const char *shared = test_shared();
    AUTO(mem_free) char *kubectl = find_kubectl();
    AUTO(mem_free) char *pattern = xasprintf("%s/data/dgd/*/*.yaml", shared);
    AUTO(json_free) struct json *all = NULL;
    AUTO(buf_done) struct buf answers = BUF_NULL;
    struct str rest;
    glob_t files;

    (void)state;
    assert_int_equal(glob(pattern, 0, NULL, &files), 0);
    assert_true(files.gl_pathc > 50);
    all = parse_files(files.gl_pathv, files.gl_pathc);
    if (kubectl)
        ask_kubectl(kubectl, files.gl_pathv, files.gl_pathc, STR_NULL, &answers);
    else
        printf("skipped the comparison: no kubectl (set KUBECTL)\n");
    rest = buf_str(&answers);
    for (size_t i = 0; kubectl && i < files.gl_pathc; i++) {
        JSON_FOREACH (doc, json_at(all, i)) {
            AUTO(json_free) struct json *want = next_object(&rest);
            AUTO(mem_free) char *ours = json_to_cstr(doc);
            AUTO(mem_free) char *theirs = json_to_cstr(want);

            if (!json_equal(doc, want))
                fail_msg("%s\nours   %s\ntheirs %s", files.gl_pathv[i], ours, theirs);
        }
    }
    assert_int_equal(str_trim(rest).len, 0);
    globfree(&files);
}

/* Keeps the table above honest: one kubectl run for all scalars that it can read. */
static void test_kubectl_agrees_with_the_table(void **state)
{
    static char from_stdin[] = "-", *files[] = {from_stdin};
    AUTO(mem_free) char *kubectl = find_kubectl();
    AUTO(buf_done) struct buf doc = BUF_NULL;
    AUTO(buf_done) struct buf answers = BUF_NULL;
    AUTO(json_free) struct json *got = NULL;
    struct json *item;
    struct str rest;

    (void)state;
    if (!kubectl) {
        printf("skipped: no kubectl (set KUBECTL)\n");
        skip();
    }
    buf_put_cstr(&doc, "apiVersion: a.b/v1\nkind: Foo\nmetadata: {name: x1}\nspec:\n");
    for (size_t i = 0; i < ARRAY_LEN(scalars); i++)
        if (scalars[i].want)
            buf_printf(&doc, "  - %s\n", scalars[i].text);
    ask_kubectl(kubectl, files, 1, buf_str(&doc), &answers);
    rest = buf_str(&answers);
    got = next_object(&rest);
    item = json_first(json_get(got, "spec"));

    for (size_t i = 0; i < ARRAY_LEN(scalars); i++) {
        AUTO(json_free) struct json *want = NULL;

        if (!scalars[i].want)
            continue;
        assert_int_equal(json_parse(&want, str_from(scalars[i].want), NULL), 0);
        if (!json_equal(item, want))
            fail_msg("%s: kubectl differs", scalars[i].text);
        item = json_next(item);
    }
    assert_null(item);
}

int main(void)
{
    return TEST_RUN(T(test_scalars_read_as_kubectl_reads_them), T(test_documents),
                    T(test_errors_name_the_line), T(test_integers_beyond_53_bits_are_refused),
                    T(test_depth_is_limited), T(test_alias_expansion_is_limited),
                    T(test_graph_deployments_equal_kubectl_s_reading),
                    T(test_kubectl_agrees_with_the_table));
}
