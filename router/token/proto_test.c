/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/proto.h"

#include "lib/base/test.h"

static void test_fields(void **state)
{
    struct proto p = {
        .rest = STR("\x08\x96\x01\x12\x02hi\x1d\x00\x00\x80\x3f\x21\x01\0\0\0\0\0\0\x80\x28\x00")};
    struct proto_field f;
    struct str text = STR_NULL;
    uint64_t n = 0;
    float score = 0;
    bool on = true;

    (void)state;
    assert_true(proto_next(&p, &f) && f.number == 1 && proto_u64(&f, &n));
    assert_int_equal(n, 150);
    assert_false(proto_bytes(&f, &text) || proto_float(&f, &score));
    assert_true(proto_next(&p, &f) && f.number == 2 && proto_bytes(&f, &text));
    assert_true(str_is(text, "hi"));
    assert_false(proto_u64(&f, &n) || proto_bool(&f, &on));
    assert_true(proto_next(&p, &f) && f.number == 3 && proto_float(&f, &score));
    assert_true(score == 1.0F);
    assert_true(proto_next(&p, &f) && f.number == 4 && f.wire == PROTO_FIXED64);
    assert_true(f.value == UINT64_C(0x8000000000000001));
    assert_true(proto_next(&p, &f) && f.number == 5 && proto_bool(&f, &on) && !on);
    assert_false(proto_next(&p, &f) || p.malformed);
}

static void test_what_is_malformed(void **state)
{
    static const struct str messages[] = {
        STR("\x08"),                                             /* no number */
        STR("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), /* one that never ends */
        STR("\x12\x03hi"),                                       /* less than it says */
        STR("\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7fhi"),
        STR("\x1d\x00\x00\x80"),
        STR("\x21\x00\x00\x80"),
        STR("\x0b\x0c"),                 /* a group */
        STR("\x00\x01"),                 /* field 0 */
        STR("\x80\x80\x80\x80\x10\x01"), /* field 2^29 */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(messages); i++) {
        struct proto p = {.rest = messages[i]};
        struct proto_field f;

        assert_false(proto_next(&p, &f));
        assert_true(p.malformed);
        assert_false(proto_next(&p, &f));
    }
}

int main(void)
{
    return TEST_RUN(T(test_fields), T(test_what_is_malformed));
}
