/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/client_ids.h"

#include "lib/base/test.h"

static void expect(const struct client_ids *c, const char *client, const char *id)
{
    assert_true(str_is(client_ids_find(c, str_from(client)), id));
}

static void the_newest_request_of_a_name_is_found(void **state)
{
    AUTO(client_ids_free) struct client_ids *c = client_ids_new(3);

    (void)state;
    expect(c, "a", "");
    client_ids_add(c, STR("a"), STR("1"));
    client_ids_add(c, STR("b"), STR("2"));
    expect(c, "a", "1");
    expect(c, "b", "2");
    client_ids_add(c, STR("a"), STR("3"));
    expect(c, "a", "3");
    expect(c, "", "");
}

static void only_the_last_are_kept(void **state)
{
    AUTO(client_ids_free) struct client_ids *c = client_ids_new(2);

    (void)state;
    client_ids_add(c, STR("a"), STR("1"));
    client_ids_add(c, STR("b"), STR("2"));
    client_ids_add(c, STR("c"), STR("3"));
    expect(c, "a", "");
    expect(c, "b", "2");
    expect(c, "c", "3");
}

static void long_names_are_not(void **state)
{
    AUTO(client_ids_free) struct client_ids *c = client_ids_new(2);
    char name[CLIENT_ID_MAX + 1];

    (void)state;
    memset(name, 'a', sizeof(name));
    client_ids_add(c, str_slice(name, CLIENT_ID_MAX), STR("1"));
    client_ids_add(c, str_slice(name, CLIENT_ID_MAX + 1), STR("2"));
    assert_true(str_is(client_ids_find(c, str_slice(name, CLIENT_ID_MAX)), "1"));
    assert_int_equal(client_ids_find(c, str_slice(name, CLIENT_ID_MAX + 1)).len, 0);
}

int main(void)
{
    return TEST_RUN(T(the_newest_request_of_a_name_is_found), T(only_the_last_are_kept),
                    T(long_names_are_not));
}
