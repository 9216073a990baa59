/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/ctrl/stamp.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static struct tm broken_down(uint64_t ms)
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;

    (void)gmtime_r(&seconds, &tm);
    return tm;
}

void stamp_format(uint64_t ms, char ret_text[STAMP_SIZE])
{
    struct tm tm = broken_down(ms);

    (void)strftime(ret_text, STAMP_SIZE, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

void stamp_format_micro(uint64_t ms, char ret_text[STAMP_SIZE])
{
    struct tm tm = broken_down(ms);
    size_t n = strftime(ret_text, STAMP_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);

    (void)snprintf(ret_text + n, STAMP_SIZE - n, ".%03u000Z", (unsigned)(ms % 1000));
}

bool stamp_parse(struct str text, uint64_t *ret_ms)
{
    char copy[STAMP_SIZE];
    struct tm tm = {0};
    struct str fraction;
    const char *rest;
    uint64_t ms = 0, scale = 100;
    time_t seconds;

    if (text.len == 0 || text.len >= sizeof(copy))
        return false;
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    rest = strptime(copy, "%Y-%m-%dT%H:%M:%S", &tm);
    if (!rest)
        return false;
    fraction = str_from(rest);
    if (fraction.len == 0 || fraction.ptr[fraction.len - 1] != 'Z')
        return false;
    fraction.len--;
    if (fraction.len && fraction.ptr[0] != '.')
        return false;
    for (size_t i = 1; i < fraction.len; i++, scale /= 10) {
        if (fraction.ptr[i] < '0' || fraction.ptr[i] > '9')
            return false;
        ms += (uint64_t)(fraction.ptr[i] - '0') * scale;
    }
    seconds = timegm(&tm);
    if (seconds < 0)
        return false;
    *ret_ms = (uint64_t)seconds * 1000 + ms;
    return true;
}
