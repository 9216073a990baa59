/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/template.h"

#include <errno.h>

#include "lib/base/json_tree.h"
#include "lib/base/test.h"

static const char VARS[] =
    "{\"n\":7,\"s\":\"Hello\",\"l\":[3,1,2],\"d\":{\"z\":1,\"a\":\"<x> & "
    "'y'\"},\"t\":true,\"e\":\"\","
    "\"nothing\":null,\"f\":2.5,\"w\":[18446744073709551615,9223372036854775808],\"u\":"
    "\"\xc3\xa9t\xc3\xa9\","
    "\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"U\"}]}";

static int render_as(enum template_style style, const char *source, struct buf *out, struct err *e)
{
    AUTO(template_free) struct template *t = NULL;
    AUTO(json_free) struct json *vars = NULL;
    struct tm now = {.tm_year = 126, .tm_mon = 10, .tm_mday = 21, .tm_hour = 9};
    int r = json_parse_wide(&vars, STR(VARS), e);

    if (r == 0)
        r = template_parse(&t, str_from(source), style, e);
    return r < 0
               ? r
               : template_render(t, &(struct template_context){.vars = vars, .now = &now}, out, e);
}

static int render(const char *source, struct buf *out, struct err *e)
{
    return render_as(TEMPLATE_TRANSFORMERS, source, out, e);
}

struct pair {
    const char *source, *want;
    const char *old; /* as TEMPLATE_DYNAMO_0_9; NULL = the same */
};

static void assert_one(enum template_style style, const char *source, const char *want)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct err e;

    if (render_as(style, source, &out, &e) < 0)
        fail_msg("%s: %s", source, e.text);
    if (strcmp(buf_cstr(&out), want) != 0)
        fail_msg("%s: \"%s\", not \"%s\" (style %d)", source, buf_cstr(&out), want, style);
}

static void assert_all(const struct pair *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_one(TEMPLATE_TRANSFORMERS, cases[i].source, cases[i].want);
        assert_one(TEMPLATE_DYNAMO_0_9, cases[i].source,
                   cases[i].old ? cases[i].old : cases[i].want);
    }
}

static void test_white_space(void **state)
{
    static const struct pair cases[] = {
        {"a\n", "a", NULL},
        {"a\n\n", "a\n", NULL},
        {"{% if t %}\nx\n{% endif %}\ny", "x\ny", NULL},
        {"  {% if t %}\n  x\n  {% endif %}\n", "  x\n", NULL},
        {"a {%- if t -%} b {%- endif -%} c", "abc", NULL},
        {"  {%+ if t %}x{% endif %}", "  x", NULL},
        {"{% if t +%}\nx{% endif %}", "\nx", NULL},
        {"a {{- ' b ' -}} c", "a b c", NULL},
        {"  {# gone #}\nx", "x", NULL},
        {"{{ n }}\n{{ n }}", "7\n7", NULL},
        {"{% raw %}{{ n }}{% endraw %}", "{{ n }}", NULL},
        {"a\n{% generation %}\nb{% endgeneration %}c", "a\nbc", "a\n\nbc"},
        {"{%- generation -%} x {%- endgeneration -%}", "x", NULL},
    };

    (void)state;
    assert_all(cases, ARRAY_LEN(cases));
}

static void test_expressions(void **state)
{
    static const struct pair cases[] = {
        {"{{ 1 + 2 * 3 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }}",
         "7 3 -4 2 3.5 1024", NULL},
        {"{{ 'a' + 'b' ~ 1 ~ 2.0 }} {{ [1] + [2] }} {{ 'ab' * 3 }}", "ab12.0 [1, 2] ababab", NULL},
        {"{{ t }} {{ nothing }} {{ missing }} {{ l }} {{ {'k': 'v'} }}",
         "True None  [3, 1, 2] {'k': 'v'}", "true none  [3, 1, 2] {\"k\": \"v\"}"},
        {"{{ 1 < 2 <= 2 }} {{ 'b' > 'a' }} {{ 1 == 1.0 }} {{ n != 7 }}", "True True True False",
         "true true true false"},
        {"{{ 3 in l }} {{ 'a' in d }} {{ 'ell' in s }} {{ 9 not in l }}", "True True True True",
         "true true true true"},
        {"{{ s[0] }}{{ s[-1] }}{{ s[1:3] }}{{ l[::-1] }}{{ u[:2] }}", "Hoel[2, 1, 3]\xc3\xa9t",
         NULL},
        {"{{ 'y' if t else 'n' }}{{ 'x' if e }}{{ e or 'z' }}{{ t and n }}", "yz7", NULL},
        {"{{ messages[0].role }} {{ messages[0]['content'] }} {{ messages[9] is defined }}",
         "system S False", "system S false"},
        {"{{ 'a' 'b' \"\\n\\u00e9\" }}", "ab\n\xc3\xa9", NULL},
        {"{{ not t }} {{ -n | abs }} {{ (1, 2)[1] }}", "False 7 2", "false 7 2"},
    };

    (void)state;
    assert_all(cases, ARRAY_LEN(cases));
}

static void test_statements(void **state)
{
    static const struct pair cases[] = {
        {"{% for x in l %}{{ loop.index }}{{ x }}{{ ',' if not loop.last }}{% endfor %}",
         "13,21,32", NULL},
        {"{% for x in l if x > 1 %}{{ x }}{{ loop.length }}{% endfor %}", "3222", NULL},
        {"{% for x in [] %}x{% else %}none{% endfor %}", "none", NULL},
        {"{% for k, v in d.items() %}{{ k }}{% endfor %}{% for k in d %}{{ k }}{% endfor %}",
         "zaza", "azaz"},
        {"{% for x in range(9) %}{% if x == 2 %}{% continue %}{% endif %}{% if x > 3 %}{% break %}"
         "{% endif %}{{ x }}{% endfor %}",
         "013", NULL},
        {"{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
         "<3>1 3<1>2 1<2> ", NULL},
        {"{% set x = 1 %}{% for y in l %}{% set x = x + 1 %}{% endfor %}{{ x }}", "1", NULL},
        {"{% set ns = namespace(x=1) %}{% for y in l %}{% set ns.x = ns.x + y %}{% endfor %}{{ "
         "ns.x }}",
         "7", NULL},
        {"{% set a, b = 1, 2 %}{{ b }}{% set c %}<{{ a }}>{% endset %}{{ c }}", "2<1>", NULL},
        {"{% if n > 9 %}a{% elif n == 7 %}b{% else %}c{% endif %}", "b", NULL},
        {"{% macro m(a, b='B') %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, b=2) }}", "1B12",
         NULL},
        {"{% macro f(x) %}{{ x }}{% if x > 0 %}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
         "3210", NULL},
        {"{% filter upper %}abc{% endfilter %}{% with q = 3 %}{{ q }}{% endwith %}{{ q }}", "ABC3",
         NULL},
        {"{{ strftime_now('%d %b %Y') }}", "21 Nov 2026", NULL},
        {"{% macro m(a) %}{{ a }}{{ caller(1) }}{{ varargs | length }}{% endmacro %}"
         "{% call(x) m('A', 5) %}<{{ x }}>{% endcall %}",
         "A<1>1", NULL},
        {"{% for x in [1, [2, [3]]] recursive %}{{ loop(x) if x is iterable else x }}"
         "{{ loop.depth }}{% endfor %}",
         "11223321", NULL},
        {"{% with a = 1, b = a %}{{ b }}{% endwith %}", "", NULL},
        {"{% macro m(x, y) %}{{ x }}{{ y }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'y': 3}) }}",
         "123", NULL},
        {"{% for a, (b, c) in [(1, (2, 3))] %}{{ a + b + c }}{% endfor %}", "6", NULL},
        {"{% block b %}x{% endblock %}{% print 'y' %}", "xy", NULL},
    };

    (void)state;
    assert_all(cases, ARRAY_LEN(cases));
}

static void test_filters_tests_methods(void **state)
{
    static const struct pair cases[] = {
        {"{{ w[0] }} {{ w }} {{ w | tojson(indent=none) }} {{ w[0] is integer }}",
         "18446744073709551615 [18446744073709551615, 9223372036854775808] "
         "[18446744073709551615, 9223372036854775808] True",
         "18446744073709551615 [18446744073709551615, 9223372036854775808] "
         "[18446744073709551615,9223372036854775808] true"},
        {"{{ d | tojson }}", "{\"z\": 1, \"a\": \"<x> & 'y'\"}",
         "{\"a\":\"\\u003cx\\u003e \\u0026 \\u0027y\\u0027\",\"z\":1}"},
        {"{{ {'b': [1, 2.0, none], 'a': {}} | tojson(indent=1) }}",
         "{\n \"b\": [\n  1,\n  2.0,\n  null\n ],\n \"a\": {}\n}",
         "{\n \"a\": {},\n \"b\": [\n  1,\n  2.0,\n  null\n ]\n}"},
        {"{{ [u] | tojson(ensure_ascii=true) }}", "[\"\\u00e9t\\u00e9\"]",
         "[\n \"\xc3\xa9t\xc3\xa9\"\n]"},
        {"{{ u | tojson }}", "\"\xc3\xa9t\xc3\xa9\"", NULL},
        {"{{ ' x ' | trim }}|{{ s | upper }}|{{ s | length }}|{{ missing | length }}",
         "x|HELLO|5|0", NULL},
        {"{{ missing | default('d') }}{{ e | default('d') }}{{ e | default('d', true) }}", "dd",
         NULL},
        {"{{ l | join('-') }} {{ l | sort | first }} {{ l | last }} {{ l | sum }} {{ l | max }}",
         "3-1-2 1 2 6 3", NULL},
        {"{{ messages | map(attribute='role') | join(',') }}", "system,user", NULL},
        {"{{ ['a', 'b'] | map('upper') | join }}", "AB", NULL},
        {"{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1", NULL},
        {"{{ messages | rejectattr('role', '==', 'user') | map(attribute='content') | first }}",
         "S", NULL},
        {"{{ '12' | int + 1 }} {{ 'x' | int(5) }} {{ '1.5' | float }} {{ 2.5 | int }}",
         "13 5 1.5 2", NULL},
        {"{{ n is defined }} {{ s is string }} {{ d is mapping }} {{ l is iterable }} {{ n is odd "
         "}}",
         "True True True True True", "true true true true true"},
        {"{{ nothing is none }} {{ t is true }} {{ t is false }} {{ s is not number }}",
         "True True False True", "true true false true"},
        {"{{ s.startswith('He') }} {{ s.endswith(('x', 'o')) }} {{ ' a '.strip() }}", "True True a",
         "true true a"},
        {"{{ 'a,b,c'.split(',')[1] }} {{ ' a  b '.split() | length }} {{ 'a-b-c'.rsplit('-', 1)[0] "
         "}}",
         "b 2 a-b", NULL},
        {"{{ d.get('z') }} {{ d.get('q', 0) }} {{ d.keys() | list }} {{ s.replace('l', 'L', 1) }}",
         "1 0 ['z', 'a'] HeLlo", "1 0 [\"a\", \"z\"] HeLlo"},
        {"{{ '\xc3\xa9\xd0\xb6' | upper }} {{ 'abc def'.title() }} {{ 'aBC' | capitalize }}",
         "\xc3\x89\xd0\x96 Abc Def Abc", NULL},
    };

    (void)state;
    assert_all(cases, ARRAY_LEN(cases));
}

static void test_python_values(void **state)
{
    static const struct pair cases[] = {
        {"{{ (1,) }}{{ [none, true, \"it's\", 'q'] }}", "(1,)[None, True, \"it's\", 'q']",
         "[1][none, true, \"it's\", \"q\"]"},
        {"{{ d.keys() }} {{ range(3) }}", "dict_keys(['z', 'a']) range(0, 3)",
         "[\"a\", \"z\"] [0, 1, 2]"},
        {"{{ 1e16 }} {{ 1.5e-5 }} {{ 100.0 }} {{ 0x1f }} {{ 1_000 }}",
         "1e+16 1.5e-05 100.0 31 1000", "10000000000000000.0 0.000015 100.0 31 1000"},
        {"{{ [1e16, 1.5e-5, 1e-4] }}", "[1e+16, 1.5e-05, 0.0001]", "[1e16, 1.5e-5, 0.0001]"},
        {"{{ 1e16 | tojson }} {{ 1e-5 | tojson }} {{ 1e-6 | tojson }}", "1e+16 1e-05 1e-06",
         "1e16 0.00001 1e-6"},
        {"{{ '%s %5.2f|%-4d|%(a)s' % (1, 2, 3) if false else '%s %5.2f|%-4d|' % (1, 2, 3) }}",
         "1  2.00|3   |", NULL},
        {"{{ '{:>5}|{x}'.format('a', x=2) }} {{ 'a'.center(5) }}|", "    a|2   a  |", NULL},
        {"{{ 'x-y'.partition('-') | list }} {{ 'ab' is in 'cab' }}", "['x', '-', 'y'] True",
         "[\"x\", \"-\", \"y\"] true"},
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
        {"{{ none | length }}", -EINVAL, "none has no length"},
        {"{{ s.split(1) }}", -EINVAL, "argument 1 is a number"},
        {"{{ s.strip('a', 'b') }}", -EINVAL, "strip takes 1 arguments"},
        {"{{ [1] | join(nope=1) }}", -EINVAL, "no argument is called \"nope\""},
        {"{{ '%d' % 'x' }}", -EINVAL, "%d wants a number"},
        {"{{ l | map('upper') }}", -EINVAL, "an iterator cannot be printed"},
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
    struct template_context in = {.vars = vars, .over = over};
    struct err e;

    (void)state;
    (void)json_set_cstr(vars, "a", "1");
    (void)json_set_cstr(vars, "b", "2");
    (void)json_set_cstr(over, "b", "3");
    EXPECT_OK(template_parse(&t, STR("{{ a }}{{ b }}"), TEMPLATE_TRANSFORMERS, &e), &e);
    EXPECT_OK(template_render(t, &in, &out, &e), &e);
    assert_string_equal(buf_cstr(&out), "13");
}

/* Whoever has little time gives up early, and asks again elsewhere. */
static void test_steps(void **state)
{
    AUTO(template_free) struct template *t = NULL;
    AUTO(json_free) struct json *vars = json_new_object();
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct template_context in = {.vars = vars, .steps = 1000};
    struct err e;

    (void)state;
    EXPECT_OK(template_parse(&t, STR("{% for a in range(999) %}x{% endfor %}"),
                             TEMPLATE_TRANSFORMERS, &e),
              &e);
    assert_int_equal(template_render(t, &in, &out, &e), -EAGAIN);
    assert_int_equal(out.len, 0);
    in.steps = 0;
    EXPECT_OK(template_render(t, &in, &out, &e), &e);
    assert_int_equal(out.len, 999);
}

/* What only the engine of 1.x does. @want NULL: it refuses that, too. */
static void assert_as_1(const char *source, const char *want)
{
    AUTO(template_free) struct template *t = NULL;
    AUTO(json_free) struct json *vars = json_new_object();
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct template_context in = {.vars = vars};
    struct err e;

    EXPECT_OK(template_parse(&t, str_from(source), TEMPLATE_TRANSFORMERS, &e), &e);
    assert_int_equal(template_render(t, &in, &out, &e), -EINVAL);
    template_act_as_1(t);
    assert_int_equal(template_render(t, &in, &out, &e), want ? 0 : -EINVAL);
    assert_string_equal(buf_cstr(&out), want ? want : "");
}

static void test_as_1(void **state)
{
    (void)state;
    assert_as_1("{{ none | length }}{{ 5 | length }}{{ 'ab' | length }}", "002");
    assert_as_1("{{ none | count }}", NULL);
    assert_as_1("{{ ('{\"a\": [1, \"b\"]}' | fromjson).a[1] }}{{ '2' | from_json + 1 }}", "b3");
    assert_as_1("{{ 5 | fromjson }}{{ [1] | fromjson | length }}", "51");
    assert_as_1("{{ '{' | fromjson }}", NULL);
    assert_as_1("{% set s = '[' ~ 'true,' * 99999 ~ '1]' %}{% for i in range(9) %}"
                "{{ s | fromjson | length }}{% endfor %}",
                NULL);
}

int main(void)
{
    return TEST_RUN(T(test_white_space), T(test_expressions), T(test_statements),
                    T(test_filters_tests_methods), T(test_python_values),
                    T(test_errors_name_the_line), T(test_limits), T(test_steps),
                    T(test_over_hides_vars), T(test_as_1));
}
