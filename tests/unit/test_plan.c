/* policy/plan.c: what a policy comes to for one prompt and one checkpoint. */
#include <criterion/criterion.h>
#include <string.h>

#include "policy/plan.h"

static fv_status make(const char *policy, fv_plan_shape shape, fv_plan *plan) {
    fv_policy p;
    cr_assert_eq(fv_policy_parse(policy, &p), FV_OK, "%s", fv_last_error());
    return fv_plan_make(&p, &shape, plan);
}

static const fv_plan_shape llava = {.n_layer = 32, .n_kv = 32, .n_visual = 576, .n_text = 50};

Test(plan, exact_holds_every_row_of_every_head) {
    fv_plan plan;
    cr_assert_eq(make("", llava, &plan), FV_OK);
    cr_assert_eq(plan.n_edit, 0);
    cr_assert_eq(fv_plan_kv_rows(&plan), 32 * 32 * 626);
}

Test(plan, vtw_holds_visual_rows_in_k_of_n_layers) {
    fv_plan plan;
    cr_assert_eq(make("prune=vtw", llava, &plan), FV_OK);
    cr_assert_eq(plan.visual[15], 576);
    cr_assert_eq(plan.visual[16], 0);
    cr_assert_eq(fv_plan_kv_rows(&plan), 32 * (32 * 50 + 16 * 576));
}

Test(plan, random_counts_round_down) {
    fv_plan plan;
    fv_plan_shape shape = {.n_layer = 4, .n_kv = 1, .n_visual = 10, .n_text = 3};
    cr_assert_eq(make("prune=random,layer=0,keep=0.7", shape, &plan), FV_OK);
    cr_assert_eq(plan.visual[0], 7, "0.7 * 10 is 7 in spite of binary fractions");
    cr_assert_eq(make("prune=random,layer=3,keep=0.19", shape, &plan), FV_OK);
    cr_assert_eq(plan.visual[2], 10);
    cr_assert_eq(plan.visual[3], 1);
}

Test(plan, fastv_counts_halves_to_even_and_taps_the_layer_before) {
    fv_plan plan;
    fv_plan_shape shape = {.n_layer = 4, .n_kv = 1, .n_visual = 5, .n_text = 3, .n_image = 1};
    cr_assert_eq(make("prune=fastv,layer=3,keep=0.5", shape, &plan), FV_OK);
    cr_assert_eq(plan.visual[2], 5);
    cr_assert_eq(plan.visual[3], 2, "round(2.5) is 2");
    for (int32_t l = 0; l < 4; l++) cr_assert_eq(plan.tap[l], l == 2 ? FV_TAP_LAST_ROW : 0);
    shape.n_visual = 7;
    cr_assert_eq(make("prune=fastv,layer=1,keep=0.5", shape, &plan), FV_OK);
    cr_assert_eq(plan.visual[1], 4, "round(3.5) is 4");
    cr_assert_eq(make("preset=paper-fastv", llava, &plan), FV_OK);
    cr_assert_eq(fv_plan_kv_rows(&plan), 32 * (32 * 50 + 2 * 576 + 30 * 288));
    cr_assert_eq(plan.tap[1], FV_TAP_LAST_ROW);
}

Test(plan, fastv_leaves_a_layer_to_rank_in_however_shallow_the_network_is) {
    fv_plan plan;
    fv_plan_shape shape = {.n_layer = 4, .n_kv = 1, .n_visual = 8, .n_text = 3, .n_image = 1};
    cr_assert_eq(make("prune=fastv", shape, &plan), FV_OK, "%s", fv_last_error());
    cr_assert_eq(plan.edit[0].layer, 1);
    shape.n_layer = 1;
    cr_assert_eq(make("prune=fastv", shape, &plan), FV_EINVAL);
}

Test(plan, nothing_is_tapped_for_methods_that_do_not_look) {
    static const char *const policies[] = {"",           "prune=vtw",          "prune=random",
                                           "prune=grid", "prune=fastv,keep=1", "select=streaming"};
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        fv_plan plan;
        cr_assert_eq(make(policies[i], llava, &plan), FV_OK);
        for (int32_t l = 0; l < 32; l++) cr_assert_eq(plan.tap[l], 0, "%s", policies[i]);
    }
}

Test(plan, grid_counts_round_down) {
    fv_plan plan;
    cr_assert_eq(make("prune=grid,layer=4,keep=0.1225", llava, &plan), FV_OK);
    cr_assert_eq(plan.visual[3], 576);
    cr_assert_eq(plan.visual[4], 70);
}

Test(plan, a_layer_that_the_checkpoint_lacks_is_refused) {
    fv_plan plan;
    fv_plan_shape shape = {.n_layer = 12, .n_kv = 1, .n_visual = 10, .n_text = 3};
    cr_assert_eq(make("prune=vtw,layer=12", shape, &plan), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "layers 0..11"), "%s", fv_last_error());
}

Test(plan, a_stage_that_changes_nothing_says_why) {
    fv_plan plan;
    fv_plan_shape text_only = {.n_layer = 8, .n_kv = 2, .n_visual = 0, .n_text = 9};
    cr_assert_eq(make("prune=vtw;select=streaming,sink=9", text_only, &plan), FV_OK);
    cr_assert(strstr(plan.note[FV_STAGE_PRUNE], "no image"), "%s", plan.note[FV_STAGE_PRUNE]);
    cr_assert(strstr(plan.note[FV_STAGE_SELECT], "every row"), "%s", plan.note[FV_STAGE_SELECT]);
    cr_assert_not(plan.select);
    cr_assert_eq(make("prune=random,keep=1", llava, &plan), FV_OK);
    cr_assert(strstr(plan.note[FV_STAGE_PRUNE], "every visual row"));
    cr_assert_eq(make("prune=vtw", llava, &plan), FV_OK);
    cr_assert_str_empty(plan.note[FV_STAGE_PRUNE]);
}

Test(plan, streaming_counts_whole_heads_sinks_and_recent_rows) {
    fv_plan plan;
    fv_plan_shape shape = {.n_layer = 2, .n_kv = 5, .n_visual = 80, .n_text = 20};
    cr_assert_eq(make("select=streaming,sink=4,recent=0.3,full_heads=0.25", shape, &plan), FV_OK);
    /* ceil(0.25 * 5) = 2 heads of 100 rows, 3 heads of 34 */
    cr_assert_eq(fv_plan_kv_rows(&plan), 2 * (2 * 100 + 3 * 34));
}
