#include <criterion/criterion.h>

#include "tests/support/one_place.h"

Test(one_place, list_keeps_its_nodes) {
    one_list l;
    one_node a = {.base = NULL}, b = {.base = &a};
    one_list_open(&l);
    one_list_append(&l, &a);
    one_list_touch(&l, &a);
    cr_assert_eq(l.ends.next, &a, "the list lost its only node");
    one_list_append(&l, &b);
    one_list_touch(&l, &b);
    cr_assert_eq(l.ends.next, &b);
    cr_assert_eq(b.next, &a);
    cr_assert_eq(a.next, &l.ends);
    cr_assert_eq(l.ends.prev, &a);
}
