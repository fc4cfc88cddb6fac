/* fv_grow(). */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>

#include "common/grow.h"

Test(grow, keeps_what_was_appended) {
    int32_t *v = NULL;
    size_t cap = 0, moved = 0;
    for (int32_t n = 0; n < 1000; n++) {
        size_t before = cap;
        cr_assert_eq(fv_grow(&v, &cap, (size_t)n + 1, sizeof *v), FV_OK);
        cr_assert_gt(cap, (size_t)n);
        moved += cap != before;
        v[n] = n;
    }
    for (int32_t n = 0; n < 1000; n++) cr_assert_eq(v[n], n);
    cr_assert_leq(moved, 10);
    free(v);
}

Test(grow, makes_room_for_many_at_once) {
    char *v = NULL;
    size_t cap = 0;
    cr_assert_eq(fv_grow(&v, &cap, 5000, 1), FV_OK);
    cr_assert_eq(cap, 5000);
    free(v);
}

Test(grow, refuses_what_no_memory_holds_and_changes_nothing) {
    int64_t *v = NULL;
    size_t cap = 0;
    cr_assert_eq(fv_grow(&v, &cap, 3, sizeof *v), FV_OK);
    int64_t *was = v;
    size_t had = cap;
    cr_assert_eq(fv_grow(&v, &cap, SIZE_MAX / 8, sizeof *v), FV_ENOMEM);
    cr_assert_eq(fv_grow(&v, &cap, SIZE_MAX, sizeof *v), FV_ENOMEM);
    cr_assert_eq(v, was);
    cr_assert_eq(cap, had);
    free(v);
}
