/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the values of a request's keys. Each reader returns false when the value is wrong, with the
 * error filled, or when the text is no JSON, which is reported at the end.
 */
#pragma once

#include "lib/base/json_pull.h"
#include "router/openai/openai.h"

struct openai_reader {
    struct json_pull p;
    struct arena *arena;
    struct openai_request *r;
    struct api_error *e;
    struct buf unknown;                   /* names of keys outside the table */
    bool has_stop_ids, has_salt_of_nvext; /* which go before stop_token_ids and cache_salt */
    uint64_t seen;                        /* a bit for each row of the table that was read */
};

enum { OPENAI_ROWS_MAX = 64, OPENAI_NAMES_MAX = 32 };

/* Of the members of an object that were read; what is beyond them may come twice. */
struct openai_names {
    struct str names[OPENAI_NAMES_MAX];
    size_t n;
};

/* json_pull_key(), with the escapes decoded. A name that @seen has is an error of the scanner; NULL: any may
 * come twice. */
bool openai_next_key(struct openai_reader *rd, struct openai_names *seen, struct str *ret);
/* Over several keys, when all are read: false with @e filled. */
bool openai_check(const struct openai_request *r, struct api_error *e);
/* And then: what they mean together. False with @e filled. */
bool openai_settle(struct openai_request *r, struct arena *a, struct api_error *e);
bool openai_wrong_type(struct openai_reader *rd, const char *key, const char *want);
bool openai_out_of_range(struct openai_reader *rd, const char *key, const char *range);
/* Whether a value of that kind comes next. Text that is no JSON at all is reported at the end. */
bool openai_expect(struct openai_reader *rd, const char *key, enum json_kind kind,
                   const char *want);
bool openai_read_string(struct openai_reader *rd, const char *key, struct str *ret);
bool openai_read_bool(struct openai_reader *rd, const char *key, bool *ret);
bool openai_read_u64(struct openai_reader *rd, const char *key, uint64_t max, struct opt_u64 *ret);
bool openai_read_i64(struct openai_reader *rd, const char *key, struct opt_i64 *ret);
bool openai_read_f64(struct openai_reader *rd, const char *key, double min, double max,
                     struct opt_f64 *ret);
bool openai_read_tree(struct openai_reader *rd, const char *key, enum json_kind kind,
                      struct json **ret);
/* Of the row @i of the table: false when the body has the key twice. What would count then, and what
 * a worker that gets the body as it is would take of it, nobody can say. */
bool openai_read_once(struct openai_reader *rd, size_t i, const char *key);
/* A string or an array of at most @max strings. */
bool openai_read_strings(struct openai_reader *rd, const char *key, size_t max, struct str **ret,
                         size_t *ret_n);
/* The elements of the array that was just entered. */
bool openai_read_ids(struct openai_reader *rd, const char *key, uint32_t **ret_ids, size_t *ret_n);
bool openai_read_nvext(struct openai_reader *rd, const char *key);
/* What came before tools: never taken, and told apart from what is malformed. */
bool openai_refuse_functions(struct openai_reader *rd, const char *key);
bool openai_refuse_function_call(struct openai_reader *rd, const char *key);
