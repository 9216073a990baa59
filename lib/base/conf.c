/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/conf.h"

#include <errno.h>
#include <math.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"

/* Where a value came from, for messages: "--http-port" or "DYN_HTTP_PORT". */
struct origin {
    const char *dashes, *name;
};

static void *field_at(const struct conf_field *f, void *into)
{
    return (char *)into + f->offset;
}

static int bad_value(const struct origin *o, struct str text, const char *want, struct err *e)
{
    return err_set(e, -EINVAL, "%s%s: '%.*s' is not %s", o->dashes, o->name, STR_ARG(text), want);
}

static int check_bounds(const struct conf_field *f, const struct origin *o, double v, struct err *e)
{
    if (f->min == 0 && f->max == 0)
        return 0;
    if (v >= f->min && v <= f->max)
        return 0;
    return err_set(e, -ERANGE, "%s%s: %g is outside %g to %g", o->dashes, o->name, v, f->min,
                   f->max);
}

/* "1h30m", "250ms", "1.5s"; a bare number counts seconds. */
static bool parse_duration(struct str s, uint64_t *ret_ms)
{
    static const struct {
        struct str unit;
        double ms;
    } units[] = {{STR("ms"), 1}, {STR("s"), 1e3}, {STR("m"), 6e4}, {STR("h"), 3.6e6}};
    double total = 0, number;

    if (str_parse_f64(s, &number))
        return number >= 0 && number < 1e12 ? (*ret_ms = (uint64_t)(number * 1e3), true) : false;
    if (s.len == 0)
        return false;
    while (s.len) {
        size_t n = 0, i;

        while (n < s.len && strchr("0123456789.", s.ptr[n]))
            n++;
        if (!str_parse_f64(str_head(s, n), &number))
            return false;
        s = str_skip(s, n);
        for (i = 0; i < ARRAY_LEN(units) && !str_starts(s, units[i].unit); i++)
            ;
        if (i == ARRAY_LEN(units))
            return false;
        total += number * units[i].ms;
        s = str_skip(s, units[i].unit.len);
    }
    *ret_ms = (uint64_t)total;
    return total < 1e15;
}

/* Words differ neither by '-' against '_' nor by case: Dynamo writes round-robin and round_robin.
 */
static bool same_word(struct str a, const char *b)
{
    if (a.len != strlen(b))
        return false;
    for (size_t i = 0; i < a.len; i++) {
        char x = a.ptr[i] == '_' ? '-' : a.ptr[i], y = b[i] == '_' ? '-' : b[i];

        if (!str_eq_nocase(str_slice(&x, 1), str_slice(&y, 1)))
            return false;
    }
    return true;
}

static int set_enum(const struct conf_field *f, int *at, const struct origin *o, struct str text,
                    struct err *e)
{
    AUTO(buf_done) struct buf known = BUF_NULL;

    for (int i = 0; f->words[i]; i++) {
        if (same_word(text, f->words[i])) {
            *at = i;
            return 0;
        }
        buf_printf(&known, "%s%s", i ? ", " : "", f->words[i]);
    }
    return err_set(e, -EINVAL, "%s%s: '%.*s' is none of %s", o->dashes, o->name, STR_ARG(text),
                   buf_cstr(&known));
}

/* "a, b": the bits of these words. An empty text is the empty set. */
static int set_words(const struct conf_field *f, uint64_t *at, const struct origin *o,
                     struct str text, struct err *e)
{
    struct str rest = text, word;
    uint64_t set = 0;

    for (bool more = str_trim(text).len > 0; more;) {
        int bit, r;

        more = str_cut(&rest, ',', &word);
        r = set_enum(f, &bit, o, str_trim(word), e);
        if (r < 0)
            return r;
        set |= UINT64_C(1) << bit;
    }
    *at = set;
    return 0;
}

static int set_number(const struct conf_field *f, void *at, const struct origin *o, struct str text,
                      struct err *e)
{
    uint64_t u = 0;
    double d = 0;
    int r;

    if (f->type == CONF_U64 && !str_parse_u64(text, &u))
        return bad_value(o, text, "a whole number", e);
    if (f->type == CONF_DURATION && !parse_duration(text, &u))
        return bad_value(o, text, "a duration such as 30s, 15m or 250ms", e);
    if (f->type == CONF_F64 && !str_parse_f64(text, &d))
        return bad_value(o, text, "a number", e);
    r = check_bounds(f, o, f->type == CONF_F64 ? d : (double)u, e);
    if (r < 0)
        return r;
    if (f->type == CONF_F64)
        *(double *)at = d;
    else
        *(uint64_t *)at = u;
    return 0;
}

static void add_words(char **list, struct str words)
{
    char *longer = xasprintf("%s%s%.*s", *list ? *list : "", *list ? " " : "", STR_ARG(words));

    free(*list);
    *list = longer;
}

static int set_field(const struct conf_field *f, void *into, const struct origin *o,
                     struct str text, struct err *e)
{
    void *at = field_at(f, into);

    switch (f->type) {
    case CONF_STR:
        free(*(char **)at);
        *(char **)at = str_dup(text);
        return 0;
    case CONF_LIST:
        add_words(at, text);
        return 0;
    case CONF_BOOL:
        return str_parse_bool(text, at) ? 0 : bad_value(o, text, "true or false", e);
    case CONF_ENUM:
        return set_enum(f, at, o, text, e);
    case CONF_SET:
        return set_words(f, at, o, text, e);
    case CONF_U64:
    case CONF_F64:
    case CONF_DURATION:
        return set_number(f, at, o, text, e);
    }
    return 0;
}

static int set_initial(const struct conf_spec *spec, void *into, struct err *e)
{
    for (size_t i = 0; i < spec->n_fields; i++) {
        const struct conf_field *f = &spec->fields[i];
        struct origin o = {"default of --", f->flag ? f->flag : f->env};

        if (f->type == CONF_F64)
            *(double *)field_at(f, into) = NAN;
        if (f->initial) {
            int r = set_field(f, into, &o, str_from(f->initial), e);

            if (r < 0)
                return r;
        }
    }
    return 0;
}

static int set_from_env(const struct conf_spec *spec, void *into,
                        const char *(*env)(const char *name), struct err *e)
{
    for (size_t i = 0; i < spec->n_fields; i++) {
        const struct conf_field *f = &spec->fields[i];
        struct origin o = {"", f->env};
        const char *text = f->env ? env(f->env) : NULL;
        int r;

        if (!text && f->env_alias) {
            o.name = f->env_alias;
            text = env(f->env_alias);
        }
        /* Set but empty is how manifests unset a variable. */
        if (!text || !*text)
            continue;
        r = set_field(f, into, &o, str_from(text), e);
        if (r < 0)
            return r;
    }
    return 0;
}

static bool names_flag(const struct conf_field *f, struct str name)
{
    return (f->flag && str_is(name, f->flag)) || (f->alias && str_is(name, f->alias));
}

static const struct conf_field *find_flag(const struct conf_spec *spec, struct str name)
{
    for (size_t i = 0; i < spec->n_fields; i++)
        if (names_flag(&spec->fields[i], name))
            return &spec->fields[i];
    return NULL;
}

/* One argument and, where it needs one, the next. *i moves past what was used. */
static int set_from_arg(const struct conf_spec *spec, void *into, int argc, char *const *argv,
                        int *i, struct err *e)
{
    struct str arg = str_from(argv[*i]), name, value;
    bool has_value, negated = false;
    const struct conf_field *f;
    struct origin o = {"--", NULL};

    if (!str_starts(arg, STR("--")) &&
        !(spec->go_style && str_starts(arg, STR("-")) && arg.len > 1))
        return err_set(e, -EINVAL, "'%s' is not an option; see --help", argv[*i]);
    value = str_skip(arg, str_starts(arg, STR("--")) ? 2 : 1);
    has_value = str_cut(&value, '=', &name);

    f = find_flag(spec, name);
    if (!f && !has_value && str_starts(name, STR("no-"))) {
        f = find_flag(spec, str_skip(name, 3));
        negated = f && f->type == CONF_BOOL;
        f = negated ? f : NULL;
    }
    if (!f)
        return err_set(e, -EINVAL, "unknown option --%.*s; see --help", STR_ARG(name));

    o.name = str_starts(name, STR("no-")) && negated ? argv[*i] + 2 : f->flag;
    (*i)++;
    if (f->type == CONF_BOOL && !has_value)
        return set_field(f, into, &o, negated ? STR("false") : STR("true"), e);
    if (!has_value) {
        if (*i >= argc)
            return err_set(e, -EINVAL, "--%s needs a value", f->flag);
        value = str_from(argv[(*i)++]);
    }
    return set_field(f, into, &o, value, e);
}

int conf_load(const struct conf_spec *spec, void *into, int argc, char *const *argv,
              const char *(*env)(const char *name), struct err *e)
{
    int r;

    for (int i = 1; i < argc; i++) {
        struct str arg = str_from(argv[i]);

        if (str_is(arg, "--help") || str_is(arg, "-h"))
            return CONF_HELP;
        if (str_is(arg, "--version"))
            return CONF_VERSION;
    }
    r = set_initial(spec, into, e);
    if (r == 0)
        r = set_from_env(spec, into, env, e);
    for (int i = 1; r == 0 && i < argc;)
        r = set_from_arg(spec, into, argc, argv, &i, e);
    return r;
}

void conf_done(const struct conf_spec *spec, void *from)
{
    for (size_t i = 0; i < spec->n_fields; i++) {
        if (spec->fields[i].type == CONF_STR || spec->fields[i].type == CONF_LIST) {
            char **at = field_at(&spec->fields[i], from);

            free(*at);
            *at = NULL;
        }
    }
}

static void print_option(const struct conf_field *f, FILE *out)
{
    static const char *const values[] = {
        [CONF_STR] = " TEXT",  [CONF_BOOL] = "",          [CONF_U64] = " N",
        [CONF_F64] = " X",     [CONF_DURATION] = " TIME", [CONF_ENUM] = " WORD",
        [CONF_SET] = " WORDS", [CONF_LIST] = " TEXT",
    };

    if (f->flag)
        fprintf(out, "  --%s%s\n", f->flag, values[f->type]);
    else
        fprintf(out, "  %s%s\n", f->env, values[f->type]);
    fprintf(out, "      %s", f->help);
    if (f->words) {
        for (int i = 0; f->words[i]; i++)
            fprintf(out, "%s%s", i ? ", " : ": ", f->words[i]);
    }
    if (f->initial)
        fprintf(out, " (default %s)", f->initial);
    if (f->env && (f->flag || f->env_alias))
        fprintf(out, " [%s%s%s]", f->env, f->env_alias ? ", " : "",
                f->env_alias ? f->env_alias : "");
    fputc('\n', out);
}

void conf_print_help(const struct conf_spec *spec, FILE *out)
{
    fprintf(out,
            "Usage: %s [OPTION]...\n\n%s\n\nOptions (in brackets: the environment variable):\n",
            spec->program, spec->summary);
    for (size_t i = 0; i < spec->n_fields; i++)
        if (spec->fields[i].help)
            print_option(&spec->fields[i], out);
    fprintf(out, "  --help\n      this text\n  --version\n      the version\n");
}

static bool names_field(const struct conf_field *f, struct str name)
{
    return names_flag(f, name) || (f->env && str_is(name, f->env)) ||
           (f->env_alias && str_is(name, f->env_alias));
}

int conf_set(const struct conf_spec *spec, void *into, struct str name, struct str text,
             struct err *e)
{
    for (size_t i = 0; i < spec->n_fields; i++) {
        const struct conf_field *f = &spec->fields[i];

        if (names_field(f, name)) {
            AUTO(mem_free) char *shown = str_dup(name);

            return set_field(f, into, &(struct origin){"", shown}, text, e);
        }
    }
    return err_set(e, -ENOENT, "no option is named '%.*s'", STR_ARG(name));
}
