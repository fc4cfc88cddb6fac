/* policy/plan/plan.c: the plan of a policy for one prompt and one checkpoint. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "policy/plan/packed_shape.h"
#include "tests/support/planned.h"

enum { ROW = 2 * 8 * 2 }; /* bytes of a token of one head in all these shapes */

static int64_t rows(const fv_plan *plan) { return (int64_t)(fv_plan_count(plan).held / ROW); }

static const fv_plan_shape llava = {
    .d_head = 8, .bytes_value = 2, .n_layer = 32, .n_kv = 32, .n_visual = 576, .n_text = 50};

Test(plan, exact_holds_every_token_of_every_head) {
    fv_plan plan;
    cr_assert_eq(try_plan("", llava, &plan), FV_OK);
    cr_assert_eq(plan.prune.n_edit, 0);
    cr_assert_eq(fv_plan_count(&plan).raw, fv_plan_count(&plan).held);
    cr_assert_eq(fv_plan_count(&plan).visual, (uint64_t)ROW * 32 * 32 * 576);
    cr_assert_eq(rows(&plan), 32 * 32 * 626);
}

Test(plan, vtw_holds_visual_tokens_in_k_of_n_layers) {
    fv_plan plan;
    cr_assert_eq(try_plan("prune=vtw", llava, &plan), FV_OK);
    cr_assert_eq(plan.visual[15], 576);
    cr_assert_eq(plan.visual[16], 0);
    cr_assert_eq(rows(&plan), 32 * (32 * 50 + 16 * 576));
    cr_assert_eq(fv_plan_count(&plan).visual, (uint64_t)ROW * 32 * 16 * 576);
    cr_assert_eq(fv_plan_count(&plan).raw, (uint64_t)ROW * 32 * 32 * 626);
}

Test(plan, vtw_has_its_layer_from_the_calibration_where_asked) {
    fv_plan plan;
    fv_plan_shape shape = llava;
    cr_assert_eq(try_plan("prune=vtw,from=calibrated", shape, &plan), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "fovea calibrate"), "%s", fv_last_error());
    shape.uncalibrated = "it is of other weights";
    cr_assert_eq(try_plan("prune=vtw,from=calibrated", shape, &plan), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "of other weights"), "%s", fv_last_error());
    shape.uncalibrated = NULL;
    shape.withdraw = 9;
    cr_assert_eq(try_plan("prune=vtw,from=calibrated", shape, &plan), FV_OK, "%s", fv_last_error());
    cr_assert(plan.visual[8] == 576 && plan.visual[9] == 0);
    cr_assert(strstr(plan.prune.chose, "layer 9"), "%s", plan.prune.chose);
    cr_assert_eq(try_plan("preset=paper-vtw;prune=vtw,from=calibrated", shape, &plan), FV_OK);
    cr_assert_eq(plan.visual[9], 0);
    cr_assert_eq(try_plan("prune=vtw", shape, &plan), FV_OK);
    cr_assert(plan.visual[15] == 576 && !plan.prune.chose[0], "unless it is asked for");
    cr_assert_eq(try_plan("prune=vtw,layer=4,from=calibrated", shape, &plan), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "one of them"), "%s", fv_last_error());
    shape.withdraw = 32;
    cr_assert_eq(try_plan("prune=vtw,from=calibrated", shape, &plan), FV_OK, "%s", fv_last_error());
    cr_assert(plan.prune.n_edit == 0 && !plan.prune.chose[0]);
    cr_assert(strstr(plan.note[FV_STAGE_PRUNE], "every layer needs the image"));
    shape = (fv_plan_shape){.n_layer = 4, .n_kv = 1, .n_text = 3, .withdraw = 2};
    cr_assert_eq(try_plan("prune=vtw,from=calibrated", shape, &plan), FV_OK, "%s", fv_last_error());
    cr_assert(strstr(plan.note[FV_STAGE_PRUNE], "no image") && !plan.prune.chose[0]);
}

Test(plan, random_counts_round_down) {
    fv_plan plan;
    fv_plan_shape shape = {
        .d_head = 8, .bytes_value = 2, .n_layer = 4, .n_kv = 1, .n_visual = 10, .n_text = 3};
    cr_assert_eq(try_plan("prune=random,layer=0,keep=0.7", shape, &plan), FV_OK);
    cr_assert_eq(plan.visual[0], 7, "0.7 * 10 is 7 in spite of binary fractions");
    cr_assert_eq(try_plan("prune=random,layer=3,keep=0.19", shape, &plan), FV_OK);
    cr_assert_eq(plan.visual[2], 10);
    cr_assert_eq(plan.visual[3], 1);
}

Test(plan, fastv_counts_halves_to_even_and_captures_the_layer_before) {
    fv_plan plan;
    fv_plan_shape shape = {
        .d_head = 8, .bytes_value = 2, .n_layer = 4, .n_kv = 1, .n_visual = 5, .n_text = 3};
    cr_assert_eq(try_plan("prune=fastv,layer=3,keep=0.5", shape, &plan), FV_OK);
    cr_assert_eq(plan.visual[2], 5);
    cr_assert_eq(plan.visual[3], 2, "round(2.5) is 2");
    for (int32_t l = 0; l < 4; l++) cr_assert_eq(plan.capture[l], l == 2 ? FV_CAPTURE_LAST_ROW : 0);
    shape.n_visual = 7;
    cr_assert_eq(try_plan("prune=fastv,layer=1,keep=0.5", shape, &plan), FV_OK);
    cr_assert_eq(plan.visual[1], 4, "round(3.5) is 4");
    cr_assert_eq(try_plan("preset=paper-fastv", llava, &plan), FV_OK);
    cr_assert_eq(rows(&plan), 32 * (32 * 50 + 2 * 576 + 30 * 288));
    cr_assert_eq(plan.capture[1], FV_CAPTURE_LAST_ROW);
}

Test(plan, fastv_leaves_a_layer_to_rank_in_however_shallow_the_network_is) {
    fv_plan plan;
    fv_plan_shape shape = {
        .d_head = 8, .bytes_value = 2, .n_layer = 4, .n_kv = 1, .n_visual = 8, .n_text = 3};
    cr_assert_eq(try_plan("prune=fastv", shape, &plan), FV_OK, "%s", fv_last_error());
    cr_assert_eq(plan.prune.edit[0].layer, 1);
    shape.n_layer = 1;
    cr_assert_eq(try_plan("prune=fastv", shape, &plan), FV_EINVAL);
}

/* Tokens of each span of layers, with their number after an x. */
static void assert_layers(const fv_plan *plan, const char *want) {
    char got[256] = "";
    for (int32_t l = 0, n; l < plan->shape.n_layer; l += n) {
        for (n = 1; l + n < plan->shape.n_layer && plan->visual[l + n] == plan->visual[l]; n++) {
        }
        snprintf(got + strlen(got), 16, "%dx%d ", plan->visual[l], n);
    }
    cr_assert_str_eq(got, want);
}

Test(plan, pvtp_counts_are_those_of_the_paper) {
    fv_plan plan;
    fv_plan_shape large = {.n_layer = 40, .n_kv = 40, .n_visual = 576, .n_text = 50};
    cr_assert_eq(try_plan("prune=pvtp", llava, &plan), FV_OK);
    assert_layers(&plan, "576x3 288x7 217x7 146x7 76x7 5x1 ");
    for (int32_t l = 0; l < 32; l++)
        cr_assert_eq(plan.capture[l], (l + 1) % 7 == 3 ? FV_CAPTURE_LAST_ROW : 0, "layer %d", l);
    cr_assert_eq(try_plan("prune=pvtp,layer=3,stride=4,ratio=0.05", large, &plan), FV_OK);
    assert_layers(&plan, "576x3 288x4 259x4 230x4 201x4 172x4 144x4 115x4 86x4 57x4 28x1 ");
}

Test(plan, pvtp_steps_until_the_layers_or_the_tokens_end) {
    fv_plan plan, one;
    fv_plan_shape shape = {.n_layer = 9, .n_kv = 1, .n_visual = 10, .n_text = 3};
    cr_assert_eq(try_plan("prune=pvtp,layer=3,stride=6,first=0.5,ratio=0.1", shape, &plan), FV_OK);
    assert_layers(&plan, "10x3 5x6 "); /* 3 + 6: no such layer */
    cr_assert_eq(try_plan("prune=fastv,layer=3,keep=0.5", shape, &one), FV_OK);
    cr_assert_arr_eq(plan.visual, one.visual, sizeof plan.visual);
    cr_assert_arr_eq(plan.capture, one.capture, sizeof plan.capture);
    cr_assert_eq(try_plan("prune=pvtp,layer=2,stride=1,first=0.1,ratio=0.4", shape, &plan), FV_OK);
    assert_layers(&plan, "10x2 9x1 5x1 1x1 0x4 ");
    cr_assert_eq(plan.prune.n_edit, 4, "what is gone does not leave again");
    cr_assert_eq(plan.capture[5], 0);
    cr_assert_eq(try_plan("prune=pvtp,layer=2,stride=3,first=0,ratio=0.2", shape, &plan), FV_OK);
    assert_layers(&plan, "10x5 8x3 6x1 "); /* the first step prunes nothing */
    cr_assert_eq(plan.capture[1], 0);
    cr_assert_str_empty(plan.note[FV_STAGE_PRUNE]);
    cr_assert_eq(try_plan("prune=pvtp,first=0,ratio=0", shape, &plan), FV_OK);
    cr_assert(strstr(plan.note[FV_STAGE_PRUNE], "every visual token"));
    shape.n_layer = 2;
    cr_assert_eq(try_plan("prune=pvtp,layer=2", shape, &plan), FV_EINVAL);
}

Test(plan, pvtp_takes_as_many_steps_in_another_depth) {
    static const int32_t depths[] = {12, 16, 24, 28, 36, 48, 64};
    for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
        fv_plan plan;
        fv_plan_shape shape = llava;
        shape.n_layer = depths[i];
        cr_assert_eq(try_plan("prune=pvtp", shape, &plan), FV_OK);
        cr_assert(plan.prune.n_edit == 4 || plan.prune.n_edit == 5, "%d in %d layers",
                  plan.prune.n_edit, depths[i]);
        cr_assert_leq(plan.visual[depths[i] - 1], 76);
    }
}

Test(plan, nothing_is_captured_for_methods_without_captures) {
    static const char *const policies[] = {"",
                                           "prune=vtw",
                                           "prune=random",
                                           "prune=grid",
                                           "prune=fastv,keep=1",
                                           "prune=pvtp,first=0,ratio=0",
                                           "select=streaming"};
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        fv_plan plan;
        cr_assert_eq(try_plan(policies[i], llava, &plan), FV_OK);
        for (int32_t l = 0; l < 32; l++) cr_assert_eq(plan.capture[l], 0, "%s", policies[i]);
    }
}

Test(plan, grid_counts_round_down) {
    fv_plan plan;
    cr_assert_eq(try_plan("prune=grid,layer=4,keep=0.1225", llava, &plan), FV_OK);
    cr_assert_eq(plan.visual[3], 576);
    cr_assert_eq(plan.visual[4], 70);
}

Test(plan, a_layer_that_the_checkpoint_lacks_is_refused) {
    fv_plan plan;
    fv_plan_shape shape = {
        .d_head = 8, .bytes_value = 2, .n_layer = 12, .n_kv = 1, .n_visual = 10, .n_text = 3};
    cr_assert_eq(try_plan("prune=vtw,layer=12", shape, &plan), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "layers 0..11"), "%s", fv_last_error());
}

Test(plan, a_stage_that_changes_nothing_says_why) {
    fv_plan plan;
    fv_plan_shape text_only = {
        .d_head = 8, .bytes_value = 2, .n_layer = 8, .n_kv = 2, .n_visual = 0, .n_text = 9};
    cr_assert_eq(try_plan("prune=vtw;select=streaming,sink=9", text_only, &plan), FV_OK);
    cr_assert(strstr(plan.note[FV_STAGE_PRUNE], "no image"), "%s", plan.note[FV_STAGE_PRUNE]);
    cr_assert(strstr(plan.note[FV_STAGE_SELECT], "every token"), "%s", plan.note[FV_STAGE_SELECT]);
    cr_assert_not(plan.select.count);
    cr_assert_eq(try_plan("prune=random,keep=1", llava, &plan), FV_OK);
    cr_assert(strstr(plan.note[FV_STAGE_PRUNE], "every visual token"));
    cr_assert_eq(try_plan("prune=vtw", llava, &plan), FV_OK);
    cr_assert_str_empty(plan.note[FV_STAGE_PRUNE]);
}

Test(plan, streaming_counts_whole_heads_sinks_and_recent_tokens) {
    fv_plan plan;
    fv_plan_shape shape = {
        .d_head = 8, .bytes_value = 2, .n_layer = 2, .n_kv = 5, .n_visual = 80, .n_text = 20};
    cr_assert_eq(try_plan("select=streaming,sink=4,recent=0.3,full_heads=0.25", shape, &plan),
                 FV_OK);
    /* ceil(0.25 * 5) = 2 heads of 100 tokens, 3 heads of 34 */
    cr_assert_eq(rows(&plan), 2 * (2 * 100 + 3 * 34));
    /* The position of the image in the prompt is unknown: every token that a head keeps may be the
     * image's. */
    cr_assert_eq(fv_plan_count(&plan).visual, ROW * 2 * (2 * 80 + 3 * 34));
}

/* ---- bytes of compressed layers ------------------------------------------------------ */

/* The maximum over every possible number of retained image tokens, one by one: for plans whose text
 * tokens stay uncompressed and whose layers have keys of their own. */
static fv_plan_bytes one_by_one(const fv_plan *plan) {
    fv_plan_bytes sum = {0};
    uint64_t row = 2 * (uint64_t)(plan->shape.n_kv * plan->shape.d_head * plan->shape.bytes_value);
    for (int32_t l = 0; l < plan->shape.n_layer; l++) {
        int32_t n = plan->prune.drop_visual_kv[l] ? 0 : plan->visual[l],
                n_text = plan->shape.n_text;
        int32_t kept = n + n_text;
        if (plan->select.count && plan->select.count(plan, l, 0) < kept)
            kept = plan->select.count(plan, l, 0);
        uint64_t held = 0, visual = 0;
        for (int32_t i = plan->exact_counts && !plan->select.count ? n : 0; i <= n && i <= kept;
             i++) {
            uint64_t image = fv_plan_packed_bytes(plan, l, i, true);
            uint64_t both = image + row * (uint64_t)(kept - i < n_text ? kept - i : n_text);
            if (image > visual) visual = image;
            if (both > held) held = both;
        }
        sum.held += held;
        sum.visual += visual;
    }
    return sum;
}

Test(plan, bytes_of_packed_layers_bound_every_number_of_image_tokens_closely) {
    static const char *const policies[] = {
        "pack=svd,rank_k=12,rank_v=9",
        "prune=visipruner,filter=1;pack=svd,rank_k=12,rank_v=9,gain=0.7",
        "prune=visipruner,filter=1;pack=quant,bits=8,outliers=0.2",
        "prune=visipruner,filter=1,kv_shallow=drop;pack=minicache,start=0",
        "select=csp,heads=shared,dup=union,heavy=0.5;pack=svd,rank_k=30,rank_v=7,bits=8,gain=1",
        "select=snapkv,heads=shared,heavy=0.6;pack=quant,bits=4,outliers=0.05",
        "select=h2o,heads=shared,heavy=0.3;pack=svd,rank_k=64,rank_v=64,gain=0"};
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++)
        for (int32_t k = 0; k < 60; k++) {
            fv_plan_shape shape = {.n_layer = 2 + k % 7,
                                   .n_kv = 1 + k % 3,
                                   .d_head = 8 + 8 * (k % 5),
                                   .bytes_value = k % 2 ? 2 : 4,
                                   .n_visual = 13 * k,
                                   .n_text = 7 * (k % 11)};
            fv_plan plan = plan_of(policies[i], shape);
            if (!plan.pack.any) continue;
            fv_plan_bytes most = fv_plan_count(&plan), want = one_by_one(&plan);
            cr_assert_geq(most.held, want.held, "%s, %d", policies[i], k);
            cr_assert_geq(most.visual, want.visual, "%s, %d", policies[i], k);
            cr_assert_leq(most.held, want.held + want.held / 20, "%s, %d", policies[i], k);
            cr_assert_leq(most.visual, want.visual + want.visual / 20, "%s, %d", policies[i], k);
            if (!plan.exact_counts || plan.select.count) continue;
            cr_assert(most.held == want.held && most.visual == want.visual, "%s", policies[i]);
        }
}

/* The router makes a plan on its loop for every request, in about a millisecond
 * (bench/bench_plan.c). The limit here is a hundred, for slow and instrumented machines; counting
 * one by one would take seconds. */
Test(plan, a_plan_of_a_million_tokens_takes_no_longer_than_one_of_few) {
    static const fv_plan_shape shape = {.n_layer = 256,
                                        .n_kv = 32,
                                        .d_head = 64,
                                        .bytes_value = 2,
                                        .n_visual = 1 << 20,
                                        .n_text = 1 << 20,
                                        .text_bound = true};
    static const char *const more[] = {
        "prune=visipruner,filter=1;lazy=vla;pack=quant;evict=vta",
        "prune=fitprune,target=given,schedule=1/1/1/1/1/1/1/1;select=csp,heads=shared,dup=union;"
        "pack=svd,gain=0,rank_k=4096,rank_v=4096,compress_text=keys"};
    int32_t n;
    const fv_preset_info *preset = fv_policy_presets(&n);
    for (int32_t i = 0; i < n + 2; i++) {
        struct timespec from, to;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
        fv_plan plan = plan_of(i < n ? preset[i].text : more[i - n], shape);
        cr_assert_gt(fv_plan_count(&plan).held, 0);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
        double s = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
        cr_assert_lt(s, 0.1, "%s: %.3f s", i < n ? preset[i].name : more[i - n], s);
    }
}

/* ---- coefficients ------------------------------------------------------------------------ */

Test(plan, the_error_of_latents_takes_bits_away_and_the_budget_bounds_them) {
    enum { STEPS = 60, GROUPS = 3 };
    static uint32_t steps[GROUPS * STEPS];
    fv_plan plan;
    fv_plan_shape shape = {.n_layer = 8,
                           .n_kv = 32,
                           .d_head = 8,
                           .bytes_value = 2,
                           .n_visual = 576,
                           .n_text = 50,
                           .latent_layers = 3,
                           .latent_rank = 32,
                           .n_latent_steps = GROUPS * STEPS,
                           .latent_steps = steps};
    steps[39] = 17;            /* of 0.1 in the first group, */
    steps[STEPS + 39] = 5000;  /* more than the budget has room for, */
    steps[2 * STEPS + 39] = 0; /* and not to be reached */
    cr_assert_eq(try_plan("pack=latent", shape, &plan), FV_OK, "%s", fv_last_error());
    int32_t most = plan.pack.layer[0].row_bits, last = plan.pack.layer[7].row_bits;
    cr_assert(most > 17 && last > 0);
    cr_assert_eq(try_plan("pack=latent,error=0.1", shape, &plan), FV_OK, "%s", fv_last_error());
    cr_assert_eq(plan.pack.layer[0].row_bits, 17);
    cr_assert_eq(plan.pack.layer[2].row_bits, 17);
    cr_assert_eq(plan.pack.layer[3].row_bits, most);
    cr_assert_eq(plan.pack.layer[6].row_bits, last);
    cr_assert_eq(try_plan("pack=latent,error=0.001", shape, &plan), FV_OK, "no step is as small");
    cr_assert_eq(plan.pack.layer[0].row_bits, most);
    steps[39] = UINT32_MAX;
    shape.n_latent_steps--; /* of another shape: ignored */
    cr_assert_eq(try_plan("pack=latent,error=0.1", shape, &plan), FV_OK, "%s", fv_last_error());
    cr_assert_eq(plan.pack.layer[0].row_bits, most);
    shape.n_latent_steps++;
    cr_assert_eq(try_plan("pack=latent,error=0.1", shape, &plan), FV_OK, "%s", fv_last_error());
    cr_assert_eq(plan.pack.layer[0].row_bits, most);
    cr_assert_eq(try_plan("pack=latent,error=0.1,bits=4", shape, &plan), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "leave one out"), "%s", fv_last_error());
}
