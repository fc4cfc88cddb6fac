/* pack=svd: the plan, the KV after prefill, and decoding. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode-worker/evict/evict.h"
#include "kv/packed.h"
#include "policy/plan/packed_shape.h"
#include "tests/support/evict.h"
#include "tests/support/handoff.h"
#include "tests/support/packed_error.h"
#include "tests/support/planned.h"

enum { BEFORE = 5, VISUAL = 70, AFTER = 9, STEPS = 4, MORE = 12 };

/* Full rank in f32: what exact computes, by other operations. */
#define WHOLE "pack=svd,rank_k=48,rank_v=48,gain=0,block=16"

/* ---- the plan ---------------------------------------------------------------------------- */

static const fv_plan_shape llava = {
    .n_layer = 32, .n_kv = 32, .n_visual = 576, .n_text = 50, .d_head = 128, .bytes_value = 2};

/* AttentionPack, table 1: 576 visual and 50 text tokens of LLaVA-1.5-7B and 13B, and 256 of
 * Qwen-VL. */
Test(pack, the_plan_has_the_sizes_of_the_paper) {
    static const struct {
        int32_t rank;
        double ratio;
    } rows[] = {{256, 1.830}, {128, 3.194}, {64, 5.089}, {32, 7.237}, {16, 9.172}};
    for (int i = 0; i < 5; i++) {
        char policy[64];
        snprintf(policy, sizeof policy, "pack=svd,rank_k=%d,rank_v=%d", rows[i].rank, rows[i].rank);
        fv_plan plan = plan_of(policy, llava);
        fv_plan_bytes bytes = fv_plan_count(&plan);
        double ratio = (double)bytes.raw / (double)bytes.held;
        cr_assert_float_eq(ratio, rows[i].ratio, 0.001, "rank %d: %g", rows[i].rank, ratio);
    }
    fv_plan r64 = plan_of("pack=svd", llava);
    cr_assert_eq(fv_plan_count(&r64).visual, 32ull * 2 * 64 * (576 + 4096) * 2);
}

/* (Tv + Tt) / (Tv / C + Tt) and megabytes of 10^6 of the same table, for models of other sizes. */
Test(pack, whole_requests_shrink_as_published) {
    static const struct {
        int32_t n_layer, n_kv, n_visual, n_text, rank;
        double ratio, megabytes;
    } rows[] = {{32, 32, 576, 50, 64, 5.089, 64.5},    {32, 32, 576, 50, 0, 1, 328.2},
                {40, 40, 576, 50, 64, 5.165, 0},       {40, 40, 576, 50, 32, 7.313, 0},
                {32, 32, 2056, 70, 128, 8.107, 137.5}, {32, 32, 256, 38, 64, 2.77, 0},
                {32, 32, 256, 39, 32, 4.05, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char policy[80] = "";
        fv_plan_shape shape = llava;
        shape.n_layer = rows[i].n_layer;
        shape.n_kv = rows[i].n_kv;
        shape.n_visual = rows[i].n_visual;
        shape.n_text = rows[i].n_text;
        if (rows[i].rank)
            snprintf(policy, sizeof policy, "pack=svd,rank_k=%d,rank_v=%d", rows[i].rank,
                     rows[i].rank);
        fv_plan plan = plan_of(policy, shape);
        fv_plan_bytes bytes = fv_plan_count(&plan);
        double ratio = (double)bytes.raw / (double)bytes.held, mb = (double)bytes.held / 1e6;
        cr_expect(fabs(ratio - rows[i].ratio) < 3e-3 * rows[i].ratio, "row %zu: %g", i, ratio);
        if (rows[i].megabytes > 0)
            cr_expect(fabs(mb - rows[i].megabytes) < 0.1, "row %zu: %g MB", i, mb);
    }
}

Test(pack, layers_with_few_tokens_stay_raw) {
    fv_plan plan = plan_of("prune=vtw,layer=20;pack=svd", llava);
    for (int32_t l = 0; l < 32; l++) cr_assert_eq(plan.pack.layer[l].rank[0] > 0, l < 20);
    plan = plan_of("prune=random,layer=16,keep=0.17;pack=svd", llava); /* 97 tokens, C = 1.48 */
    for (int32_t l = 0; l < 32; l++) cr_assert_eq(plan.pack.layer[l].rank[1] > 0, l < 16);
    cr_assert_eq(fv_plan_count(&plan).visual,
                 16ull * 2 * 64 * (576 + 4096) * 2 + 16ull * 97 * 32 * 128 * 4);
}

Test(pack, a_request_that_has_nothing_to_pack_says_so) {
    fv_plan_shape text = llava, one = llava;
    text.n_visual = 0;
    one.n_visual = 1;
    fv_plan plan = plan_of("pack=svd;expand=attention", text);
    cr_assert(!plan.pack.any && strstr(plan.note[FV_STAGE_PACK], "no image"));
    cr_assert(strstr(plan.note[FV_STAGE_EXPAND], "no layer is packed"));
    plan = plan_of("pack=svd;expand=full", one);
    cr_assert(!plan.pack.any && strstr(plan.note[FV_STAGE_PACK], "to be smaller"));
    cr_assert(strstr(plan.note[FV_STAGE_EXPAND], "no layer is packed"));
    cr_assert_eq(fv_plan_count(&plan).held, 51ull * 32 * 32 * 128 * 4);
}

Test(pack, two_planes_are_laid_for_those_who_read_one) {
    fv_plan plan = plan_of("pack=svd,rank_k=32;expand=attention", llava);
    cr_assert(plan.pack.layer[3].rank2[0] == 32 && plan.pack.layer[3].rank2[1] == 16);
    plan = plan_of("pack=svd,rank_k=32;expand=attention,parts=both,rank=0.01", llava);
    cr_assert(plan.pack.layer[3].rank2[0] == 1 && plan.pack.layer[3].rank2[1] == 1);
    plan = plan_of("pack=svd", llava);
    cr_assert(plan.pack.layer[3].rank2[0] == 64 && plan.pack.layer[3].rank2[1] == 64);
}

/* ---- the KV after prefill ---------------------------------------------------------------- */

static void prefill(tiny_net *net, tiny_prompt *p, const char *policy, int32_t chunk) {
    tiny_prompt_make(net, p, BEFORE, VISUAL, AFTER, 11, policy);
    cr_assert_eq(tiny_prefill(net, p, 1, chunk), FV_OK, "%s", fv_last_error());
    cr_assert_eq(p->packed.status, FV_OK, "%s", p->packed.text);
}

static void assert_factors(tiny_shape shape) {
    static const char *const policies[] = {WHOLE, "pack=svd,rank_k=48,rank_v=48,gain=0,block=0",
                                           "pack=svd,rank_k=48,rank_v=48,gain=0,block=1",
                                           "pack=svd,rank_k=10,rank_v=12,gain=0,block=8",
                                           "pack=svd,rank_k=40,rank_v=40,gain=0,energy=0.7"};
    tiny_net net;
    tiny_prompt raw, p;
    tiny_net_open(&net, shape, FV_F32, NULL, 1);
    prefill(&net, &raw, "", 0);
    for (int i = 0; i < 5; i++) {
        prefill(&net, &p, policies[i], i % 2 ? 7 : 0);
        for (int32_t l = 0; l < 4; l++) {
            const fv_kv_packed *at = fv_kv_packed_of(p.kv, l, FV_SEG_VISUAL);
            cr_assert(at && at->rows.n == VISUAL, "%s", policies[i]);
            for (int k = 0; k < 2; k++) {
                double err = packed_error(raw.kv, at, l, k, &net.cfg.rope);
                double said = (double)p.packed.layer[l].error[k];
                cr_assert_eq(p.packed.layer[l].rank[k], at->part[k].shape.lowrank.rank);
                cr_assert_float_eq(err, said, 1e-3, "%s, layer %d, part %d: %g and not %g",
                                   policies[i], l, k, err, said);
                if (i < 3) cr_assert_lt(err, 1e-4);
                if (i == 3) cr_assert(err > 0.01 && err < 1);
                if (i == 4)
                    cr_assert(err * err <= 0.3 + 1e-6 && at->part[k].shape.lowrank.rank < 40);
            }
        }
        tiny_prompt_free(&p);
    }
    tiny_prompt_free(&raw);
    tiny_net_close(&net);
}

Test(pack, factors_are_those_of_the_tokens) {
    for (int grid = 0; grid < 2; grid++) assert_factors(tiny_shape_either(grid));
}

Test(pack, bytes_are_those_of_the_plan_in_the_pool_on_the_wire_and_where_they_arrive) {
    static const char *const policies[] = {
        "pack=svd,rank_k=16,rank_v=16,gain=0",
        "pack=svd,rank_k=16,rank_v=24,bits=8,gain=0",
        "pack=svd,rank_k=9,rank_v=7,bits=4,gain=0;expand=attention",
        "pack=svd,rank_k=99,rank_v=99,gain=0",
        "prune=vtw,layer=2;pack=svd,rank_k=8,rank_v=8",
        "prune=random,layer=2,keep=0.1;pack=svd,rank_k=12,rank_v=12",
        "lazy=vla,map=given,blocks=1-3;pack=svd,rank_k=12,rank_v=9,gain=0",
        "lazy=gla,map=given,blocks=0-1/2-3;pack=svd,rank_k=12,rank_v=9,gain=0;expand=attention",
    };
    static const fv_dtype dtypes[] = {FV_F32, FV_BF16, FV_F16};
    for (int i = 0; i < 24; i++) {
        handoff_rig rig;
        tiny_prompt p;
        fv_received got;
        rig_open(&rig, &(rig_options){.dtype = dtypes[i % 3]});
        prefill(&rig.net, &p, policies[i / 3], 0);
        size_t bytes = fv_plan_count(&p.plan).visual;
        cr_assert_eq(fv_kv_bytes(p.kv, FV_SEG_VISUAL), bytes, "%s", policies[i / 3]);
        cr_assert_eq(fv_kv_bytes_held(p.kv), fv_kv_pool_used(rig.net.pool));
        cr_assert_eq(rig_send(&rig, &p, MORE, 0, &got, NULL), FV_OK, "%s", fv_last_error());
        cr_assert(same_store(p.kv, got.kv));
        cr_assert_eq(fv_kv_bytes(got.kv, FV_SEG_VISUAL), bytes);
        cr_assert_eq(fv_kv_bytes_held(got.kv), fv_kv_pool_used(rig.pool));
        fv_received_free(&got);
        tiny_prompt_free(&p);
        cr_assert_eq(fv_kv_pool_used(rig.net.pool), 0);
        rig_close(&rig);
    }
}

/* ---- decoding ------------------------------------------------------------------------ */

static float most_off(const float *a, const float *b, int32_t n) {
    float most = 0;
    for (int32_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= most)) most = fabsf(a[i] - b[i]);
    return most;
}

static int32_t best(const float *logits, int32_t n) {
    int32_t at = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[at]) at = i;
    return at;
}

Test(pack, factors_of_full_rank_answer_as_exact_does) {
    static const char *const policies[] = {WHOLE, "pack=svd,rank_k=48,rank_v=48,gain=0,block=0",
                                           "pack=svd,rank_k=48,rank_v=48,gain=0,block=1"};
    const tiny_shape shapes[] = {
        {.n_layer = 4, .n_head = 4, .n_kv = 2, .d_head = 24, .d_ffn = 70, .vocab = 97},
        {.n_layer = 3, .n_head = 6, .n_kv = 1, .d_head = 16, .d_ffn = 50, .vocab = 97},
        {.n_layer = 3, .n_head = 3, .n_kv = 3, .d_head = 16, .d_ffn = 50, .vocab = 97},
        tiny_shape_mrope(false),
        tiny_shape_mrope(true)};
    for (int i = 0; i < 15; i++) {
        tiny_net net;
        tiny_prompt raw, p, *both[2] = {&raw, &p};
        tiny_net_open(&net, shapes[i / 3], FV_F32, NULL, 1);
        prefill(&net, &raw, "", 0);
        prefill(&net, &p, policies[i % 3], 0);
        cr_assert(same_bits(raw.logits, p.logits, 97), "the first token comes from the rows");
        for (int step = 0; step < STEPS; step++) {
            int32_t id = best(raw.logits, 97);
            cr_assert_eq(best(p.logits, 97), id);
            for (int b = 0; b < 2; b++)
                cr_assert_eq(tiny_step(&net, &both[b], 1, &id, 1, step), FV_OK, "%s",
                             fv_last_error());
            float off = most_off(raw.logits, p.logits, 97);
            cr_assert_lt(off, 2e-3f, "%s, step %d: %g", policies[i % 3], step, (double)off);
        }
        tiny_prompt_free(&raw);
        tiny_prompt_free(&p);
        tiny_net_close(&net);
    }
}

#define READS "pack=svd,rank_k=20,rank_v=24,gain=0;expand=attention"

Test(pack, neighbours_change_no_bit_of_an_answer_packed_or_raw) {
    static const char *const policies[] = {"", READS, "pack=svd,rank_k=12,rank_v=12,gain=0,bits=8",
                                           "prune=vtw,layer=2;pack=svd,rank_k=9,rank_v=9,gain=0"};
    tiny_net net;
    tiny_prompt alone[4], oob[4], *one, *all[4];
    tiny_net_open(&net, tiny_shape_default(), FV_BF16, NULL, 2);
    for (int b = 0; b < 4; b++) {
        tiny_prompt_make(&net, &alone[b], BEFORE, VISUAL - 9 * b, AFTER, 5 + (uint64_t)b,
                         policies[b]);
        tiny_prompt_make(&net, &oob[b], BEFORE, VISUAL - 9 * b, AFTER, 5 + (uint64_t)b,
                         policies[b]);
        cr_assert_eq(tiny_prefill(&net, &alone[b], 1, 0), FV_OK, "%s", fv_last_error());
        all[b] = &oob[b];
    }
    cr_assert_eq(tiny_prefill(&net, oob, 4, 13), FV_OK, "%s", fv_last_error());
    for (int step = 0; step < STEPS; step++) {
        int32_t id = 7 + step;
        cr_assert_eq(tiny_step(&net, all, 4, &id, 1, step), FV_OK, "%s", fv_last_error());
        for (int b = 0; b < 4; b++) {
            one = &alone[b];
            cr_assert_eq(tiny_step(&net, &one, 1, &id, 1, step), FV_OK);
            cr_assert(same_bits(alone[b].logits, oob[b].logits, 97), "%s, step %d", policies[b],
                      step);
        }
    }
    for (int b = 0; b < 4; b++) {
        tiny_prompt_free(&alone[b]);
        tiny_prompt_free(&oob[b]);
    }
    tiny_net_close(&net);
}

static int32_t full_rows(const fv_kv_packed *p) {
    int32_t n = 0;
    for (int32_t j = 0; j < p->rows.n; j++) n += p->group[j] == 0;
    return n;
}

/* A token's importance is the attention it receives from the others. Recomputing it from
 * uncompressed KV would be another model, so the rule is checked by its fixed points. */
Test(pack, importance_begins_with_the_prompt_and_follows_the_answer) {
    static const char *const policies[] = {READS ",alpha=1", READS ",alpha=0", READS ",alpha=0.25"};
    float after[3][VISUAL], first[VISUAL];
    for (int i = 0; i < 3; i++) {
        tiny_net net;
        tiny_prompt p, *one = &p;
        tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
        prefill(&net, &p, policies[i], 0);
        fv_kv_packed *at = fv_kv_packed_of(p.kv, 1, FV_SEG_VISUAL);
        cr_assert(at->observed);
        double sum = 0;
        for (int32_t j = 0; j < VISUAL; j++) sum += (double)at->importance[j];
        cr_assert(sum > 0.1 && sum < 1, "a share of the last row's attention: %g", sum);
        memcpy(first, at->importance, sizeof first);
        int32_t id = 3;
        cr_assert_eq(tiny_step(&net, &one, 1, &id, 1, 0), FV_OK, "%s", fv_last_error());
        cr_assert_eq(full_rows(at), 18, "a quarter of 70, rounded up");
        float least = 1, most = 0;
        for (int32_t j = 0; j < VISUAL; j++) {
            if (!at->group[j] && first[j] < least) least = first[j];
            if (at->group[j] && first[j] > most) most = first[j];
        }
        cr_assert_geq(least, most, "the step read what mattered to the prompt");
        memcpy(after[i], at->importance, sizeof after[i]);
        tiny_prompt_free(&p);
        tiny_net_close(&net);
    }
    cr_assert_eq(memcmp(after[0], first, sizeof first), 0, "alpha 1: nothing is learned");
    cr_assert_neq(memcmp(after[1], first, sizeof first), 0);
    for (int32_t j = 0; j < VISUAL; j++)
        cr_assert_float_eq(after[2][j], 0.25f * first[j] + 0.75f * after[1][j], 1e-6);
}

Test(pack, all_at_full_rank_are_read_as_without_groups) {
    tiny_net net;
    tiny_prompt a, b, *both[2] = {&a, &b};
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    prefill(&net, &a, "pack=svd,rank_k=20,rank_v=24,gain=0;expand=full", 0);
    prefill(&net, &b, READS ",full=1,rank=1", 0);
    for (int step = 0; step < STEPS; step++) {
        int32_t id = 11;
        cr_assert_eq(tiny_step(&net, both, 2, &id, 1, step), FV_OK, "%s", fv_last_error());
        cr_assert(same_bits(a.logits, b.logits, 97), "step %d", step);
    }
    tiny_prompt_free(&a);
    prefill(&net, &a, READS ",full=0,rank=0.1", 0);
    int32_t id = 11;
    tiny_prompt_free(&b);
    prefill(&net, &b, READS ",full=1,rank=0.1", 0);
    cr_assert_eq(tiny_step(&net, both, 2, &id, 1, 0), FV_OK);
    cr_assert(most_off(a.logits, b.logits, 97) > 1e-4f, "and rows at a part of the rank differ");
    tiny_prompt_free(&a);
    tiny_prompt_free(&b);
    tiny_net_close(&net);
}

/* A question of five tokens, in one chunk or as other requests leave space in the batch. */
Test(pack, a_turn_that_is_cut_ends_with_the_same_bits_and_groups) {
    static const int32_t ids[] = {4, 8, 15, 16, 23, 42},
                         cuts[][3] = {{5, 0, 0}, {2, 3, 0}, {1, 1, 3}};
    tiny_net net;
    tiny_prompt p[3];
    fv_model_runner *runner;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    cr_assert_eq(fv_model_runner_open(net.dec, &runner), FV_OK);
    for (int i = 0; i < 3; i++) {
        prefill(&net, &p[i], READS, 0);
        for (int32_t c = 0, at = 0; c < 3; at += cuts[i][c++]) {
            fv_step_seq seq = {.kv = p[i].kv,
                               .n = cuts[i][c],
                               .ids = ids + at,
                               .pos = p[i].n + at,
                               .partial = at + cuts[i][c] < 5};
            if (seq.n) cr_assert_eq(fv_model_runner_run(runner, &seq, 1, p[i].logits), FV_OK);
        }
        fv_step_seq next = {.kv = p[i].kv, .n = 1, .ids = ids + 5, .pos = p[i].n + 5};
        cr_assert_eq(fv_model_runner_run(runner, &next, 1, p[i].logits), FV_OK);
        cr_assert(same_bits(p[i].logits, p[0].logits, 97), "cut %d", i);
        for (int32_t l = 0; l < 4; l++)
            cr_assert_eq(memcmp(fv_kv_packed_of(p[i].kv, l, FV_SEG_VISUAL)->importance,
                                fv_kv_packed_of(p[0].kv, l, FV_SEG_VISUAL)->importance, VISUAL * 4),
                         0);
    }
    for (int i = 0; i < 3; i++) tiny_prompt_free(&p[i]);
    fv_model_runner_close(runner);
    tiny_net_close(&net);
}

Test(pack, decoding_continues_with_the_same_bits_after_a_hand_off) {
    static const char *const policies[] = {READS, "pack=svd,rank_k=20,rank_v=20,gain=0,bits=4",
                                           "prune=random,layer=1,keep=0.5;" READS ",parts=both",
                                           "lazy=vla,map=given,blocks=1-3;" READS};
    for (int i = 0; i < 4; i++) {
        handoff_rig rig;
        tiny_prompt p, *one = &p;
        fv_received got;
        rig_open(&rig, &(rig_options){.dtype = FV_F16});
        prefill(&rig.net, &p, policies[i], 0);
        cr_assert_eq(rig_send(&rig, &p, MORE, 2, &got, NULL), FV_OK, "%s", fv_last_error());
        float here[97];
        for (int step = 0; step < STEPS; step++) {
            int32_t id = 30 + step;
            cr_assert_eq(tiny_step(&rig.net, &one, 1, &id, 1, step), FV_OK);
            memcpy(here, p.logits, sizeof here);
            fv_kv *kv = p.kv;
            p.kv = got.kv;
            cr_assert_eq(tiny_step(&rig.net, &one, 1, &id, 1, step), FV_OK);
            p.kv = kv;
            cr_assert(same_bits(here, p.logits, 97), "%s, step %d", policies[i], step);
        }
        fv_received_free(&got);
        tiny_prompt_free(&p);
        rig_close(&rig);
    }
}

Test(pack, non_finite_tokens_end_only_their_request) {
    tiny_net net;
    tiny_prompt p[2], raw;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    for (int b = 0; b < 2; b++)
        tiny_prompt_make(&net, &p[b], BEFORE, VISUAL, AFTER, 11, "pack=svd,rank_k=9,gain=0");
    p[0].embeds[40] = NAN;
    cr_assert_eq(tiny_prefill(&net, p, 2, 0), FV_OK, "%s", fv_last_error());
    cr_assert_eq(p[0].packed.status, FV_EINVAL);
    cr_assert(strstr(p[0].packed.text, "layer 0"), "%s", p[0].packed.text);
    cr_assert_eq(p[1].packed.status, FV_OK);
    cr_assert_not_null(fv_kv_packed_of(p[1].kv, 3, FV_SEG_VISUAL));
    prefill(&net, &raw, "", 0);
    cr_assert(same_bits(raw.logits, p[1].logits, 97));
    for (int b = 0; b < 2; b++) tiny_prompt_free(&p[b]);
    tiny_prompt_free(&raw);
    cr_assert_eq(fv_kv_pool_used(net.pool), 0);
    tiny_net_close(&net);
}

/* ---- the first token, and resumed answers -------------------------------------------- */

Test(pack, a_resumed_answer_continues_with_the_same_bits) {
    static const char *const policies[] = {
        READS,
        "pack=svd,rank_k=20,rank_v=20,gain=0,first=packed",
        "prune=fastv,layer=1,keep=0.6;pack=svd,rank_k=7,rank_v=7,gain=0,bits=8",
        "pack=svd,rank_k=9,rank_v=9,gain=0;evict=importance,keep=0.4",
        READS ";evict=importance,keep=0.7",
        "pack=quant,bits=4,outliers=0.1,first=packed",
        "prune=fastv,layer=1,keep=0.6;pack=quant,block=8",
        "pack=minicache,start=0,gamma=0.2,first=packed",
        "prune=fastv,layer=2,keep=0.6;pack=minicache,block=8"};
    static const int32_t more[] = {3, 14, 15};
    for (int i = 0; i < 9; i++) { /* more of them in test_unpack.c */
        tiny_net net;
        tiny_prompt p, q, *one = &p, *other = &q;
        fv_evict evict;
        tiny_net_open(&net, tiny_shape_default(), FV_BF16, NULL, 1);
        prefill(&net, &p, policies[i], 0);
        cr_assert_eq(evict_init(&evict, policies[i], p.n), FV_OK);
        for (int step = 0; step < 3; step++) {
            cr_assert_eq(fv_evict_step(&evict, p.kv, step + 1), FV_OK, "%s", fv_last_error());
            cr_assert_eq(tiny_step(&net, &one, 1, &more[step], 1, step), FV_OK);
        }
        tiny_prompt_again(&net, &q, &p, policies[i], more, 3);
        cr_assert_eq(tiny_prefill(&net, &q, 1, 9), FV_OK, "%s", fv_last_error());
        cr_assert(same_bits(p.logits, q.logits, 97), "%s", policies[i]);
        int32_t next = 92;
        cr_assert_eq(tiny_step(&net, &one, 1, &next, 1, 3), FV_OK);
        cr_assert_eq(tiny_step(&net, &other, 1, &next, 1, 0), FV_OK);
        cr_assert(same_bits(p.logits, q.logits, 97), "%s, a token on", policies[i]);
        tiny_prompt_free(&p);
        tiny_prompt_free(&q);
        tiny_net_close(&net);
    }
}

Test(pack, the_first_token_comes_from_factors_where_that_is_asked) {
    tiny_net net;
    tiny_prompt raw, whole, low;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    prefill(&net, &raw, "", 0);
    prefill(&net, &whole, WHOLE ",first=packed", 11);
    prefill(&net, &low, "pack=svd,rank_k=4,rank_v=4,gain=0,first=packed", 0);
    cr_assert_lt(most_off(raw.logits, whole.logits, 97), 2e-3f);
    cr_assert_gt(most_off(raw.logits, low.logits, 97), 1e-2f);
    for (int32_t g = 0; g < 2; g++)
        cr_assert_eq(fv_kv_len(low.kv, 3, g, FV_SEG_TEXT), BEFORE + AFTER,
                     "no row more, none less");
    tiny_prompt_free(&raw);
    tiny_prompt_free(&whole);
    tiny_prompt_free(&low);
    tiny_net_close(&net);
}

/* ---- tokens that are pruned ---------------------------------------------------------- */

static void anneal_packed(const char *lazy) {
    char policy[200];
    handoff_rig rig;
    tiny_prompt p, *one = &p;
    fv_received got;
    fv_evict evict;
    snprintf(policy, sizeof policy,
             "%spack=svd,rank_k=12,rank_v=12,gain=0,block=8;"
             "evict=vta,tau=10,layer=1,shallow=rank_by_first_tap",
             lazy);
    rig_open(&rig, &(rig_options){.dtype = FV_F32});
    prefill(&rig.net, &p, policy, 0);
    cr_assert_eq(rig_send(&rig, &p, MORE, 0, &got, NULL), FV_OK, "%s", fv_last_error());
    cr_assert_eq(evict_init(&evict, got.policy, got.n), FV_OK);
    fv_kv *here = p.kv;
    p.kv = got.kv;
    size_t bytes = fv_kv_bytes(p.kv, FV_SEG_VISUAL);
    for (int32_t t = 1; t <= 10; t++) {
        int32_t id = t, left = (int32_t)floor(VISUAL * cos(acos(-1) / 20 * t) + 1e-9);
        cr_assert_eq(fv_evict_step(&evict, p.kv, t), FV_OK, "%s", fv_last_error());
        for (int32_t l = 0; l < 4; l++) {
            const fv_kv_packed *at = fv_kv_packed_of(p.kv, l, FV_SEG_VISUAL);
            cr_assert_eq(at ? at->n_alive : 0, left, "layer %d at %d", l, t);
            for (int32_t a = 0; at && a < at->rows.n_anchor; a++)
                for (int32_t j = at->first[a]; j < at->first[a + 1]; j++)
                    cr_assert_eq(at->rank[j] < left, j < at->first[a] + at->alive[a]);
        }
        cr_assert_eq(tiny_step(&rig.net, &one, 1, &id, 1, t - 1), FV_OK, "%s", fv_last_error());
        for (int32_t i = 0; i < 97; i++) cr_assert(isfinite(p.logits[i]));
        cr_assert_leq(fv_kv_bytes(p.kv, FV_SEG_VISUAL), bytes);
    }
    cr_assert_eq(fv_kv_bytes(p.kv, FV_SEG_VISUAL), 0, "nothing is left");
    p.kv = here;
    fv_received_free(&got);
    tiny_prompt_free(&p);
    rig_close(&rig);
}

Test(pack, annealing_evicts_packed_tokens_in_rank_order) {
    anneal_packed("");
    anneal_packed("lazy=vla,map=given,blocks=1-3;");
}

Test(pack, the_least_important_half_leaves_and_takes_its_bytes) {
    handoff_rig rig;
    tiny_prompt p;
    fv_received got;
    fv_evict evict;
    float before[4][VISUAL];
    rig_open(&rig, &(rig_options){.dtype = FV_F32});
    prefill(&rig.net, &p, "pack=svd,rank_k=12,rank_v=12,gain=0;evict=importance", 0);
    cr_assert_eq(rig_send(&rig, &p, MORE, 0, &got, NULL), FV_OK, "%s", fv_last_error());
    cr_assert_eq(evict_init(&evict, got.policy, got.n), FV_OK);
    for (int32_t l = 0; l < 4; l++)
        memcpy(before[l], fv_kv_packed_of(got.kv, l, FV_SEG_VISUAL)->importance, sizeof before[l]);
    for (int32_t t = 1; t < 3; t++) {
        cr_assert_eq(fv_evict_step(&evict, got.kv, t), FV_OK, "%s", fv_last_error());
        for (int32_t l = 0; l < 4; l++) {
            const fv_kv_packed *at = fv_kv_packed_of(got.kv, l, FV_SEG_VISUAL);
            cr_assert(at->rows.n == VISUAL / 2 && at->part[0].shape.n == VISUAL / 2);
            int32_t above = 0;
            float least = 1;
            for (int32_t j = 0; j < at->rows.n; j++)
                if (at->importance[j] < least) least = at->importance[j];
            for (int32_t j = 0; j < VISUAL; j++) above += before[l][j] > least;
            cr_assert_lt(above, VISUAL / 2, "those that stayed are the most important");
        }
    }
    cr_assert_eq(fv_evict_count(got.kv), 4 * 2 * VISUAL / 2);
    cr_assert_eq(fv_kv_bytes_held(got.kv), fv_kv_pool_used(rig.pool));
    fv_received_free(&got);
    tiny_prompt_free(&p);
    rig_close(&rig);
}
