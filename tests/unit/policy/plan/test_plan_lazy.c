/* Block maps of lazy attention, and the bytes of a plan with them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "policy/plan/plan.h"

static fv_status make(const char *text, int32_t n_layer, int32_t n_visual,
                      const int32_t *calibrated, fv_plan *plan) {
    fv_policy p;
    cr_assert_eq(fv_policy_parse(text, &p), FV_OK, "%s", fv_last_error());
    fv_plan_shape shape = {.n_layer = n_layer,
                           .n_kv = 2,
                           .d_head = 4,
                           .bytes_value = 2,
                           .n_visual = n_visual,
                           .n_text = 50,
                           .calibrated = calibrated};
    return fv_plan_make(&p, &shape, plan);
}

static fv_plan plan_of(const char *text, int32_t n_layer) {
    fv_plan plan;
    cr_assert_eq(make(text, n_layer, 576, NULL, &plan), FV_OK, "%s", fv_last_error());
    return plan;
}

static int32_t n_lazy(const fv_plan *plan) {
    int32_t n = 0;
    for (int32_t l = 0; l < plan->shape.n_layer; l++) n += plan->share.source_layer[l] != l;
    return n;
}

/* Source layers as digits and letters: 0..9, a.. */
static const char *source_layers(const fv_plan *plan) {
    static char text[64];
    for (int32_t l = 0; l < plan->shape.n_layer; l++)
        text[l] = "0123456789abcdefghijklmnopqrstuv"[plan->share.source_layer[l]];
    text[plan->shape.n_layer] = 0;
    return text;
}

Test(plan_lazy, paper_like_has_23_lazy_layers_of_32) {
    fv_plan plan = plan_of("lazy=vla,map=paper_like", 32);
    cr_assert_str_eq(source_layers(&plan), "012222277777ccccchhhhhmmmmmrrrrv", "%s",
                     source_layers(&plan));
    cr_assert_eq(n_lazy(&plan), 23);
}

Test(plan_lazy, training_free_leaves_the_first_layers_and_the_last_alone) {
    fv_plan plan = plan_of("lazy=vla", 32);
    cr_assert_str_eq(source_layers(&plan), "0123456789abcdeffffjjjjnnnnrrrrv", "%s",
                     source_layers(&plan));
    cr_assert_eq(n_lazy(&plan), 12);
}

Test(plan_lazy, maps_fit_networks_of_any_depth) {
    fv_plan plan = plan_of("lazy=vla,map=paper_like", 8);
    cr_assert_str_eq(source_layers(&plan), "01222227");
    plan = plan_of("lazy=gla", 8);
    cr_assert_str_eq(source_layers(&plan), "01234447");
    for (int32_t n = 1; n <= 3; n++) {
        plan = plan_of("lazy=vla,map=paper_like", n);
        cr_assert_eq(n_lazy(&plan), 0);
        cr_assert(plan.note[FV_STAGE_LAZY][0], "and says so");
    }
    plan = plan_of("lazy=gla,map=paper_like", 256);
    cr_assert_eq(plan.share.source_layer[255], 255);
}

Test(plan_lazy, given_blocks_are_checked_against_the_checkpoint) {
    fv_plan plan = plan_of("lazy=vla,map=given,blocks=1-2/4-7", 8);
    cr_assert_str_eq(source_layers(&plan), "01134444");
    static const char *const bad[] = {"2-8", "3-2", "1-3/3-4", "1-3/", "1", "x", "-1-2", "1-2-3"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[64];
        fv_policy p;
        snprintf(text, sizeof text, "lazy=vla,map=given,blocks=%s", bad[i]);
        if (fv_policy_parse(text, &p) != FV_OK) continue;
        cr_assert_eq(make(text, 8, 576, NULL, &plan), FV_EINVAL, "%s", text);
        cr_assert(strstr(fv_last_error(), "blocks="), "%s", fv_last_error());
    }
    cr_assert_eq(make("lazy=vla,blocks=1-2", 8, 576, NULL, &plan), FV_EINVAL);
    cr_assert_eq(make("lazy=vla,map=given", 8, 576, NULL, &plan), FV_EINVAL);
}

Test(plan_lazy, a_calibrated_map_is_the_checkpoints_own) {
    static const int32_t map[] = {0, 0, 2, 2, 2, 5};
    fv_plan plan;
    cr_assert_eq(make("lazy=vla,map=calibrated", 6, 576, map, &plan), FV_OK);
    cr_assert_str_eq(source_layers(&plan), "002225");
    cr_assert_eq(make("lazy=vla,map=calibrated", 6, 576, NULL, &plan), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "fovea calibrate"), "%s", fv_last_error());
    fv_policy p;
    fv_plan_shape shape = {
        .n_layer = 6, .n_kv = 1, .n_text = 1, .uncalibrated = "of other weights"};
    cr_assert_eq(fv_policy_parse("lazy=gla,map=calibrated", &p), FV_OK);
    cr_assert_eq(fv_plan_make(&p, &shape, &plan), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "of other weights"), "%s", fv_last_error());
}

Test(plan_lazy, a_block_is_cut_where_tokens_leave) {
    fv_plan plan = plan_of("prune=fastv,layer=3,keep=0.5;lazy=vla,map=given,blocks=1-6", 8);
    cr_assert_str_eq(source_layers(&plan), "01133337");
    plan = plan_of("prune=vtw,layer=3;lazy=vla,map=given,blocks=1-6", 8);
    cr_assert_str_eq(source_layers(&plan), "01134567", "nothing to borrow where no image row is");
    plan = plan_of("prune=vtw,layer=3;lazy=gla,map=given,blocks=1-6", 8);
    cr_assert_str_eq(source_layers(&plan), "01133337");
}

Test(plan_lazy, a_prompt_without_images_has_nothing_for_vla) {
    fv_plan plan;
    cr_assert_eq(make("lazy=vla", 32, 0, NULL, &plan), FV_OK);
    cr_assert_eq(n_lazy(&plan), 0);
    cr_assert(strstr(plan.note[FV_STAGE_LAZY], "no image"), "%s", plan.note[FV_STAGE_LAZY]);
    cr_assert_eq(make("lazy=gla", 32, 0, NULL, &plan), FV_OK);
    cr_assert_eq(n_lazy(&plan), 12);
}

/* Savings of the whole KV: n / 2N, times the share of image tokens under VLA. */
Test(plan_lazy, bytes_are_those_of_the_paper) {
    fv_plan gla = plan_of("lazy=gla,map=paper_like", 32),
            vla = plan_of("lazy=vla,map=paper_like", 32);
    double raw = (double)fv_plan_count(&gla).raw;
    cr_assert_float_eq(1 - (double)fv_plan_count(&gla).held / raw, 23.0 / 64, 1e-12);
    cr_assert_float_eq(1 - (double)fv_plan_count(&vla).held / raw, 23.0 / 64 * 576 / 626, 1e-12);
    static const struct {
        int32_t n_visual, n_text;
        double saved;
    } vla_rows[] = {{576, 50, 0.3307}, {2880, 60, 0.3520}};
    for (int i = 0; i < 2; i++) {
        fv_plan_shape shape = vla.shape;
        shape.n_visual = vla_rows[i].n_visual;
        shape.n_text = vla_rows[i].n_text;
        fv_plan plan;
        cr_assert_eq(fv_plan_make(&vla.policy, &shape, &plan), FV_OK);
        fv_plan_bytes b = fv_plan_count(&plan);
        cr_assert_float_eq(1 - (double)b.held / (double)b.raw, vla_rows[i].saved, 5e-5);
    }
    cr_assert_float_eq(1 - (double)fv_plan_count(&gla).held / raw, 0.3594, 5e-5);
    cr_assert_eq(fv_plan_reused_text(&gla), 23);
    cr_assert_eq(fv_plan_reused_text(&vla), 0);
}
