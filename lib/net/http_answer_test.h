/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a call of an http_client brought, for tests: `.data = http_answer_data, .done =
 * http_answer_done, .arg = &answer`. Zeroed at first; the body is the test's to free.
 */
#pragma once

#include "lib/base/buf.h"
#include "lib/net/http_client.h"

struct http_answer {
    int dones; /* more than one is a mistake */
    int status, error;
    struct buf body;
};

static inline void http_answer_data(void *arg, struct str bytes)
{
    buf_put_str(&((struct http_answer *)arg)->body, bytes);
}

static inline void http_answer_done(void *arg, int status, int error, const char *why)
{
    struct http_answer *a = arg;

    (void)why;
    a->dones++;
    a->status = status;
    a->error = error;
}
