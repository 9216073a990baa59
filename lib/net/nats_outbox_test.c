/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/nats_outbox.h"
#include "lib/base/test.h"

static void what_comes_in_goes_out_in_order(void **state)
{
    const struct nats_header headers[] = {{"h", "v"}, {"i", ""}};
    const struct nats_outgoing plain = {.subject = "a", .payload = STR("one")};
    const struct nats_outgoing full = {
        .subject = "b", .reply = "r", .headers = headers, .n_headers = 2, .payload = STR("two")};
    struct nats_outbox o;
    struct nats_parcel *p;

    (void)state;
    nats_outbox_init(&o);
    assert_true(nats_outbox_put(&o, &plain) && nats_outbox_put(&o, &full));
    p = nats_outbox_take(&o);
    assert_string_equal(p->out.subject, "a");
    assert_null(p->out.reply);
    assert_int_equal(p->out.n_headers, 0);
    assert_true(str_is(p->out.payload, "one"));
    free(p);
    p = nats_outbox_take(&o);
    assert_string_equal(p->out.reply, "r");
    assert_int_equal(p->out.n_headers, 2);
    assert_string_equal(p->out.headers[0].name, "h");
    assert_string_equal(p->out.headers[0].value, "v");
    assert_string_equal(p->out.headers[1].name, "i");
    assert_string_equal(p->out.headers[1].value, "");
    assert_true(str_is(p->out.payload, "two"));
    free(p);
    assert_null(nats_outbox_take(&o));
    assert_int_equal(o.n + o.bytes, 0);
}

static void it_is_bounded_by_number_and_size(void **state)
{
    AUTO(mem_free) char *bytes = xcalloc(1, NATS_OUTBOX_BYTES / 4);
    const struct nats_outgoing large = {.subject = "s",
                                        .payload = str_slice(bytes, NATS_OUTBOX_BYTES / 4)};
    const struct nats_outgoing small = {.subject = "s"};
    struct nats_outbox o;

    (void)state;
    nats_outbox_init(&o);
    for (int i = 0; i < 3; i++)
        assert_true(nats_outbox_put(&o, &large));
    assert_false(nats_outbox_put(&o, &large)); /* its subject is too much */
    for (size_t i = 3; i < NATS_OUTBOX_MESSAGES; i++)
        assert_true(nats_outbox_put(&o, &small));
    assert_false(nats_outbox_put(&o, &small));
    assert_int_equal(nats_outbox_clear(&o), NATS_OUTBOX_MESSAGES);
    assert_int_equal(o.n + o.bytes, 0);
}

int main(void)
{
    return TEST_RUN(T(what_comes_in_goes_out_in_order), T(it_is_bounded_by_number_and_size));
}
