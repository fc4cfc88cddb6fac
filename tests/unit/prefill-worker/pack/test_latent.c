/* pack=latent: the plan, the KV after prefill, its bytes and what leaves it. The bits of attention:
 * tests/ops/run/latent.c; what holds for every method: test_every_policy.c. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/net/kv_packed.h"
#include "model/net/unpack.h"
#include "policy/plan/packed_shape.h"
#include "tests/support/handoff.h"
#include "tests/support/latent.h"
#include "tests/support/planned.h"
#include "tests/support/stream.h"

enum { BEFORE = 5, VISUAL = 70, AFTER = 9, MORE = 12 };

static const fv_plan_shape llava = {.n_layer = 32,
                                    .n_kv = 32,
                                    .n_visual = 576,
                                    .n_text = 50,
                                    .d_head = 128,
                                    .bytes_value = 2,
                                    .latent_layers = 8,
                                    .latent_rank = 256};

/* 8 layers of 2 x 4096 numbers at 16 bits over 576 tokens: 75 497 472 bytes a group. */
Test(latent, the_plan_knows_the_bytes_and_keeps_the_budget) {
    static const struct {
        double budget;
        int32_t row_bits;
    } cases[] = {{1.0 / 512, 2048}, {1.0 / 1024, 1024}, {1.0 / 4000, 261}, {1.0 / 400, 2048}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char policy[80];
        snprintf(policy, sizeof policy, "pack=latent,budget=%.10g", cases[i].budget);
        fv_plan plan = plan_of(policy, llava);
        cr_assert(plan.pack.any && plan.pack.latent && plan.exact_counts);
        for (int32_t l = 0; l < 32; l++) {
            cr_assert_eq(plan.pack.layer[l].row_bits, cases[i].row_bits, "%d bits",
                         plan.pack.layer[l].row_bits);
            cr_assert_eq(fv_plan_pair(&plan, l), l - l % 8);
        }
        uint64_t raw = (uint64_t)32 * 2 * 4096 * 2 * 576, visual = fv_plan_count(&plan).visual;
        cr_assert_leq((double)visual, cases[i].budget * (double)raw + 1);
        cr_assert_eq(visual, 4 * fv_packed_aligned(2 * (size_t)cases[i].row_bits * 36));
    }
    fv_plan plan = plan_of("pack=latent,bits=5,budget=1/4000", llava);
    cr_assert_eq(plan.pack.layer[0].row_bits, 260);
    plan = plan_of("pack=latent,bits=3,budget=1/10", llava);
    cr_assert_eq(plan.pack.layer[0].row_bits, 3 * 256);
    plan = plan_of("pack=latent,bits=5,budget=1/300000", llava);
    cr_assert(!plan.pack.any, "not even one coefficient");
}

static void assert_note(const char *policy, fv_plan_shape shape, const char *why) {
    fv_plan plan = plan_of(policy, shape);
    cr_assert(!plan.pack.any && !plan.pack.latent && plan.pack.bits == 0);
    cr_assert(strstr(plan.note[FV_STAGE_PACK], why), "%s", plan.note[FV_STAGE_PACK]);
}

Test(latent, a_request_that_cannot_be_packed_says_why) {
    fv_token_span image = {.first = 0, .n = 576, .t = 1, .h = 24, .w = 24};
    fv_plan_shape s = llava;
    s.latent_layers = 0;
    assert_note("pack=latent", s, "no latent directions");
    s.no_latent = "measured with another KV dtype";
    assert_note("pack=latent", s, "another KV dtype");
    s = llava;
    s.n_visual = 0;
    assert_note("pack=latent", s, "no image");
    s = llava;
    s.n_span = 1;
    s.span = &image;
    assert_note("pack=latent", s, "first token has to stay exact");
    assert_note("pack=latent,budget=0.000001", llava, "no group");
}

/* Groups within which tokens are dropped stay raw. */
Test(latent, layers_of_different_tokens_stay_raw) {
    fv_plan plan = plan_of("prune=fastv,layer=12,keep=0.5;pack=latent", llava);
    for (int32_t l = 0; l < 32; l++)
        cr_assert_eq(plan.pack.layer[l].row_bits > 0, l < 8 || l >= 16, "layer %d", l);
    plan = plan_of("prune=fastv,layer=16,keep=0.5;pack=latent", llava);
    for (int32_t l = 0; l < 32; l++) cr_assert(plan.pack.layer[l].row_bits > 0);
}

Test(latent, methods_that_need_ranks_or_tokens_of_their_own_conflict) {
    static const char *const bad[] = {
        "lazy=vla;pack=latent",         "select=csp,heads=shared;pack=latent",
        "pack=latent;expand=attention", "pack=latent;evict=importance",
        "pack=latent;evict=h2o",        "prune=pdrop;pack=latent",
        "pack=latent,budget=0",         "pack=latent,budget=1/0",
        "pack=latent,budget=1/"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fv_policy p;
        fv_plan plan;
        fv_status st = fv_policy_parse(bad[i], &p);
        if (st == FV_OK) st = fv_plan_make(&p, &llava, &plan);
        cr_assert_eq(st, FV_EINVAL, "%s", bad[i]);
    }
    fv_policy p;
    cr_assert_eq(fv_policy_parse("pack=latent,budget=1/512", &p), FV_OK);
    cr_assert_eq(p.stage[FV_STAGE_PACK].value[0], 1.0 / 512);
}

/* ---- the KV after prefill ---------------------------------------------------------------- */

static void prefill(tiny_net *net, tiny_prompt *p, const char *policy, int32_t chunk) {
    tiny_prompt_make(net, p, BEFORE, VISUAL, AFTER, 11, policy);
    cr_assert_eq(tiny_prefill(net, p, 1, chunk), FV_OK, "%s", fv_last_error());
    cr_assert_eq(p->packed.status, FV_OK, "%s", p->packed.text);
}

/* ||M - M~|| / ||M|| of a layer's rows, as exact KV has them; keys before rotation. */
static double error_of(tiny_net *net, const tiny_prompt *raw, const fv_kv_packed *at, int32_t layer,
                       int kind) {
    int32_t D = net->cfg.d_head, H = net->cfg.n_kv, W = D * H;
    float cosine[FV_ROPE_MAX_HALF], sine[FV_ROPE_MAX_HALF], *m = malloc((size_t)W * sizeof *m);
    double off = 0, all = 0;
    fv_rope rope;
    fv_rope_init(&rope, &net->cfg.rope, D);
    for (int32_t j = 0; j < at->rows.n; j++) {
        fv_rope_pos pos = fv_rope_map_at(fv_kv_rope_map(raw->kv), at->pos[j]);
        fv_rope_angles(&rope, &pos, 1, cosine, sine);
        fv_latent_read(&at->part[kind], j, 1, m);
        for (int32_t c = 0; c < W; c++) {
            void *row;
            fv_kv_contiguous(raw->kv, layer, c / D, FV_SEG_VISUAL, kind == 1, j, j + 1, &row);
            const float *x = row;
            int32_t i = c % D % (D / 2);
            double a = (double)x[i], b = (double)x[i + D / 2], v = (double)x[c % D];
            double co = (double)cosine[i], si = (double)sine[i];
            if (kind == 0) v = c % D < D / 2 ? a * co + b * si : b * co - a * si;
            off += (v - (double)m[c]) * (v - (double)m[c]);
            all += v * v;
        }
    }
    free(m);
    return sqrt(off / all);
}

static void assert_rows(tiny_shape shape) {
    tiny_net net;
    tiny_prompt raw, p;
    tiny_net_open(&net, shape, FV_F32, NULL, 1);
    prefill(&net, &raw, "", 0);
    for (int i = 0; i < 2; i++) {
        prefill(&net, &p, i ? "pack=latent,budget=0.03" : "pack=latent,budget=0.1", i ? 7 : 0);
        for (int32_t l = 0; l < 4; l++) {
            const fv_kv_packed *at = fv_kv_packed_at(p.kv, l);
            cr_assert(at && at->rows.n == VISUAL && !fv_kv_len(p.kv, l, 0, FV_SEG_VISUAL));
            cr_assert(at->source_layer == l - l % 2 && p.packed.layer[l].row_bits > 0);
            for (int k = 0; k < 2; k++) {
                double err = error_of(&net, &raw, at, l, k);
                double said = (double)p.packed.layer[l].error[k];
                cr_assert_eq(at->part[k].base != NULL, l % 2 || k, "layer %d, part %d", l, k);
                cr_assert_float_eq(err, said, 1e-4, "layer %d, part %d: %g and not %g", l, k, err,
                                   said);
                cr_assert(said > 0 && said < 1.1);
            }
        }
        tiny_prompt_free(&p);
    }
    tiny_prompt_free(&raw);
    tiny_net_close(&net);
}

Test(latent, coefficients_are_the_tokens_and_the_error_is_as_reported) {
    for (int grid = 0; grid < 2; grid++) assert_rows(tiny_shape_either(grid));
}

/* Bytes: planned, compressed, in the pool, on the wire, and on arrival. */
Test(latent, bytes_are_the_same_everywhere_and_as_planned) {
    static const char *const policies[] = {
        "pack=latent,budget=0.05", "prune=fastv,layer=2,keep=0.8;pack=latent,budget=0.1",
        "prune=fastv,layer=1,keep=0.8;pack=latent,budget=0.1", "pack=latent,budget=0.05;evict=vta",
        "pack=latent,bits=3,budget=0.05"};
    for (int i = 0; i < 5; i++) {
        handoff_rig rig;
        tiny_prompt p;
        fv_received got;
        rig_open(&rig, &(rig_options){.dtype = FV_BF16});
        prefill(&rig.net, &p, policies[i], 0);
        size_t visual = fv_kv_bytes(p.kv, FV_SEG_VISUAL), parts = 0;
        for (int32_t l = 0; l < 4; l++) parts += fv_kv_packed_bytes(p.kv, l, FV_SEG_VISUAL);
        cr_assert_eq(visual, fv_plan_count(&p.plan).visual, "%s", policies[i]);
        cr_assert(parts > 0 && parts == p.packed.bytes);
        cr_assert_eq(rig_send(&rig, &p, MORE, 0, &got, NULL), FV_OK, "%s", fv_last_error());
        cr_assert_eq(visual, fv_kv_bytes(got.kv, FV_SEG_VISUAL));
        cr_assert(same_store(p.kv, got.kv));
        cr_assert_eq(fv_kv_bytes_held(got.kv), fv_kv_pool_used(rig.pool));
        fv_received_free(&got);
        tiny_prompt_free(&p);
        rig_close(&rig);
    }
}

/* Rows that leave take no bit of the others with them, until so few are left that they are rebuilt. */
Test(latent, rows_that_stay_keep_their_bits) {
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    prefill(&net, &p, "pack=latent,budget=0.1", 0);
    int32_t W = net.cfg.n_kv * net.cfg.d_head, idx[VISUAL / 3];
    float *before[2], *now = malloc((size_t)W * 4);
    for (int k = 0; k < 2; k++) { /* both layers of the group */
        before[k] = malloc((size_t)(VISUAL * W) * 4);
        fv_latent_read(&fv_kv_packed_at(p.kv, 2 + k)->part[FV_PACKED_V], 0, VISUAL, before[k]);
    }
    for (int32_t i = 0; i < VISUAL / 3; i++) idx[i] = 3 * i + 1;
    cr_assert_eq(fv_kv_packed_keep(p.kv, 2, idx, VISUAL / 3), FV_OK);
    for (int k = 0; k < 2; k++) {
        const fv_kv_packed *at = fv_kv_packed_at(p.kv, 2 + k);
        cr_assert_eq(at->rows.n, VISUAL / 3);
        for (int32_t i = 0; i < VISUAL / 3; i++) {
            fv_latent_read(&at->part[FV_PACKED_V], i, 1, now);
            cr_assert(memcmp(now, before[k] + (size_t)(idx[i] * W), (size_t)W * 4) == 0,
                      "layer %d, row %d", 2 + k, i);
        }
        free(before[k]);
    }
    cr_assert_eq(fv_kv_packed_keep(p.kv, 2, (int32_t[]){4}, 1), FV_OK);
    fv_rope rope;
    fv_rope_init(&rope, &net.cfg.rope, net.cfg.d_head);
    cr_assert_eq(fv_unpack(p.kv, &net.be, &rope), FV_OK, "%s", fv_last_error());
    free(now);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}
