/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/list.h"
#include "lib/base/ref.h"
#include "lib/base/test.h"

struct item {
    int value;
    struct list link;
};

static int sum(struct list *head)
{
    int total = 0;

    LIST_FOREACH (it, head, struct item, link)
        total = total * 10 + it->value;
    return total;
}

static void order_and_removal(void **state)
{
    struct item a = {.value = 1}, b = {.value = 2}, c = {.value = 3};
    struct list head;

    (void)state;
    list_init(&head);
    assert_true(list_empty(&head));
    list_append(&head, &b.link);
    list_append(&head, &c.link);
    list_prepend(&head, &a.link);
    assert_int_equal(sum(&head), 123);
    list_remove(&b.link);
    list_remove(&b.link); /* harmless twice */
    assert_false(list_linked(&b.link));
    assert_int_equal(sum(&head), 13);
}

static void the_current_element_may_go_while_walking(void **state)
{
    struct item items[5];
    struct list head;

    (void)state;
    list_init(&head);
    for (int i = 0; i < 5; i++) {
        items[i] = (struct item){.value = i + 1};
        list_append(&head, &items[i].link);
    }
    LIST_FOREACH (it, &head, struct item, link)
        if (it->value % 2)
            list_remove(&it->link);
    assert_int_equal(sum(&head), 24);
}

static void all_of_one_go_to_the_end_of_another(void **state)
{
    struct item items[4];
    struct list to, from;

    (void)state;
    list_init(&to);
    list_init(&from);
    list_move_all(&to, &from);
    assert_true(list_empty(&to));
    for (int i = 0; i < 4; i++) {
        items[i] = (struct item){.value = i + 1};
        list_append(i < 2 ? &to : &from, &items[i].link);
    }
    list_move_all(&to, &from);
    assert_true(list_empty(&from));
    assert_int_equal(sum(&to), 1234);
    list_remove(&items[1].link);
    list_remove(&items[3].link);
    assert_int_equal(sum(&to), 13);
    list_move_all(&from, &to);
    assert_int_equal(sum(&from), 13);
}

static void the_last_reference_is_told(void **state)
{
    struct ref r;

    (void)state;
    ref_init(&r);
    ref_take(&r);
    assert_false(ref_drop(&r));
    assert_true(ref_drop(&r));
}

int main(void)
{
    return TEST_RUN(T(order_and_removal), T(the_current_element_may_go_while_walking),
                    T(all_of_one_go_to_the_end_of_another), T(the_last_reference_is_told));
}
