/* SPDX-License-Identifier: Apache-2.0 */
/* The expected bytes were written by the protocol's own library (PyPI opentelemetry-proto); end to end it reads ours. */
#include "router/wire/span.h"
#include "lib/base/test.h"

#define TEN(x) x x x x x x x x x x

static const char GOLDEN[] =
    "0abd030a1a0a180a0c736572766963652e6e616d6512080a0664796e616d6f129e030a080a0664796e616d6f"
    "12d3020a100af7651916cd43dd8448eb211c80319c120800f067aa0ba902b71a03613d312208b7ad6b716920"
    "33312a0c687474702d7265717565737430033964002a36fe9c9717412c012a36fe9c97174ad3010a03757269"
    "12cb010ac8012f76312f636861742f636f6d706c6574696f6e732f76312f636861742f636f6d706c6574696f"
    "6e732f76312f636861742f636f6d706c6574696f6e732f76312f636861742f636f6d706c6574696f6e732f76"
    "312f636861742f636f6d706c6574696f6e732f76312f636861742f636f6d706c6574696f6e732f76312f6368"
    "61742f636f6d706c6574696f6e732f76312f636861742f636f6d706c6574696f6e732f76312f636861742f63"
    "6f6d706c6574696f6e732f76312f636861742f636f6d706c6574696f6e734a0b0a057265747279120210014a"
    "090a036e6f74120210007a10120c646973636f6e6e65637465641802850101030000123c0a10000000000000"
    "00000000000000000001120800000000000000022a046261726530013901002a36fe9c97174102002a36fe9c"
    "9717850101010000";

static void expect_hex(const struct buf *out, const char *want)
{
    AUTO(buf_done) struct buf hex = BUF_NULL;

    for (size_t i = 0; i < out->len; i++)
        buf_printf(&hex, "%02x", (uint8_t)buf_data(out)[i]);
    assert_string_equal(buf_cstr(&hex), want);
}

static void a_request_is_what_the_library_writes(void **state)
{
    const struct span_attribute attributes[] = {{"uri", STR(TEN("/v1/chat/completions")), false},
                                                {"retry", STR_NULL, true},
                                                {"not", STR_NULL, false}};
    const struct span whole = {.name = "http-request",
                               .kind = SPAN_CLIENT,
                               .trace_id = "0af7651916cd43dd8448eb211c80319c",
                               .span_id = "00f067aa0ba902b7",
                               .parent_id = "b7ad6b7169203331",
                               .parent_is_remote = true,
                               .state = STR("a=1"),
                               .start_ns = 100,
                               .end_ns = 300,
                               .attributes = attributes,
                               .n_attributes = ARRAY_LEN(attributes),
                               .error = "disconnected"};
    const struct span bare = {.name = "bare",
                              .kind = SPAN_INTERNAL,
                              .trace_id = "00000000000000000000000000000001",
                              .span_id = "0000000000000002",
                              .parent_id = "",
                              .start_ns = 1,
                              .end_ns = 2};
    AUTO(buf_done) struct buf spans = BUF_NULL, out = BUF_NULL;

    (void)state;
    span_put(&spans, &whole, UINT64_C(1700000000000000000));
    span_put(&spans, &bare, UINT64_C(1700000000000000000));
    span_put_request(&out, STR("dynamo"), buf_str(&spans));
    expect_hex(&out, GOLDEN);
}

/* Clients choose the path and their id: a collector must not refuse a batch for them. */
static void values_are_text_and_bounded(void **state)
{
    AUTO(mem_free) char *many = xcalloc(1, SPAN_TEXT_MAX + 10);
    const struct {
        struct str text;
        size_t kept;
    } cases[] = {{STR("fine"), 4},
                 {STR("a\xff"
                      "b"),
                  1},
                 {str_slice(many, SPAN_TEXT_MAX + 10), SPAN_TEXT_MAX},
                 {STR("\xc3\xa9"), 2}};

    (void)state;
    memset(many, 'x', SPAN_TEXT_MAX + 10);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct span_attribute a = {"k", cases[i].text, false};
        const struct span s = {.name = "n",
                               .kind = SPAN_INTERNAL,
                               .trace_id = "",
                               .span_id = "",
                               .parent_id = "",
                               .attributes = &a,
                               .n_attributes = 1};
        struct span with_none = s;
        const struct span_attribute none = {"k", STR(""), false};
        AUTO(buf_done) struct buf out = BUF_NULL, empty = BUF_NULL;

        with_none.attributes = &none;
        span_put(&out, &s, 0);
        span_put(&empty, &with_none, 0);
        /* Lengths of three messages and of the text may take a byte more each. */
        assert_in_range(out.len, empty.len + cases[i].kept, empty.len + cases[i].kept + 4);
    }
}

int main(void)
{
    return TEST_RUN(T(a_request_is_what_the_library_writes), T(values_are_text_and_bounded));
}
