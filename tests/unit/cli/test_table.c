/* Tables: their exact text, spaces included. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "cli/client/table.h"

static void assert_prints(fv_table *t, const char *expected) {
    char text[4096] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    cr_assert_eq(fv_table_print(f, t), FV_OK);
    fclose(f);
    cr_assert_str_eq(text, expected);
    fv_table_fini(t);
}

Test(table, columns_are_as_wide_as_their_widest_cell) {
    fv_table t;
    fv_table_init(&t, 3);
    fv_table_cell(&t, "name");
    fv_table_cell(&t, "n");
    fv_table_cell(&t, "ms");
    fv_table_cell(&t, "%s", "a long one");
    fv_table_cell(&t, "%d", 12345);
    fv_table_number(&t, 1.25, 1);
    assert_prints(&t, "name            n   ms\n"
                      "a long one  12345  1.2\n");
}

Test(table, a_missing_number_is_a_dash_and_a_token_may_be_short) {
    fv_table t;
    fv_table_init(&t, 2);
    fv_table_cell(&t, "a");
    fv_table_number(&t, (double)NAN, 3);
    fv_table_cell(&t, "b");
    assert_prints(&t, "a  -\nb\n");
}

Test(table, an_empty_one_prints_nothing) {
    fv_table t;
    fv_table_init(&t, 2);
    assert_prints(&t, "");
}

Test(table, a_cell_that_is_too_long_is_cut) {
    char expected[600];
    fv_table t;
    fv_table_init(&t, 1);
    fv_table_cell(&t, "%0600d", 7);
    memset(expected, '0', 511);
    strcpy(expected + 511, "\n");
    assert_prints(&t, expected);
}

Test(table, many_cells_are_kept) {
    char text[1 << 16] = "";
    fv_table t;
    fv_table_init(&t, 4);
    for (int i = 0; i < 4000; i++) fv_table_cell(&t, "%d", i % 10);
    FILE *f = fmemopen(text, sizeof text, "w");
    cr_assert_eq(fv_table_print(f, &t), FV_OK);
    fclose(f);
    size_t lines = 0;
    for (const char *p = text; (p = strchr(p, '\n')); p++) lines++;
    cr_assert_eq(lines, 1000);
    fv_table_fini(&t);
}
