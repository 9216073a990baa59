/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/template.h"

#include <errno.h>

#include "lib/base/json_tree.h"
#include "lib/base/test.h"

static const char VARS[] =
    "{\"n\":7,\"s\":\"Hello\",\"l\":[3,1,2],\"d\":{\"z\":1,\"a\":\"<x> & "
    "'y'\"},\"t\":true,\"e\":\"\","
    "\"nothing\":null,\"f\":2.5,\"u\":\"\xc3\xa9t\xc3\xa9\","
    "\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"U\"}]}";

static int render(const char *source, struct buf *out, struct err *e)
{
    AUTO(template_free) struct template *t = NULL;
    AUTO(json_free) struct json *vars = NULL;
    struct tm now = {.tm_year = 126, .tm_mon = 10, .tm_mday = 21, .tm_hour = 9};
    int r = json_parse(&vars, STR(VARS), e);

    if (r == 0)
        r = template_parse(&t, str_from(source), e);
    return r < 0 ? r : template_render(t, vars, NULL, &now, out, e);
}

struct pair {
    const char *source, *want;
};

static void assert_all(const struct pair *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        AUTO(buf_done) struct buf out = BUF_NULL;
        struct err e;

        if (render(cases[i].source, &out, &e) < 0)
            fail_msg("%s: %s", cases[i].source, e.text);
        if (strcmp(buf_cstr(&out), cases[i].want) != 0)
            fail_msg("%s: \"%s\", not \"%s\"", cases[i].source, buf_cstr(&out), cases[i].want);
    }
}

static void test_white_space(void **state)
{
    static const struct pair cases[] = {
        {"a\n", "a"},
        {"a\n\n", "a\n"},
        {"{% if t %}\nx\n{% endif %}\ny", "x\ny"},
        {"  {% if t %}\n  x\n  {% endif %}\n", "  x\n"},
        {"a {%- if t -%} b {%- endif -%} c", "abc"},
        {"  {%+ if t %}x{% endif %}", "  x"},
        {"{% if t +%}\nx{% endif %}", "\nx"},
        {"a {{- ' b ' -}} c", "a b c"},
        {"  {# gone #}\nx", "x"},
        {"{{ n }}\n{{ n }}", "7\n7"},
        {"{% raw %}{{ n }}{% endraw %}", "{{ n }}"},
        {"a\n{% generation %}\nb{% endgeneration %}c", "a\n\nbc"},
        {"{%- generation -%} x {%- endgeneration -%}", "x"},
    };

    (void)state;
    assert_all(cases, ARRAY_LEN(cases));
}

static void test_expressions(void **state)
{
    static const struct pair cases[] = {
        {"{{ 1 + 2 * 3 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }}",
         "7 3 -4 2 3.5 1024"},
        {"{{ 'a' + 'b' ~ 1 ~ 2.0 }} {{ [1] + [2] }} {{ 'ab' * 3 }}", "ab12.0 [1, 2] ababab"},
        {"{{ t }} {{ nothing }} {{ missing }} {{ l }} {{ {'k': 'v'} }}",
         "true none  [3, 1, 2] {\"k\": \"v\"}"},
        {"{{ 1 < 2 <= 2 }} {{ 'b' > 'a' }} {{ 1 == 1.0 }} {{ n != 7 }}", "true true true false"},
        {"{{ 3 in l }} {{ 'a' in d }} {{ 'ell' in s }} {{ 9 not in l }}", "true true true true"},
        {"{{ s[0] }}{{ s[-1] }}{{ s[1:3] }}{{ l[::-1] }}{{ u[:2] }}", "Hoel[2, 1, 3]\xc3\xa9t"},
        {"{{ 'y' if t else 'n' }}{{ 'x' if e }}{{ e or 'z' }}{{ t and n }}", "yz7"},
        {"{{ messages[0].role }} {{ messages[0]['content'] }} {{ messages[9] is defined }}",
         "system S false"},
        {"{{ 'a' 'b' \"\\n\\u00e9\" }}", "ab\n\xc3\xa9"},
        {"{{ not t }} {{ -n | abs }} {{ (1, 2)[1] }}", "false 7 2"},
    };

    (void)state;
    assert_all(cases, ARRAY_LEN(cases));
}

static void test_statements(void **state)
{
    static const struct pair cases[] = {
        {"{% for x in l %}{{ loop.index }}{{ x }}{{ ',' if not loop.last }}{% endfor %}",
         "13,21,32"},
        {"{% for x in l if x > 1 %}{{ x }}{{ loop.length }}{% endfor %}", "3222"},
        {"{% for x in [] %}x{% else %}none{% endfor %}", "none"},
        {"{% for k, v in d.items() %}{{ k }}{% endfor %}{% for k in d %}{{ k }}{% endfor %}",
         "azaz"},
        {"{% for x in range(9) %}{% if x == 2 %}{% continue %}{% endif %}{% if x > 3 %}{% break %}"
         "{% endif %}{{ x }}{% endfor %}",
         "013"},
        {"{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
         "<3>1 3<1>2 1<2> "},
        {"{% set x = 1 %}{% for y in l %}{% set x = x + 1 %}{% endfor %}{{ x }}", "1"},
        {"{% set ns = namespace(x=1) %}{% for y in l %}{% set ns.x = ns.x + y %}{% endfor %}{{ "
         "ns.x }}",
         "7"},
        {"{% set a, b = 1, 2 %}{{ b }}{% set c %}<{{ a }}>{% endset %}{{ c }}", "2<1>"},
        {"{% if n > 9 %}a{% elif n == 7 %}b{% else %}c{% endif %}", "b"},
        {"{% macro m(a, b='B') %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, b=2) }}", "1B12"},
        {"{% macro f(x) %}{{ x }}{% if x > 0 %}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
         "3210"},
        {"{% filter upper %}abc{% endfilter %}{% with q = 3 %}{{ q }}{% endwith %}{{ q }}", "ABC3"},
        {"{{ strftime_now('%d %b %Y') }}", "21 Nov 2026"},
    };

    (void)state;
    assert_all(cases, ARRAY_LEN(cases));
}

static void test_filters_tests_methods(void **state)
{
    static const struct pair cases[] = {
        {"{{ d | tojson }}", "{\"a\":\"\\u003cx\\u003e \\u0026 \\u0027y\\u0027\",\"z\":1}"},
        {"{{ {'b': [1, 2.0, none], 'a': {}} | tojson(indent=1) }}",
         "{\n \"a\": {},\n \"b\": [\n  1,\n  2.0,\n  null\n ]\n}"},
        {"{{ u | tojson }}", "\"\xc3\xa9t\xc3\xa9\""},
        {"{{ ' x ' | trim }}|{{ s | upper }}|{{ s | length }}|{{ nothing | length }}",
         "x|HELLO|5|0"},
        {"{{ missing | default('d') }}{{ e | default('d') }}{{ e | default('d', true) }}", "dd"},
        {"{{ l | join('-') }} {{ l | sort | first }} {{ l | last }} {{ l | sum }} {{ l | max }}",
         "3-1-2 1 2 6 3"},
        {"{{ messages | map(attribute='role') | join(',') }}", "system,user"},
        {"{{ ['a', 'b'] | map('upper') | join }}", "AB"},
        {"{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"},
        {"{{ messages | rejectattr('role', '==', 'user') | map(attribute='content') | first }}",
         "S"},
        {"{{ '12' | int + 1 }} {{ 'x' | int(5) }} {{ '1.5' | float }} {{ 2.5 | int }}",
         "13 5 1.5 2"},
        {"{{ n is defined }} {{ s is string }} {{ d is mapping }} {{ l is iterable }} {{ n is odd "
         "}}",
         "true true true true true"},
        {"{{ nothing is none }} {{ t is true }} {{ t is false }} {{ s is not number }}",
         "true true false true"},
        {"{{ s.startswith('He') }} {{ s.endswith(('x', 'o')) }} {{ ' a '.strip() }}",
         "true true a"},
        {"{{ 'a,b,c'.split(',')[1] }} {{ ' a  b '.split() | length }} {{ 'a-b-c'.rsplit('-', 1)[0] "
         "}}",
         "b 2 a-b"},
        {"{{ d.get('z') }} {{ d.get('q', 0) }} {{ d.keys() | list }} {{ s.replace('l', 'L', 1) }}",
         "1 0 [\"a\", \"z\"] HeLlo"},
        {"{{ '\xc3\xa9\xd0\xb6' | upper }} {{ 'abc def'.title() }} {{ 'aBC' | capitalize }}",
         "\xc3\x89\xd0\x96 Abc Def Abc"},
    };

    (void)state;
    assert_all(cases, ARRAY_LEN(cases));
}

static void test_errors_name_the_line(void **state)
{
    static const struct {
        const char *source;
        int want;
        const char *says;
    } cases[] = {
        {"a\n\n{{ 1 + }}", -EINVAL, "line 3: unexpected"},
        {"{% if t %}\n", -EINVAL, "line 1"},
        {"{% for x in l %}{% endif %}", -EINVAL, "endfor"},
        {"{{ 'abc }}", -EINVAL, "string without an end"},
        {"{# abc", -EINVAL, "comment without an end"},
        {"{% include 'x' %}", -ENOTSUP, "unsupported tag include"},
        {"{{ n | frobnicate }}", -ENOTSUP, "unsupported filter frobnicate"},
        {"\n{{ raise_exception('roles must alternate') }}", -EINVAL,
         "line 2: roles must alternate"},
        {"x\n{{ missing.x }}", -EINVAL, "line 2: cannot read \"x\" of undefined"},
        {"{{ missing() }}", -EINVAL, "cannot be called"},
        {"{{ 'a' + 1 }}", -EINVAL, "unsupported operands"},
        {"{{ 1 // 0 }}", -EINVAL, "division by zero"},
        {"{{ 9223372036854775807 + 1 }}", -EINVAL, "out of range"},
        {"{{ l.append(1) }}", -EINVAL, "no method"},
        {"{% set d.x = 1 %}", -EINVAL, "namespace"},
        {"{% break %}", -EINVAL, "outside of a loop"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf out = BUF_NULL;
        struct err e = {""};
        int r = render(cases[i].source, &out, &e);

        if (r != cases[i].want || out.len > 0 || !strstr(e.text, cases[i].says))
            fail_msg("%s: %d %s", cases[i].source, r, e.text);
    }
}

static void test_limits(void **state)
{
    static const char *const sources[] = {
        "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}"
        "{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{{ range(1000000000) | length }}",
        "{{ 'x' * 9999999999 }}",
        "{% set s = 'x' * 100000 %}{{ ([s] * 100000) | join }}",
    };
    AUTO(buf_done) struct buf deep = BUF_NULL;
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sources); i++)
        if (render(sources[i], &out, &e) == 0)
            fail_msg("no limit stopped: %s", sources[i]);
    buf_put_cstr(&deep, "{{ ");
    for (int i = 0; i < 10000; i++)
        buf_put_char(&deep, '(');
    buf_put_cstr(&deep, " }}");
    assert_int_equal(render(buf_cstr(&deep), &out, &e), -E2BIG);
    buf_clear(&deep);
    buf_put_cstr(&deep, "{{ 1");
    for (int i = 0; i < 10000; i++)
        buf_put_cstr(&deep, "+1");
    buf_put_cstr(&deep, " }}");
    assert_true(render(buf_cstr(&deep), &out, &e) < 0);
}

static void test_over_hides_vars(void **state)
{
    AUTO(template_free) struct template *t = NULL;
    AUTO(json_free) struct json *vars = json_new_object(), *over = json_new_object();
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct err e;

    (void)state;
    (void)json_set_cstr(vars, "a", "1");
    (void)json_set_cstr(vars, "b", "2");
    (void)json_set_cstr(over, "b", "3");
    EXPECT_OK(template_parse(&t, STR("{{ a }}{{ b }}"), &e), &e);
    EXPECT_OK(template_render(t, vars, over, NULL, &out, &e), &e);
    assert_string_equal(buf_cstr(&out), "13");
}

int main(void)
{
    return TEST_RUN(T(test_white_space), T(test_expressions), T(test_statements),
                    T(test_filters_tests_methods), T(test_errors_name_the_line), T(test_limits),
                    T(test_over_hides_vars));
}
