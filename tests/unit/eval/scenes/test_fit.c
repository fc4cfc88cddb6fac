/* FitPrune schedules for made-up attention, with results worked out by hand. */
#include <criterion/criterion.h>
#include <string.h>

#include "eval/scenes/fit.h"

/* Every token costs 1 in a layer, even if pruned after it, so counts are costs. */
static const fv_fit_work by_row = {.row_in = 1};

static fv_fitted fit(const fv_fit_prompt *p, int32_t n, int32_t n_layer, int32_t target) {
    fv_fitted f;
    memset(&f, 0x55, sizeof f);
    cr_assert_eq(fv_fit(p, n, n_layer, &by_row, target, &f), FV_OK, "%s", fv_last_error());
    cr_assert_eq(f.schedule.target, target);
    return f;
}

static void expect(const fv_fitted *f, const int32_t *leave, int32_t n_layer) {
    for (int32_t l = 0; l < n_layer; l++)
        cr_assert_eq(f->schedule.leave[l], leave[l], "layer %d: %d and not %d", l,
                     f->schedule.leave[l], leave[l]);
}

/* 4 tokens, 3 layers, dense cost 12. After layer 0 a budget of 0.1 may prune token 0 (1 of 10), of
 * 0.3 tokens 0 and 1, of 0.6 three. Layer 1 has the same masses, so what is pruned is all that may
 * be. 50 % is 6: one token less in two layers is 10, two tokens 8, three tokens 6. */
Test(fit, the_smallest_budget_that_meets_the_target) {
    static const float mass[12] = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4};
    fv_fit_prompt p = {.n = 4, .x = mass, .y = mass};
    fv_fitted f = fit(&p, 1, 3, 50);
    expect(&f, (int32_t[]){3 * 144, 0, 0}, 3);
    cr_assert(f.alpha >= 0.6 && f.alpha < 0.6 + 1 / 64.0, "%g", f.alpha);
    cr_assert_float_eq(f.saved, 0.5, 1e-12);
    f = fit(&p, 1, 3, 33);
    expect(&f, (int32_t[]){2 * 144, 0, 0}, 3);
    cr_assert(f.alpha >= 0.3 && f.alpha < 0.3 + 1 / 64.0, "%g", f.alpha);
    f = fit(&p, 1, 3, 15);
    expect(&f, (int32_t[]){144, 0, 0}, 3);
    cr_assert(f.alpha >= 0.1 && f.alpha < 0.1 + 1 / 64.0, "%g", f.alpha);
}

/* Token 0 receives least from text, and token 3 least from the image: both must agree. With x as 1
 * 2 3 4 and y as 4 3 2 1, the prefixes share tokens only at a budget of 0.6, two of each. */
Test(fit, a_row_leaves_when_text_and_image_both_can_do_without) {
    static const float x[8] = {1, 2, 3, 4, 1, 2, 3, 4}, y[8] = {4, 3, 2, 1, 4, 3, 2, 1};
    fv_fit_prompt p = {.n = 4, .x = x, .y = y};
    fv_fitted f = fit(&p, 1, 2, 25); /* 8 down to 6: two tokens */
    expect(&f, (int32_t[]){2 * 144, 0}, 2);
    cr_assert(f.alpha >= 0.6 && f.alpha < 0.6 + 1 / 64.0, "%g", f.alpha);
}

/* Tokens that were pruned earlier count in every later layer: token 0 is a tenth of layer 0 and half of
 * layer 1, where token 1, another tenth, may only be pruned with a budget of 0.6. So 40 % of 12 are
 * saved when both are pruned after layer 0, with a budget of 0.4. */
Test(fit, what_is_gone_counts_in_later_layers) {
    static const float mass[12] = {1, 3, 6, 5, 1, 4, 5, 1, 4, 5, 1, 4};
    fv_fit_prompt p = {.n = 3, .x = mass, .y = mass};
    fv_fitted f = fit(&p, 1, 4, 40);
    expect(&f, (int32_t[]){384, 0, 0, 0}, 4);
    cr_assert(f.alpha >= 0.4 && f.alpha < 0.4 + 1 / 64.0, "%g", f.alpha);
}

/* After the first layer that achieves the target, nothing is pruned, however large the budget: one
 * token of two is pruned after layer 0, and 5 of 8 is what 37 % asks for. */
Test(fit, nobody_leaves_once_the_target_is_met) {
    static const float mass[8] = {1, 1, 1, 9, 1, 1, 1, 1};
    fv_fit_prompt p = {.n = 2, .x = mass, .y = mass};
    fv_fitted f = fit(&p, 1, 4, 37);
    expect(&f, (int32_t[]){288, 0, 0, 0}, 4);
    cr_assert_float_eq(f.saved, 3 / 8.0, 1e-12);
}

/* The first prompt prunes one of two tokens, the last two of four; the other has no image. */
Test(fit, the_schedule_is_the_mean_of_shares_rounded_down) {
    static const float two[4] = {1, 9, 1, 9}, four[8] = {1, 1, 9, 9, 1, 1, 9, 9};
    fv_fit_prompt p[3] = {{.n = 2, .x = two, .y = two}, {.n = 0}, {.n = 4, .x = four, .y = four}};
    fv_fitted f = fit(p, 3, 2, 20); /* 12 down to 9 */
    expect(&f, (int32_t[]){288, 0}, 2);
    static const float three[6] = {1, 9, 9, 1, 9, 9};
    fv_fit_prompt q[2] = {{.n = 3, .x = three, .y = three}, {.n = 2, .x = two, .y = two}};
    f = fit(q, 2, 2, 15); /* 10 down to 8: a third and a half, 192 and 288 */
    expect(&f, (int32_t[]){240, 0}, 2);
}

/* The cost of a token in a layer after which it is pruned: n row_in + n^2 pair + left row_out. Of 2
 * tokens and 1 layer: 2 + 4 + 2 = 8; when one is pruned 7, when both are 6. */
Test(fit, work_is_counted_as_the_authors_count_it) {
    static const float mass[2] = {1, 3};
    fv_fit_prompt p = {.n = 2, .x = mass, .y = mass};
    fv_fit_work work = {1, 1, 1};
    fv_fitted f;
    cr_assert_eq(fv_fit(&p, 1, 1, &work, 12, &f), FV_OK);
    cr_assert_eq(f.schedule.leave[0], 288);
    cr_assert_float_eq(f.saved, 1 / 8.0, 1e-12);
    cr_assert_eq(fv_fit(&p, 1, 1, &work, 25, &f), FV_OK);
    cr_assert_eq(f.schedule.leave[0], 576);
    cr_assert_eq(fv_fit(&p, 1, 1, &work, 90, &f), FV_OK, "no more can leave");
    cr_assert(f.schedule.leave[0] == 576 && f.alpha == 1);
}

Test(fit, without_an_image_there_is_nothing_to_fit) {
    fv_fit_prompt p = {.n = 0};
    fv_fitted f;
    cr_assert_eq(fv_fit(&p, 1, 4, &by_row, 60, &f), FV_EDATA);
    cr_assert_eq(fv_fit(NULL, 0, 4, &by_row, 60, &f), FV_EDATA);
}
