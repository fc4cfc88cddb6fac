/* prune=visipruner: ablation scores against their definition, the masks, the decisions from layer
 * to layer, and the KV that is left. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prefill-worker/prefill/ablation.h"
#include "prefill-worker/prefill/mask.h"
#include "prefill-worker/prune/prune.h"
#include "tests/support/handoff.h"
#include "tests/support/planned.h"

enum { VISUAL = 70, HEADS = 4, KV_HEADS = 2, LAYERS = 4, D = 24, KEYS = 84 };

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

/* ---- ablation score --------------------------------------------------------------------- */

static float draw(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(*state >> 33) * 0x1p-30 - 1);
}

/* KV whose layer 1 has n visual tokens of random values; a [HEADS, KEYS], and o computed from
 * it. */
static fv_kv *random_layer(tiny_net *net, int32_t n, float *a, float *o, float *v) {
    uint64_t state = 5;
    fv_kv *kv;
    int32_t pos[KEYS];
    ok(fv_kv_open(net->pool, &kv));
    ok(fv_kv_extent(kv, 1, n));
    for (int32_t i = 0; i < n; i++) pos[i] = i;
    ok(fv_kv_append(kv, 1, FV_SEG_VISUAL, pos, n));
    for (int32_t i = 0; i < HEADS * KEYS; i++) a[i] = fabsf(draw(&state));
    for (int32_t i = 0; i < HEADS * D; i++) o[i] = 3 * draw(&state);
    for (int32_t g = 0; g < KV_HEADS; g++)
        for (int32_t j = 0; j < n; j++) {
            void *at;
            fv_kv_contiguous(kv, 1, g, FV_SEG_VISUAL, true, j, n, &at);
            for (int32_t d = 0; d < D; d++)
                ((float *)at)[d] = v[(g * KEYS + j) * D + d] = draw(&state);
            for (int32_t h = 2 * g; h < 2 * g + 2; h++)
                for (int32_t d = 0; d < D; d++)
                    o[h * D + d] += a[h * KEYS + j] * v[(g * KEYS + j) * D + d];
        }
    return kv;
}

/* The definition: O without token j, compared with O. */
static void by_definition(const float *a, const float *o, const float *v, int32_t j, double *l2,
                          double *cosine) {
    double cc = 0, oo = 0, rr = 0, or = 0;
    for (int32_t h = 0; h < HEADS; h++)
        for (int32_t d = 0; d < D; d++) {
            double c = (double)a[h * KEYS + j] * (double)v[(h / 2 * KEYS + j) * D + d];
            double all = (double)o[h * D + d], rest = all - c;
            cc += c * c;
            oo += all * all;
            rr += rest * rest;
            or += all * rest;
        }
    *l2 = sqrt(cc);
    *cosine = or / sqrt(oo * rr);
}

Test(visipruner, ablation_score_follows_its_definition) {
    static float a[HEADS * KEYS], o[HEADS * D], v[KV_HEADS * KEYS * D], l2[KEYS], cosine[KEYS];
    for (int32_t n = 0; n <= VISUAL; n += 35) {
        tiny_net net;
        fv_arena arena = {0};
        tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 2);
        fv_kv *kv = random_layer(&net, n, a, o, v);
        ok(fv_ablation(
            &(fv_ablation_args){
                .be = &net.be, .kv = kv, .layer = 1, .n_head = HEADS, .a = a, .ld = KEYS, .o = o},
            &arena, l2, cosine));
        for (int32_t j = 0; j < n; j++) {
            double want_l2, want_cos;
            by_definition(a, o, v, j, &want_l2, &want_cos);
            cr_assert_float_eq(l2[j], want_l2, 1e-5 * want_l2, "row %d", j);
            cr_assert_float_eq(cosine[j], want_cos, 1e-6, "row %d: %g, not %g", j,
                               (double)cosine[j], want_cos);
        }
        fv_arena_fini(&arena);
        fv_kv_close(kv);
        tiny_net_close(&net);
    }
}

Test(visipruner, a_token_that_is_all_of_the_output_turns_it_to_nothing_and_no_output_is_turned) {
    float a[HEADS * KEYS] = {0}, o[HEADS * D] = {0}, v[KV_HEADS * KEYS * D], l2[1], cosine[1];
    tiny_net net;
    fv_arena arena = {0};
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    fv_kv *kv = random_layer(&net, 1, a, o, v);
    fv_ablation_args x = {
        .be = &net.be, .kv = kv, .layer = 1, .n_head = HEADS, .a = a, .ld = KEYS, .o = o};
    for (int32_t i = 0; i < HEADS * D; i++)
        o[i] = a[i / D * KEYS] * v[i / D / 2 * KEYS * D + i % D];
    ok(fv_ablation(&x, &arena, l2, cosine));
    cr_assert_eq(cosine[0], 0);
    memset(o, 0, sizeof o);
    ok(fv_ablation(&x, &arena, l2, cosine));
    cr_assert_eq(cosine[0], 1);
    cr_assert_gt(l2[0], 0);
    fv_arena_fini(&arena);
    fv_kv_close(kv);
    tiny_net_close(&net);
}

/* ---- masks ------------------------------------------------------------------------------ */

static fv_plan planned(const char *policy, int32_t n_layer, int32_t n_visual) {
    fv_plan_shape shape = {.n_layer = n_layer,
                           .n_kv = KV_HEADS,
                           .d_head = D,
                           .bytes_value = 4,
                           .n_visual = n_visual,
                           .n_text = 14};
    return plan_of(policy, shape);
}

Test(visipruner, masks_cover_every_token) {
    enum { T = FV_SEG_TEXT, V = FV_SEG_VISUAL, N = 9 };
    static const uint8_t seg[N] = {T, T, V, V, T, V, T, T, T};
    static const char *const want[] = {"keep", "kkkdfdffk", "kkkkdkddk", "kkddddddk", "kkddhdhhk"};
    static const uint8_t masks[] = {FV_MASK_NONE, FV_MASK_MERGE, FV_MASK_TEXT, FV_MASK_ALL,
                                    FV_MASK_HALF};
    static const int32_t pos[N] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    fv_mask_rows rows = {.n = N, .pos = pos, .seg = seg, .visual0 = 2, .n_prompt = 8};
    fv_arena arena = {0};
    for (int m = 0; m < 5; m++) {
        static fv_plan plan;
        const uint8_t *const *share;
        plan.prune.mask[1] = masks[m];
        ok(fv_mask_shares(&plan, 0, 3, &rows, &arena, &share));
        cr_assert_eq(share != NULL, m > 0);
        if (!share) continue;
        cr_assert(!share[0] && !share[2]);
        for (int r = 0; r < N; r++)
            cr_assert_eq("kdfh"[share[1][r]], want[m][r], "mask %d row %d", m, r);
    }
    fv_arena_fini(&arena);
}

Test(visipruner, layers_of_the_paper_are_mapped_to_the_depth) {
    fv_plan p = planned("preset=paper-visipruner", 32, 576), q = planned("preset=aggressive", 8, 9);
    for (int32_t l = 0; l < 32; l++) {
        cr_assert_eq(p.prune.mask[l], l == 0 ? FV_MASK_MERGE : l < 6 ? FV_MASK_TEXT : FV_MASK_NONE);
        cr_assert(!p.prune.drop_visual_kv[l]);
        cr_assert_eq(p.capture[l], l >= 7 && l < 31 ? FV_CAPTURE_ABLATION : 0);
        cr_assert_eq(p.visual[l], 576);
    }
    cr_assert_eq(p.prune.n_edit, 24);
    cr_assert(p.prune.edit[0].layer == 8 && p.prune.edit[23].layer == 31 &&
              p.prune.edit[0].by_data);
    cr_assert(!p.exact_counts);
    cr_assert_eq(fv_plan_count(&p).held, fv_plan_count(&p).raw);
    for (int32_t l = 0; l < 8; l++) cr_assert_eq(q.prune.drop_visual_kv[l], l < 2);
    cr_assert_eq(fv_plan_count(&q).held, fv_plan_count(&q).raw - 2 * KV_HEADS * 9 * 2 * D * 4);
    fv_plan half = planned("prune=visipruner,first=half", 32, 576);
    cr_assert(half.prune.mask[0] == FV_MASK_HALF && half.prune.mask[1] == FV_MASK_TEXT);
    fv_plan all = planned("prune=visipruner,self=drop", 32, 1);
    cr_assert(all.prune.mask[0] == FV_MASK_MERGE && all.prune.mask[5] == FV_MASK_ALL);
}

Test(visipruner, thresholds_are_the_requests_the_calibrations_or_those_that_are_published) {
    static const double measured[3] = {0.9, 0.03, 0.95};
    fv_plan_shape shape = {.n_layer = 32, .n_kv = 1, .n_visual = 5, .n_text = 5};
    fv_policy p, given;
    fv_plan plan;
    ok(fv_policy_parse("prune=visipruner,cos=0.5", &p));
    ok(fv_policy_parse("preset=paper-visipruner", &given));
    ok(fv_plan_make(&p, &shape, &plan));
    cr_assert(plan.prune.thresholds.cos == 0.5 && plan.prune.thresholds.l2 == 0.2);
    cr_assert_eq(plan.prune.thresholds.exit_cos, 0.999);
    cr_assert(strstr(plan.prune.thresholds_of, "LLaVA"), "%s", plan.prune.thresholds_of);
    shape.thresholds = measured;
    ok(fv_plan_make(&p, &shape, &plan));
    cr_assert(plan.prune.thresholds.cos == 0.5 && plan.prune.thresholds.l2 == 0.03);
    cr_assert_eq(plan.prune.thresholds.exit_cos, 0.95);
    cr_assert(strstr(plan.prune.thresholds_of, "calibration"), "%s", plan.prune.thresholds_of);
    ok(fv_plan_make(&given, &shape, &plan));
    cr_assert(plan.prune.thresholds.cos == 0.995 && plan.prune.thresholds.l2 == 0.2);
    cr_assert_null(plan.prune.thresholds_of, "a preset of a paper is the paper's");
    static const char *const bad[] = {"cos=2", "cos=x", "l2=-1", "l2=nan", "exit_cos=0.9x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[80];
        snprintf(text, sizeof text, "prune=visipruner,%s", bad[i]);
        ok(fv_policy_parse(text, &p));
        cr_assert_eq(fv_plan_make(&p, &shape, &plan), FV_EINVAL, "%s", text);
        cr_assert(strstr(fv_last_error(), "write auto"), "%s", fv_last_error());
    }
}

Test(visipruner, a_filter_layer_is_checked_and_text_alone_is_left_as_it_is) {
    static const char *const wrong[] = {"-1", "32", "x", "3/31", "3x", "40/32", "auto2"};
    fv_plan plan;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char text[80];
        fv_policy p;
        snprintf(text, sizeof text, "prune=visipruner,filter=%s", wrong[i]);
        ok(fv_policy_parse(text, &p));
        fv_plan_shape shape = {.n_layer = 32, .n_kv = 1, .n_visual = 5, .n_text = 5};
        cr_assert_eq(fv_plan_make(&p, &shape, &plan), FV_EINVAL, "%s", text);
        cr_assert(strstr(fv_last_error(), "filter"), "%s", fv_last_error());
    }
    plan = planned("prune=visipruner,filter=16/32", 8, 5);
    cr_assert_eq(plan.prune.edit[0].layer, 5);
    plan = planned("prune=visipruner", 32, 0);
    cr_assert(plan.prune.n_edit == 0 && plan.prune.mask[0] == FV_MASK_NONE &&
              plan.note[FV_STAGE_PRUNE][0]);
    cr_assert(plan.exact_counts);
}

/* ---- decisions -------------------------------------------------------------------------- */

static const fv_plan_thresholds LLAVA = {.cos = 0.995, .l2 = 0.2, .exit_cos = 0.999};

/* Feeds the method one token's cosines in turn, from layer 7 of 32 on, after a filter at layer 7;
 * returns the layer after which all are pruned, or -1. */
static int32_t exit_layer(const char *exit, const float *cosines, int32_t n) {
    char text[80];
    fv_policy p;
    fv_params params;
    fv_prune_state state = {0};
    float l2[2] = {0.1f, 0.3f}, first[2] = {0.9f, 1.0f};
    int32_t kept[2], n_kept, pos[2] = {5, 6};
    snprintf(text, sizeof text, "prune=visipruner,exit=%s", exit);
    ok(fv_policy_parse(text, &p));
    fv_choice_params(&p.stage[FV_STAGE_PRUNE], 32, &params);
    fv_prune_context ctx = {.params = &params,
                            .layer = 8,
                            .n_layer = 32,
                            .n_visual = 2,
                            .pos = pos,
                            .keep = 2,
                            .thresholds = LLAVA,
                            .l2 = l2,
                            .cos = first};
    const fv_prune_method *m = fv_prune_method_of(FV_METHOD_PRUNE_visipruner);
    ok(m->keep(&ctx, &state, kept, &n_kept));
    cr_assert(n_kept == 1 && kept[0] == 1 && !state.over);
    ctx.n_visual = 1;
    for (int32_t i = 0; i < n; i++) {
        ctx.layer = 9 + i;
        ctx.cos = &cosines[i];
        ok(m->keep(&ctx, &state, kept, &n_kept));
        cr_assert_eq(n_kept, state.over ? 0 : 1);
        if (state.over) return ctx.layer - 1;
    }
    return -1;
}

Test(visipruner, layers_without_ablation_add_up_or_must_follow_one_another) {
    static const float mixed[] = {1, 0.99f, 1, 0.99f, 0.9991f, 0.9995f}, busy[] = {0.99f, 1, 0.5f};
    cr_assert_eq(exit_layer("cumulative", mixed, 6), 10);
    cr_assert_eq(exit_layer("consecutive", mixed, 6), 13);
    cr_assert_eq(exit_layer("cumulative", busy, 3), -1);
}

Test(visipruner, nothing_leaves_while_no_token_turns_the_output_or_before_the_first_layer) {
    fv_policy p;
    fv_params params;
    fv_prune_state state = {0};
    float l2[2] = {0, 0}, cosines[2] = {0.9951f, 0.996f};
    int32_t kept[2], n_kept, pos[2] = {5, 6};
    ok(fv_policy_parse("prune=visipruner", &p));
    fv_choice_params(&p.stage[FV_STAGE_PRUNE], 32, &params);
    fv_prune_context ctx = {.params = &params,
                            .layer = 8,
                            .n_layer = 32,
                            .n_visual = 2,
                            .pos = pos,
                            .keep = 2,
                            .thresholds = LLAVA,
                            .l2 = l2,
                            .cos = cosines};
    const fv_prune_method *m = fv_prune_method_of(FV_METHOD_PRUNE_visipruner);
    ok(m->keep(&ctx, &state, kept, &n_kept));
    cr_assert(n_kept == 2 && kept[1] == 1 && !state.said[0]);
    cosines[1] = 0.99f;
    ctx.layer = 9;
    ok(m->keep(&ctx, &state, kept, &n_kept));
    cr_assert(n_kept == 0 && state.over, "no row is longer than the threshold: all leave at once");
    cr_assert(strstr(state.said, "after layer 8: kept 0 of 2"), "%s", state.said);
}

/* ---- a whole prompt --------------------------------------------------------------------- */

typedef struct result {
    float logits[97];
    int32_t ran[FV_PLAN_MAX_LAYERS];
    char said[FV_PLAN_NOTE_MAX];
    int32_t kept[LAYERS]; /* visual tokens in the KV */
} result;

static void run(const char *policy, int32_t before, int32_t visual, int32_t chunk, result *out) {
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 2);
    tiny_prompt_make(&net, &p, before, visual, 9, 11, policy);
    p.visual_tokens = out->ran;
    p.pruned = out->said;
    ok(tiny_prefill(&net, &p, 1, chunk));
    memcpy(out->logits, p.logits, sizeof out->logits);
    for (int32_t l = 0; l < LAYERS; l++) {
        out->kept[l] = fv_kv_len(p.kv, l, 0, FV_SEG_VISUAL);
        for (int32_t g = 0; g < KV_HEADS; g++) {
            const int32_t *pos = fv_kv_positions(p.kv, l, g, FV_SEG_VISUAL);
            cr_assert_eq(fv_kv_len(p.kv, l, g, FV_SEG_VISUAL), out->kept[l]);
            for (int32_t j = 0; j < out->kept[l]; j++)
                cr_assert(pos[j] >= before && pos[j] < before + visual &&
                          (j == 0 || pos[j] > pos[j - 1]));
        }
    }
    fv_plan_bytes most = fv_plan_count(&p.plan);
    cr_assert_leq(fv_kv_bytes(p.kv, FV_SEG_VISUAL), most.visual);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

static bool same(const result *a, const result *b) { return same_bits(a->logits, b->logits, 97); }

Test(visipruner, thresholds_that_nothing_passes_leave_the_masks_alone) {
    result exact, none, shallow, all;
    run("", 5, VISUAL, 0, &exact);
    run("prune=visipruner,shallow=0,cos=-1", 5, VISUAL, 0, &none);
    cr_assert(same(&exact, &none), "without masks that is exact");
    cr_assert_not(strstr(none.said, "filtered"), "%s", none.said);
    run("prune=visipruner,cos=-1", 5, VISUAL, 0, &shallow);
    cr_assert_not(same(&exact, &shallow));
    run("prune=visipruner,cos=1,l2=0,exit_cos=1", 5, VISUAL, 0, &all);
    cr_assert(same(&shallow, &all), "F = V");
    cr_assert_eq(all.kept[3], VISUAL);
    cr_assert(strstr(all.said, "70 of 70"), "%s", all.said);
}

Test(visipruner, merging_is_nothing_on_an_image_of_one_token) {
    result exact, merged, dropped;
    run("", 5, 1, 0, &exact);
    run("prune=visipruner,shallow=1,cos=-1", 5, 1, 0, &merged);
    cr_assert(same(&exact, &merged));
    run("prune=visipruner,shallow=2,cos=-1", 5, 1, 0, &dropped);
    cr_assert_not(same(&exact, &dropped));
}

/* Text tokens of layer 0 attend to the second half of the image: its values matter, those of the
 * first half only through later layers. */
Test(visipruner, layer_0_may_keep_half_of_the_image_for_text) {
    result merged, half, dropped;
    run("prune=visipruner,shallow=1,cos=-1", 5, VISUAL, 0, &merged);
    run("prune=visipruner,shallow=1,cos=-1,first=half", 5, VISUAL, 0, &half);
    cr_assert_not(same(&merged, &half));
    run("prune=visipruner,shallow=1,cos=-1,first=half", 5, VISUAL, 7, &dropped);
    cr_assert(same(&half, &dropped), "chunks change nothing");
}

Test(visipruner, tokens_are_pruned_after_the_filter_and_the_exit) {
    result r;
    run("prune=visipruner,filter=0,l2=0.05,exit_cos=-1,exit_count=1", 5, VISUAL, 13, &r);
    cr_assert_eq(r.kept[0], VISUAL);
    cr_assert(r.kept[1] > 0 && r.kept[1] < VISUAL, "%d", r.kept[1]);
    cr_assert(r.kept[2] == 0 && r.kept[3] == 0, "detect is layer 1 of 4: the exit is after it");
    for (int32_t l = 0; l < LAYERS; l++) cr_assert_eq(r.ran[l], r.kept[l]);
    cr_assert(strstr(r.said, "filtered after layer 0"), "%s", r.said);
    cr_assert(strstr(r.said, "dropped after layer 1"), "%s", r.said);
}

/* Source layers of the layers of a filled KV, as digits; bytes are within the bound, and no more
 * layers were announced to share text keys than do. */
static const char *source_layers(const char *policy, result *out) {
    static char text[LAYERS + 1];
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 2);
    tiny_prompt_make(&net, &p, 5, VISUAL, 9, 11, policy);
    ok(tiny_prefill(&net, &p, 1, 0));
    memcpy(out->logits, p.logits, sizeof out->logits);
    int32_t reused = 0;
    for (int32_t l = 0; l < LAYERS; l++) {
        text[l] = (char)('0' + fv_kv_source_layer(p.kv, l));
        reused += fv_kv_borrows(p.kv, l, FV_SEG_TEXT);
    }
    fv_plan_bytes most = fv_plan_count(&p.plan);
    size_t visual = fv_kv_bytes(p.kv, FV_SEG_VISUAL);
    cr_assert_leq(visual, most.visual, "%s", policy);
    cr_assert_leq(visual + fv_kv_bytes(p.kv, FV_SEG_TEXT), most.held, "%s", policy);
    cr_assert_leq(fv_plan_reused_text(&p.plan), reused, "%s", policy);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
    return text;
}

#define BLOCK(how) ";lazy=" how ",map=given,blocks=0-3"

Test(visipruner, a_lazy_block_is_cut_where_tokens_leave_and_only_there) {
    result cut, whole, masked;
    cr_assert_str_eq(source_layers("prune=visipruner,filter=1,l2=0.05" BLOCK("vla"), &cut), "0022");
    cr_assert_str_eq(source_layers("prune=visipruner,filter=1,l2=0.05" BLOCK("gla"), &cut), "0022");
    cr_assert_str_eq(source_layers("prune=visipruner,filter=1,l2=0" BLOCK("vla"), &whole), "0000");
    cr_assert_str_eq(source_layers("prune=visipruner,cos=-1" BLOCK("vla"), &masked), "0000");
    cr_assert(same(&whole, &masked), "no row has left");
    static const char gone[] = "prune=visipruner,filter=0,l2=0.05,exit_cos=-1,exit_count=1";
    char policy[200];
    snprintf(policy, sizeof policy, "%s" BLOCK("gla"), gone);
    cr_assert_str_eq(source_layers(policy, &cut), "0122");
    snprintf(policy, sizeof policy, "%s" BLOCK("vla"), gone);
    cr_assert_str_eq(source_layers(policy, &cut), "0123", "nothing to share where no image row is");
}

/* A layer that becomes a source layer computes its own queries and keys again. */
Test(visipruner, a_block_cut_by_data_is_one_that_was_given_so) {
    result cut, given;
    source_layers("prune=visipruner,filter=1,l2=0.05" BLOCK("vla"), &cut);
    source_layers("prune=visipruner,filter=1,l2=0.05;lazy=vla,map=given,blocks=0-1/2-3", &given);
    cr_assert(same(&cut, &given));
    source_layers("prune=visipruner,filter=1,l2=0.05" BLOCK("gla"), &cut);
    source_layers("prune=visipruner,filter=1,l2=0.05;lazy=gla,map=given,blocks=0-1/2-3", &given);
    cr_assert(same(&cut, &given));
}

Test(visipruner, a_plan_bounds_the_layers_that_may_come_to_lead) {
    fv_plan whole = planned("prune=visipruner,cos=-1;lazy=vla,map=paper_like", 32, 576);
    fv_plan none = planned("lazy=vla,map=paper_like", 32, 576);
    uint64_t keys = KV_HEADS * 576 * D * 4;
    cr_assert_eq(whole.share.split_max, 2);
    cr_assert_eq(fv_plan_count(&whole).held, fv_plan_count(&none).held + 2 * keys);
    static const char across[] = "prune=visipruner,kv_shallow=drop;lazy=vla,map=given,blocks=4-8";
    whole = planned(across, 32, 576); /* of the masked layers nothing is kept */
    cr_assert(whole.share.source_layer[5] == 4 && whole.share.source_layer[6] == 6 &&
              whole.share.source_layer[8] == 6);
    fv_plan gla = planned("prune=visipruner;lazy=gla,map=paper_like", 32, 576);
    cr_assert_eq(fv_plan_reused_text(&gla), 23 - 2);
    gla = planned("prune=visipruner,filter=30;lazy=gla,map=paper_like", 32, 576);
    cr_assert_eq(gla.share.split_max, 0, "layer 31 is alone");
}

Test(visipruner, visual_kv_of_the_masked_layers_can_go) {
    result keep, drop;
    run("prune=visipruner,shallow=2,cos=-1", 5, VISUAL, 0, &keep);
    run("prune=visipruner,shallow=2,cos=-1,kv_shallow=drop", 5, VISUAL, 17, &drop);
    cr_assert(same(&keep, &drop), "prefill is the same");
    for (int32_t l = 0; l < LAYERS; l++) {
        cr_assert_eq(keep.kept[l], VISUAL);
        cr_assert_eq(drop.kept[l], l < 2 ? 0 : VISUAL);
        cr_assert_eq(drop.ran[l], VISUAL);
    }
}

Test(visipruner, text_before_the_image_is_unaffected) {
    tiny_net net;
    tiny_prompt p, q;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 2);
    tiny_prompt_make(&net, &p, 5, VISUAL, 9, 11, "");
    tiny_prompt_make(&net, &q, 5, VISUAL, 9, 11, "prune=visipruner,shallow=3,filter=1,self=drop");
    ok(tiny_prefill(&net, &p, 1, 0));
    ok(tiny_prefill(&net, &q, 1, 0));
    for (int32_t l = 0; l < LAYERS; l++)
        for (int value = 0; value < 2; value++) {
            void *a, *b;
            fv_kv_contiguous(p.kv, l, 1, FV_SEG_TEXT, value, 0, 14, &a);
            fv_kv_contiguous(q.kv, l, 1, FV_SEG_TEXT, value, 0, 14, &b);
            cr_assert(same_bits(a, b, 5 * D), "layer %d", l);
            cr_assert_eq(same_bits((float *)a + 13 * D, (float *)b + 13 * D, D), l == 0);
        }
    tiny_prompt_free(&p);
    tiny_prompt_free(&q);
    tiny_net_close(&net);
}

Test(visipruner, a_store_that_is_smaller_than_its_bound_is_handed_over_and_the_rest_given_back) {
    handoff_rig rig;
    tiny_prompt p;
    fv_received got;
    rig_open(&rig, &(rig_options){.dtype = FV_BF16});
    tiny_prompt_make(&rig.net, &p, 5, VISUAL, 9, 11,
                     "prune=visipruner,filter=1,l2=0.05,kv_shallow=drop");
    ok(tiny_prefill(&rig.net, &p, 1, 0));
    ok(rig_send(&rig, &p, 20, 1, &got, NULL));
    cr_assert(same_store(p.kv, got.kv));
    cr_assert_gt(got.bytes_surplus, 0);
    cr_assert_eq(fv_kv_bytes(got.kv, FV_SEG_VISUAL), fv_kv_bytes(p.kv, FV_SEG_VISUAL));
    fv_received_free(&got);
    cr_assert_eq(fv_kv_pool_used(rig.pool), 0);
    tiny_prompt_free(&p);
    rig_close(&rig);
}
