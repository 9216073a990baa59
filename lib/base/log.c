/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The filter is an immutable snapshot behind an atomic pointer, so that log_enabled() on the hot
 * path is a load and a few comparisons. Replaced filters are kept (a handful in a process's life).
 */
#include "lib/base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/json_put.h"

enum { RULES_MAX = 32, RULE_TARGET_MAX = 96, HELD_MAX = 4096 };

struct rule {
    char target[RULE_TARGET_MAX]; /* "" = every target */
    enum log_level level;
};

struct filter {
    struct rule rules[RULES_MAX];
    size_t n_rules;
    bool jsonl;
    struct filter *replaced; /* readers may still look at it */
};

static struct filter initial = {.rules = {{"", LOG_INFO}}, .n_rules = 1};
static _Atomic(struct filter *) current = &initial;

static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static void (*sink_fn)(struct str line, void *arg);
static void *sink_arg;

static const struct {
    const char *word, *shown;
} LEVELS[] = {
    [LOG_TRACE] = {"trace", "TRACE"}, [LOG_DEBUG] = {"debug", "DEBUG"},
    [LOG_INFO] = {"info", "INFO"},    [LOG_WARN] = {"warn", "WARN"},
    [LOG_ERROR] = {"error", "ERROR"}, [LOG_OFF] = {"off", "OFF"},
};

static bool parse_level(struct str s, enum log_level *ret)
{
    for (size_t i = 0; i < ARRAY_LEN(LEVELS); i++) {
        if (str_eq_nocase(s, str_from(LEVELS[i].word))) {
            *ret = (enum log_level)i;
            return true;
        }
    }
    return false;
}

static int parse_rule(struct filter *f, struct str text, struct err *e)
{
    struct str target, rest = text;
    struct rule *rule = &f->rules[f->n_rules];

    if (f->n_rules == RULES_MAX)
        return err_set(e, -EINVAL, "log filter: more than %d rules", RULES_MAX);
    if (parse_level(text, &rule->level)) {
        rule->target[0] = '\0';
    } else {
        bool has_level = str_cut(&rest, '=', &target);

        rule->level = LOG_TRACE; /* a bare target lets everything of it through */
        if (has_level && !parse_level(rest, &rule->level))
            return err_set(e, -EINVAL, "log filter: no level named '%.*s'", STR_ARG(rest));
        if (target.len == 0 || target.len >= RULE_TARGET_MAX)
            return err_set(e, -EINVAL, "log filter: bad target in '%.*s'", STR_ARG(text));
        memcpy(rule->target, target.ptr, target.len);
        rule->target[target.len] = '\0';
    }
    f->n_rules++;
    return 0;
}

int log_setup(const char *filter, bool jsonl, struct err *e)
{
    AUTO(mem_free) struct filter *f = xcalloc(1, sizeof(*f));
    struct str rest = str_from(filter), part;
    bool more = rest.len > 0;

    while (more) {
        more = str_cut(&rest, ',', &part);
        part = str_trim(part);
        if (part.len) {
            int r = parse_rule(f, part, e);

            if (r < 0)
                return r;
        }
    }
    if (f->n_rules == 0)
        f->rules[f->n_rules++] = (struct rule){"", LOG_INFO};
    f->jsonl = jsonl;
    f->replaced = atomic_load(&current);
    atomic_store_explicit(&current, TAKE(f), memory_order_release);
    return 0;
}

void log_set_sink(void (*sink)(struct str line, void *arg), void *arg)
{
    pthread_mutex_lock(&sink_lock);
    sink_fn = sink;
    sink_arg = arg;
    pthread_mutex_unlock(&sink_lock);
}

/* The longest matching target decides; without any match a line is dropped, as with env filters. */
bool log_enabled(const struct log_target *t, enum log_level level)
{
    const struct filter *f = atomic_load_explicit(&current, memory_order_acquire);
    enum log_level threshold = LOG_OFF;
    size_t longest = 0;

    for (size_t i = 0; i < f->n_rules; i++) {
        size_t len = strlen(f->rules[i].target);

        if (len >= longest && strncmp(t->name, f->rules[i].target, len) == 0) {
            longest = len;
            threshold = f->rules[i].level;
        }
    }
    return level >= threshold && threshold != LOG_OFF;
}

/* Kept per thread, so that a line costs no allocation; freed when the thread ends. */
struct buffers {
    struct buf line, message;
    bool holds;    /* what is in `line` waits for more */
    time_t second; /* of `date`; 0 = none */
    char date[32];
};

static _Thread_local struct buffers *buffers;
static pthread_key_t buffers_key;
static pthread_once_t buffers_once = PTHREAD_ONCE_INIT;

static void free_buffers(void *value)
{
    struct buffers *b = value;

    buf_done(&b->line);
    buf_done(&b->message);
    free(b);
    buffers = NULL;
}

static void make_buffers_key(void)
{
    (void)pthread_key_create(&buffers_key, free_buffers);
}

static struct buffers *own_buffers(void)
{
    if (!buffers) {
        buffers = xcalloc(1, sizeof(*buffers));
        (void)pthread_once(&buffers_once, make_buffers_key);
        (void)pthread_setspecific(buffers_key, buffers);
    }
    return buffers;
}

static void put_time(struct buf *out)
{
    struct buffers *b = own_buffers();
    struct timespec now;
    struct tm tm;

    clock_gettime(CLOCK_REALTIME, &now);
    if (now.tv_sec != b->second) {
        gmtime_r(&now.tv_sec, &tm);
        (void)strftime(b->date, sizeof(b->date), "%Y-%m-%dT%H:%M:%S", &tm);
        b->second = now.tv_sec;
    }
    buf_printf(out, "%s.%06ldZ", b->date, now.tv_nsec / 1000);
}

static void put_value(struct json_put *j, const struct log_field *f)
{
    switch (f->type) {
    case LOG_TYPE_NONE:
        break;
    case LOG_TYPE_STR:
        json_put_str(j, f->s);
        break;
    case LOG_TYPE_I64:
        json_put_i64(j, f->i);
        break;
    case LOG_TYPE_U64:
        json_put_u64(j, f->u);
        break;
    case LOG_TYPE_F64:
        json_put_f64(j, f->f);
        break;
    case LOG_TYPE_BOOL:
        json_put_bool(j, f->b);
        break;
    }
}

static bool is_plain_word(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] <= ' ' || s.ptr[i] == '"' || s.ptr[i] == '=' || s.ptr[i] == '\\' ||
            s.ptr[i] == 0x7f)
            return false;
    return s.len > 0;
}

/* Control bytes of foreign text must not forge lines. */
static void put_text(struct buf *out, struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];

        if (c < ' ' || c == 0x7f)
            buf_printf(out, "\\x%02x", c);
        else
            buf_put_char(out, (char)c);
    }
}

static void put_text_line(struct buf *out, const struct log_target *t, enum log_level level,
                          struct str message, const struct log_field *fields, size_t n_fields)
{
    put_time(out);
    buf_printf(out, " %5s %s: ", LEVELS[level].shown, t->name);
    put_text(out, message);
    for (size_t i = 0; i < n_fields; i++) {
        struct json_put j = json_put_on(out);

        if (fields[i].type == LOG_TYPE_NONE)
            continue;
        buf_printf(out, " %s=", fields[i].key);
        if (fields[i].type == LOG_TYPE_STR && is_plain_word(fields[i].s))
            put_text(out, fields[i].s);
        else
            put_value(&j, &fields[i]);
    }
}

static void put_json_line(struct buf *out, const struct log_target *t, enum log_level level,
                          struct str message, const struct log_field *fields, size_t n_fields)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    json_put_key(&j, "time");
    buf_put_char(out, '"');
    put_time(out);
    buf_put_char(out, '"');
    j.comma = true;
    json_put_member_cstr(&j, "level", LEVELS[level].shown);
    json_put_member_cstr(&j, "target", t->name);
    json_put_member_str(&j, "message", message);
    for (size_t i = 0; i < n_fields; i++) {
        if (fields[i].type == LOG_TYPE_NONE)
            continue;
        json_put_key(&j, fields[i].key);
        put_value(&j, &fields[i]);
    }
    json_put_object_end(&j);
}

static void write_lines(struct buf *lines)
{
    pthread_mutex_lock(&sink_lock);
    if (sink_fn) {
        sink_fn(buf_str(lines), sink_arg);
    } else {
        /* One call keeps lines whole; a full or closed stderr must not stop us. */
        ssize_t ignored = write(STDERR_FILENO, buf_data(lines), lines->len);

        (void)ignored;
    }
    pthread_mutex_unlock(&sink_lock);
    buf_clear(lines);
}

static void emit(const struct log_target *t, enum log_level level, struct str message,
                 const struct log_field *fields, size_t n_fields)
{
    struct buffers *b = own_buffers();
    struct buf *line = &b->line;
    const struct filter *f = atomic_load_explicit(&current, memory_order_acquire);

    if (f->jsonl)
        put_json_line(line, t, level, message, fields, n_fields);
    else
        put_text_line(line, t, level, message, fields, n_fields);
    buf_put_char(line, '\n');
    if (!b->holds || line->len >= HELD_MAX)
        write_lines(line);
}

void log_hold(void)
{
    own_buffers()->holds = true;
}

void log_release(void)
{
    struct buffers *b = own_buffers();

    b->holds = false;
    if (b->line.len)
        write_lines(&b->line);
}

void log_emit(const struct log_target *t, enum log_level level, const char *message,
              const struct log_field *fields, size_t n_fields)
{
    if (log_enabled(t, level))
        emit(t, level, str_from(message), fields, n_fields);
}

void log_emitf(const struct log_target *t, enum log_level level, const struct log_field *fields,
               size_t n_fields, const char *format, ...)
{
    struct buf *message;
    va_list ap;

    if (!log_enabled(t, level))
        return;
    message = &own_buffers()->message;
    buf_clear(message);
    va_start(ap, format);
    buf_vprintf(message, format, ap);
    va_end(ap);
    emit(t, level, buf_str(message), fields, n_fields);
}
