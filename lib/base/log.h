/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structured log lines on stderr: constant message, typed fields.
 *
 * Two forms, as Dynamo has them. Text (default):
 *     2026-02-17T12:52:42.123456Z  INFO dynamo_llm::kv_router::scheduler: Selected worker: … key=value
 * and, with DYN_LOGGING_JSONL=true, one JSON object a line:
 *     {"time":"…","level":"INFO","target":"…","message":"…","key":value}
 * A filter in the form of DYN_LOG ("info,dynamo_llm::kv_router=debug,off") decides by level and by
 * the longest matching target prefix. Changing the filter at run time is allowed.
 *
 * Thread safe: one write(2) per line, or for several that belong together. Prompts, token text and secrets never go into a line.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

struct err;

enum log_level { LOG_TRACE, LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_OFF };

/* Of LOG_TYPE_NONE a field is left out. */
enum log_type {
    LOG_TYPE_NONE,
    LOG_TYPE_STR,
    LOG_TYPE_I64,
    LOG_TYPE_U64,
    LOG_TYPE_F64,
    LOG_TYPE_BOOL
};

struct log_field {
    const char *key;
    enum log_type type;
    union {
        struct str s;
        int64_t i;
        uint64_t u;
        double f;
        bool b;
    };
};

/* A static const per module: struct log_target LG = {"dynamo_llm::kv_router::scheduler"}; */
struct log_target {
    const char *name;
};

/* Reads DYN_LOG, DYN_LOGGING_JSONL (main() passes getenv's answers; NULL = unset). -EINVAL: bad filter. */
MUST_CHECK int log_setup(const char *filter, bool jsonl, struct err *e);
/* Redirects lines, for tests; NULL restores stderr. */
void log_set_sink(void (*sink)(struct str line, void *arg), void *arg);
bool log_enabled(const struct log_target *t, enum log_level level);
/* @message is copied as is; use log_emitf for the few whose text is part of the contract. */
void log_emit(const struct log_target *t, enum log_level level, const char *message,
              const struct log_field *fields, size_t n_fields);
void log_emitf(const struct log_target *t, enum log_level level, const struct log_field *fields,
               size_t n_fields, const char *format, ...) PRINTF_LIKE(5, 6);
/* The lines of this thread between the two leave together, some 4 KB at a time. Not nested. */
void log_hold(void);
void log_release(void);

#define LOG_STR(k, v) ((struct log_field){.key = (k), .type = LOG_TYPE_STR, .s = str_from(v)})
#define LOG_VIEW(k, v) ((struct log_field){.key = (k), .type = LOG_TYPE_STR, .s = (v)})
#define LOG_I64(k, v) ((struct log_field){.key = (k), .type = LOG_TYPE_I64, .i = (v)})
#define LOG_U64(k, v) ((struct log_field){.key = (k), .type = LOG_TYPE_U64, .u = (v)})
#define LOG_F64(k, v) ((struct log_field){.key = (k), .type = LOG_TYPE_F64, .f = (v)})
#define LOG_NONE ((struct log_field){.key = NULL})
#define LOG_BOOL(k, v) ((struct log_field){.key = (k), .type = LOG_TYPE_BOOL, .b = (v)})

/* log_info(&LG, "worker lost", LOG_U64("worker_id", id), LOG_STR("why", e.text)); fields optional */
#define log_at_(level, target, message, ...)                                                       \
    do {                                                                                           \
        if (log_enabled((target), (level))) {                                                      \
            const struct log_field log_fields_[] = {{.key = NULL}, ##__VA_ARGS__};                 \
            log_emit((target), (level), (message), log_fields_ + 1, ARRAY_LEN(log_fields_) - 1);   \
        }                                                                                          \
    } while (0)
#define log_debug(target, message, ...) log_at_(LOG_DEBUG, target, message, ##__VA_ARGS__)
#define log_info(target, message, ...) log_at_(LOG_INFO, target, message, ##__VA_ARGS__)
#define log_warn(target, message, ...) log_at_(LOG_WARN, target, message, ##__VA_ARGS__)
#define log_error(target, message, ...) log_at_(LOG_ERROR, target, message, ##__VA_ARGS__)
