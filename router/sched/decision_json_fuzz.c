/* SPDX-License-Identifier: Apache-2.0 */
/* What is read is safe to replay and to print, and prints to what reads back the same. */
#include "router/sched/decision_json.h"

#include <stdlib.h>

#include "lib/base/err.h"
#include "router/sched/decision_replay.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct decision_record rec, back;
    AUTO(buf_done) struct buf first = BUF_NULL, second = BUF_NULL;
    struct decision_replay replay;
    struct err e;

    if (decision_record_parse(str_slice(data, size), &rec, &e) < 0)
        return 0;
    if (rec.result == 0)
        (void)decision_verify(&rec, &replay);
    decision_record_put_text(&second, &rec);
    buf_clear(&second);
    decision_record_put_json(&first, &rec);
    if (decision_record_parse(buf_str(&first), &back, &e) < 0)
        abort();
    decision_record_put_json(&second, &back);
    if (!str_eq(buf_str(&first), buf_str(&second)))
        abort();
    return 0;
}
