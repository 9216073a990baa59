/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/policy_keys.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/err.h"

enum { NAME_MAX_BYTES = 63 };

struct policy_place policy_place(const char *format, ...)
{
    struct policy_place p;
    va_list ap;

    va_start(ap, format);
    (void)vsnprintf(p.text, sizeof(p.text), format, ap);
    va_end(ap);
    return p;
}

int policy_check_keys(const struct json *object, const char *const *known, const char *where,
                      struct err *e)
{
    if (!json_is_object(object))
        return err_set(e, -EINVAL, "%s: expected a mapping", where);
    JSON_FOREACH (member, object) {
        size_t i = 0;

        while (known[i] && strcmp(known[i], json_key(member)) != 0)
            i++;
        if (!known[i])
            return err_set(e, -EINVAL, "%s: unknown key '%s'", where, json_key(member));
    }
    return 0;
}

static bool is_name(const char *s)
{
    size_t n = s ? strlen(s) : 0;

    for (size_t i = 0; i < n; i++)
        if (!(s[i] >= 'a' && s[i] <= 'z') && !(s[i] >= 'A' && s[i] <= 'Z') &&
            !(s[i] >= '0' && s[i] <= '9') && s[i] != '_' && s[i] != '-')
            return false;
    return n >= 1 && n <= NAME_MAX_BYTES;
}

int policy_read_name(const struct json *object, const char *key, bool needed, const char *where,
                     char **ret, struct err *e)
{
    const struct json *v = json_get(object, key);

    if (!v && !needed)
        return 0;
    if (!is_name(json_cstr(v)))
        return err_set(e, -EINVAL,
                       "%s.%s: expected a name of up to %d letters, digits, '_' and '-'", where,
                       key, NAME_MAX_BYTES);
    *ret = xstrdup(json_cstr(v));
    return 0;
}

int policy_read_count(const struct json *object, const char *key, int64_t min, const char *where,
                      uint64_t *ret, struct err *e)
{
    const struct json *v = json_get(object, key);
    int64_t n;

    if (!v)
        return 0;
    if (!json_i64(v, &n) || n < min)
        return err_set(e, -EINVAL, "%s.%s: expected a whole number from %lld on", where, key,
                       (long long)min);
    *ret = (uint64_t)n;
    return 0;
}

int policy_read_number(const struct json *object, const char *key, const char *where, double *ret,
                       struct err *e)
{
    const struct json *v = json_get(object, key);
    double n;

    if (!v)
        return 0;
    if (!json_f64(v, &n) || !(n >= 0))
        return err_set(e, -EINVAL, "%s.%s: expected a number from 0 on", where, key);
    *ret = n;
    return 0;
}
