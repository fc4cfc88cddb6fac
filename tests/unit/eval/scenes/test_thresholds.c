/* VisiPruner thresholds from measurements: the layers that they give, and which are chosen. */
#include <criterion/criterion.h>
#include <string.h>

#include "eval/scenes/thresholds.h"

enum { ITEMS = 2, LAYERS = 5 };
#define NO FV_NOT_MEASURED

/* Layers 1..3 are examined. */
static const float least[ITEMS * LAYERS] = {NO, 0.9f, 0.8f, 0.7f, NO, NO, 0.95f, 0.6f, 0.97f, NO};

Test(thresholds, the_filter_is_after_the_first_layer_with_a_cosine_below) {
    cr_assert_eq(fv_filter_layer(least, LAYERS, 0.95), 1);
    cr_assert_eq(fv_filter_layer(least, LAYERS, 0.85), 2);
    cr_assert_eq(fv_filter_layer(least, LAYERS, 0.75), 3);
    cr_assert_eq(fv_filter_layer(least, LAYERS, 0.5), LAYERS, "never");
}

Test(thresholds, the_exit_is_after_the_layer_that_counts_for_the_last_time) {
    cr_assert_eq(fv_exit_layer(least + LAYERS, LAYERS, 2, 0.9), 3, "layers 1 and 3");
    cr_assert_eq(fv_exit_layer(least + LAYERS, LAYERS, 1, 0.9), 1);
    cr_assert_eq(fv_exit_layer(least + LAYERS, LAYERS, 2, 0.5), 2);
    cr_assert_eq(fv_exit_layer(least, LAYERS, 2, 0.85), LAYERS, "never");
}

Test(thresholds, the_mean_layer_comes_as_near_as_it_can) {
    double cos, mean;
    for (double layer = 1; layer <= LAYERS; layer += 0.25) {
        double nearest = 100;
        for (double c = -1; c < 1; c += 0.001) {
            double m =
                (fv_filter_layer(least, LAYERS, c) + fv_filter_layer(least + LAYERS, LAYERS, c)) /
                2.0;
            if (m - layer < nearest && layer - m < nearest)
                nearest = m > layer ? m - layer : layer - m;
        }
        cr_assert_eq(fv_filter_cos(least, ITEMS, LAYERS, layer, &cos, &mean), FV_OK);
        double off = mean > layer ? mean - layer : layer - mean;
        cr_assert_float_eq(off, nearest, 1e-9, "layer %g: %g", layer, mean);
        cr_assert_eq(mean, (fv_filter_layer(least, LAYERS, cos) +
                            fv_filter_layer(least + LAYERS, LAYERS, cos)) /
                               2.0);
    }
    cr_assert_eq(fv_exit_cos(least, ITEMS, LAYERS, 2, 3, &cos, &mean), FV_OK);
    cr_assert_eq(mean, 2.5, "%g", mean);
    cr_assert(cos > 0.6 && cos <= 0.8, "%g: item 0 counts layers 1 and 2, item 1 layers 1 and 3",
              cos);
}

Test(thresholds, as_many_rows_stay_as_are_asked_for_and_one_at_least) {
    float l2[10], equal[4] = {1, 1, 1, 1};
    double t;
    for (int k = 0; k <= 10; k++) {
        for (int i = 0; i < 10; i++) l2[i] = (float)((i * 7) % 10) + 1;
        cr_assert_eq(fv_kept_l2(l2, 10, k / 10.0, &t), FV_OK);
        int kept = 0;
        for (int i = 0; i < 10; i++) kept += (double)l2[i] > t;
        cr_assert_eq(kept, k ? k : 1, "%d: above %g", k, t);
    }
    cr_assert_eq(fv_kept_l2(equal, 4, 0.5, &t), FV_OK, "whatever that leaves");
}

Test(thresholds, nothing_measured_lets_nothing_leave) {
    static const float none[ITEMS * LAYERS] = {NO, NO, NO, NO, NO, NO, NO, NO, NO, NO};
    double cos, mean;
    cr_assert_eq(fv_filter_cos(none, ITEMS, LAYERS, 2, &cos, &mean), FV_OK);
    cr_assert(cos == 1 && mean == LAYERS, "%g at %g", mean, cos);
    cr_assert_eq(fv_exit_cos(none, ITEMS, LAYERS, 2, 2, &cos, &mean), FV_OK);
    cr_assert(cos == 1 && mean == LAYERS, "%g at %g", mean, cos);
    cr_assert_eq(fv_kept_l2(NULL, 0, 0.5, &cos), FV_EDATA);
}
