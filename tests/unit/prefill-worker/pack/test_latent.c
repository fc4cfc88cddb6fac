/* pack=latent: the plan, the KV after prefill, its bytes and what leaves it. The bits of attention:
 * tests/ops/run/latent.c; what holds for every method: test_every_policy.c. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/convert.h"
#include "model/net/anneal.h"
#include "model/net/expand.h"
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
    fv_plan_shape s = llava;
    s.latent_layers = 0;
    assert_note("pack=latent", s, "no latent directions");
    s.no_latent = "measured with another KV dtype";
    assert_note("pack=latent", s, "another KV dtype");
    s = llava;
    s.n_visual = 0;
    assert_note("pack=latent", s, "no image");
    assert_note("pack=latent,budget=0.000001", llava, "no group");
}

/* Layers of a group with fewer tokens share the coefficients of those with more; a layer without any
 * is in no group. The budget is of what the layers would hold. */
Test(latent, layers_of_fewer_tokens_are_in_the_group) {
    static const struct {
        const char *prune;
        int32_t first, last; /* of the group of layers 8 to 15 */
    } cases[] = {{"prune=fastv,layer=12,keep=0.5", 8, 15},
                 {"prune=pvtp,layer=3,stride=3", 8, 15},
                 {"prune=vtw,layer=12", 8, 11},
                 {"prune=visipruner,shallow=10,detect=11,kv_shallow=drop", 10, 15},
                 {"prune=visipruner,detect=9", 8, 15}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char policy[160];
        snprintf(policy, sizeof policy, "%s;pack=latent,budget=1/600", cases[i].prune);
        fv_plan plan = plan_of(policy, llava);
        double raw = 0;
        for (int32_t l = 8; l < 16; l++) {
            const fv_plan_pack *at = &plan.pack.layer[l];
            bool in = l >= cases[i].first && l <= cases[i].last;
            cr_assert_eq(at->row_bits > 0, in, "%s: layer %d", policy, l);
            if (!in) continue;
            cr_assert_eq(fv_plan_pair(&plan, l), cases[i].first, "%s", policy);
            cr_assert_eq(at->group, cases[i].last - cases[i].first + 1, "%s", policy);
            raw += 2.0 * 2 * 4096 * plan.visual[l];
        }
        fv_packed_shape s = fv_plan_packed_shape(&plan, cases[i].first, FV_PACKED_K,
                                                 plan.visual[cases[i].first], FV_BF16);
        cr_assert_leq((double)fv_packed_bytes(&s), raw / 600, "%s", policy);
        s.row_bits++;
        cr_assert_gt((double)fv_packed_bytes(&s), raw / 600, "%s", policy);
    }
}

/* Layers choose their tokens each for itself. */
Test(latent, select_needs_directions_of_single_layers) {
    fv_plan_shape s = llava;
    assert_note("select=snapkv,heads=shared;pack=latent", s, "several layers together");
    s.latent_layers = 1;
    fv_plan plan = plan_of("select=snapkv,heads=shared;pack=latent", s);
    cr_assert(plan.pack.any && !plan.note[FV_STAGE_PACK][0]);
    for (int32_t l = 0; l < 32; l++) cr_assert(plan.pack.layer[l].row_bits > 0);
}

Test(latent, the_rank_of_unimportant_tokens_is_a_share_of_the_directions_with_bits) {
    fv_plan plan = plan_of("pack=latent;expand=attention,rank=0.25", llava);
    cr_assert(plan.read.by_importance && plan.pack.observed);
    cr_assert_eq(fv_plan_latent_rank2(&plan, FV_PACKED_V, 50), 12);
    cr_assert_eq(fv_plan_latent_rank2(&plan, FV_PACKED_V, 3), 1);
    cr_assert_eq(fv_plan_latent_rank2(&plan, FV_PACKED_K, 50), 0, "keys are read in full");
    plan = plan_of("pack=latent;expand=attention,rank=0.7,parts=both", llava);
    cr_assert_eq(fv_plan_latent_rank2(&plan, FV_PACKED_K, 10), 7);
    plan = plan_of("pack=latent;expand=attention,rank=1", llava);
    cr_assert_eq(fv_plan_latent_rank2(&plan, FV_PACKED_V, 10), 0);
    plan = plan_of("pack=latent", llava);
    cr_assert_eq(fv_plan_latent_rank2(&plan, FV_PACKED_V, 10), 0);
}

Test(latent, methods_that_do_not_go_with_it_conflict) {
    static const char *const bad[] = {"lazy=vla;pack=latent",     "select=csp;pack=latent",
                                      "pack=latent;evict=h2o",    "prune=pdrop;pack=latent",
                                      "pack=latent,budget=0",     "pack=latent,budget=1/0",
                                      "select=lookm;pack=latent", "pack=latent,budget=1/"};
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
    const int32_t *of_row = fv_kv_positions(raw->kv, layer, 0, FV_SEG_VISUAL);
    fv_rope rope;
    fv_rope_init(&rope, &net->cfg.rope, D);
    for (int32_t j = 0; j < at->rows.n; j++) {
        int32_t from = 0;
        while (of_row[from] != at->pos[j]) from++;
        fv_rope_pos pos = fv_rope_map_at(fv_kv_rope_map(raw->kv), at->pos[j]);
        fv_rope_angles(&rope, &pos, 1, cosine, sine);
        fv_latent_read(&at->part[kind], j, 1, m);
        for (int32_t c = 0; c < W; c++) {
            void *row;
            fv_kv_contiguous(raw->kv, layer, c / D, FV_SEG_VISUAL, kind == 1, from, from + 1, &row);
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

/* Of a group's layers each holds some of the tokens of the one before, and has the first rows of the
 * group's first. */
static void assert_nested(const char *prune, bool grid, int32_t group) {
    tiny_net net;
    tiny_prompt raw, p;
    char policy[160];
    tiny_shape shape = tiny_shape_either(grid);
    shape.latent_layers = group;
    tiny_net_open(&net, shape, FV_F32, NULL, 1);
    prefill(&net, &raw, prune, 0);
    snprintf(policy, sizeof policy, "%s;pack=latent,budget=0.2", prune);
    prefill(&net, &p, policy, grid ? 7 : 0);
    for (int32_t l = 0; l < 4; l++) {
        const fv_kv_packed *at = fv_kv_packed_at(p.kv, l);
        const fv_kv_packed *lead = fv_kv_packed_at(p.kv, l - l % group);
        int32_t n = fv_kv_len(raw.kv, l, 0, FV_SEG_VISUAL);
        cr_assert(at && lead && at->source_layer == l - l % group && at->rows.n == n, "%s", policy);
        cr_assert(memcmp(at->pos, lead->pos, (size_t)n * sizeof *at->pos) == 0, "layer %d", l);
        for (int k = 0; k < 2; k++) {
            double said = (double)p.packed.layer[l].error[k];
            cr_assert_float_eq(error_of(&net, &raw, at, l, k), said, 1e-4, "layer %d", l);
            cr_assert_lt(said, 1.1);
        }
    }
    cr_assert_gt(fv_kv_packed_at(p.kv, 0)->rows.n, fv_kv_packed_at(p.kv, 1)->rows.n);
    size_t bytes = fv_kv_bytes(p.kv, FV_SEG_VISUAL), planned = fv_plan_count(&p.plan).visual;
    cr_assert(bytes == planned || (bytes < planned && !p.plan.exact_counts), "%s", policy);
    tiny_prompt_free(&p);
    tiny_prompt_free(&raw);
    tiny_net_close(&net);
}

Test(latent, tokens_that_leave_within_a_group_are_the_last_rows) {
    for (int grid = 0; grid < 2; grid++) {
        assert_nested("prune=fastv,layer=1,keep=0.4", grid, 2);
        assert_nested("prune=pvtp,layer=1,stride=16", grid, 2);
        assert_nested("prune=random,layer=1,keep=0.3", grid, 2);
        assert_nested("prune=visipruner,shallow=0,filter=0,l2=0.3", grid, 2); /* data decide */
        assert_nested("prune=pvtp,layer=1,stride=8,first=0.3,ratio=0.2", grid, 4);
    }
}

/* Layers that choose their tokens each for itself, on directions of their own. */
Test(latent, layers_that_select_are_groups_of_one) {
    static const char *const policies[] = {
        "select=snapkv,heads=shared,heavy=0.4,recent=0.3;pack=latent,budget=0.2",
        "select=h2o,heads=shared,heavy=0.4,recent=0.3;pack=latent,budget=0.2;"
        "expand=attention,parts=both;evict=importance"};
    for (int i = 0; i < 2; i++) {
        handoff_rig rig;
        tiny_prompt p;
        fv_received got;
        tiny_shape shape = tiny_shape_default();
        bool differ = false;
        shape.latent_layers = 1;
        rig_open(&rig, &(rig_options){.shape = shape, .dtype = FV_BF16});
        prefill(&rig.net, &p, policies[i], 0);
        for (int32_t l = 0; l < 4; l++) {
            const fv_kv_packed *at = fv_kv_packed_at(p.kv, l), *first = fv_kv_packed_at(p.kv, 0);
            cr_assert(at && at->source_layer == l && at->rows.n < VISUAL, "layer %d", l);
            cr_assert_eq(at->part[FV_PACKED_V].shape.rank2 > 0, i == 1, "layer %d", l);
            differ |= at->rows.n != first->rows.n ||
                      memcmp(at->pos, first->pos, (size_t)at->rows.n * sizeof *at->pos) != 0;
        }
        cr_assert(differ, "each layer has tokens of its own");
        cr_assert_leq(fv_kv_bytes(p.kv, FV_SEG_VISUAL), fv_plan_count(&p.plan).visual);
        cr_assert_eq(rig_send(&rig, &p, MORE, 0, &got, NULL), FV_OK, "%s", fv_last_error());
        cr_assert(same_store(p.kv, got.kv));
        fv_received_free(&got);
        tiny_prompt_free(&p);
        rig_close(&rig);
    }
}

/* In a layer, tokens that the other layer of the group lacks lose no more of what directions are along
 * than those that both have. */
Test(latent, a_token_that_a_layer_lacks_has_the_coefficients_of_the_others) {
    tiny_net net;
    tiny_prompt raw, p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    prefill(&net, &raw, "prune=random,layer=1,keep=0.3", 0);
    prefill(&net, &p, "prune=random,layer=1,keep=0.3;pack=latent,budget=0.4", 0);
    const fv_kv_packed *at = fv_kv_packed_at(p.kv, 0);
    int32_t W = net.cfg.n_kv * net.cfg.d_head, D = net.cfg.d_head,
            few = fv_kv_packed_at(p.kv, 1)->rows.n;
    const int32_t *of_row = fv_kv_positions(raw.kv, 0, 0, FV_SEG_VISUAL);
    float *m = malloc((size_t)W * sizeof *m);
    double off[2] = {0}, all[2] = {0};
    for (int32_t j = 0; j < at->rows.n; j++) {
        int32_t from = 0;
        while (of_row[from] != at->pos[j]) from++;
        fv_latent_read(&at->part[FV_PACKED_V], j, 1, m);
        for (int32_t c = 0; c < W; c++) { /* columns that directions are along */
            void *row;
            if (c % 5) continue;
            fv_kv_contiguous(raw.kv, 0, c / D, FV_SEG_VISUAL, true, from, from + 1, &row);
            double v = (double)((const float *)row)[c % D], d = v - (double)m[c];
            off[j >= few] += d * d;
            all[j >= few] += v * v;
        }
    }
    cr_assert(few > 0 && few < at->rows.n && all[0] > 0 && all[1] > 0);
    cr_assert_float_eq(off[0] / all[0], off[1] / all[1], 0.25 * off[0] / all[0] + 1e-3,
                       "%g of tokens of both layers, %g of the others", off[0] / all[0],
                       off[1] / all[1]);
    free(m);
    tiny_prompt_free(&p);
    tiny_prompt_free(&raw);
    tiny_net_close(&net);
}

/* Bytes: planned, compressed, in the pool, on the wire, and on arrival. */
Test(latent, bytes_are_the_same_everywhere_and_as_planned) {
    static const char *const policies[] = {
        "pack=latent,budget=0.05",
        "prune=fastv,layer=2,keep=0.8;pack=latent,budget=0.1",
        "prune=fastv,layer=1,keep=0.8;pack=latent,budget=0.1",
        "pack=latent,budget=0.05;evict=vta",
        "pack=latent,bits=3,budget=0.05",
        "prune=fastv,layer=1,keep=0.5;pack=latent,budget=0.2;expand=attention;"
        "evict=vta,shallow=rank_by_first_tap",
        "prune=fastv,layer=3,keep=0.5;pack=latent,budget=0.2;evict=importance"};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
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

/* The i-th PACK of a stream, changed, with every checksum correct. */
static fv_status deliver_changed(const handoff_rig *rig, const rig_stream *s, int i, size_t at,
                                 uint32_t x) {
    uint8_t *bytes = malloc(s->n), *p = bytes;
    fv_received got;
    cr_assert(bytes);
    memcpy(bytes, s->bytes, s->n);
    for (uint32_t type, length;; p += FV_SECTION_HEADER + length) {
        memcpy(&type, p + 4, 4);
        memcpy(&length, p + 40, 4);
        if (type == FV_SECTION_PACKED && i-- == 0) break;
    }
    memcpy(p + FV_SECTION_HEADER + at, &x, 4);
    rig_put_right(bytes, s->n, s->hello.compat.hash);
    fv_status st = rig_deliver(rig->receiver, &s->hello, bytes, s->n, 500, &got);
    if (st == FV_OK) fv_received_free(&got);
    cr_assert_eq(fv_kv_pool_used(rig->pool), 0);
    free(bytes);
    return st;
}

/* Layers 0 and 1, of 70 and of 35 tokens, are a group, and all are ranked. */
Test(latent, sections_that_lie_about_shared_tokens_are_refused) {
    enum { SOURCE_LAYER_AT = 8, FLAGS_AT = 12, K_AT = 16, N_SOURCE_AT = 48, FIRST_AT = 52 };
    enum { LATENT = 32, RANKED = 4, RANK_AT = FIRST_AT + 4 * (2 + 1 + VISUAL) };
    static const struct {
        int pack;
        size_t at;
        uint32_t x;
    } lies[] = {{0, N_SOURCE_AT, 1},
                {0, RANK_AT, 1},
                {0, RANK_AT + 4, 5},
                {0, FLAGS_AT, LATENT | RANKED | 1},
                {1, N_SOURCE_AT, 0},
                {1, N_SOURCE_AT, VISUAL + 1},
                {1, N_SOURCE_AT, UINT32_MAX},
                {1, FLAGS_AT, LATENT},
                {1, FLAGS_AT, LATENT | RANKED | 1},
                {1, FLAGS_AT, RANKED},
                {1, SOURCE_LAYER_AT, 1},
                {1, SOURCE_LAYER_AT, 3},
                {1, K_AT, 1},
                {1, K_AT + 4, FV_LATENT_MOST + 1},
                {1, K_AT + 4, UINT32_MAX},
                {1, K_AT + 8, 3},
                {3, N_SOURCE_AT, VISUAL / 2 + 1},
                {3, SOURCE_LAYER_AT, 1}};
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    rig_open(&rig, &(rig_options){.dtype = FV_F16});
    prefill(&rig.net, &p,
            "prune=fastv,layer=1,keep=0.5;pack=latent,budget=0.2;"
            "evict=vta,shallow=rank_by_first_tap",
            0);
    cr_assert(fv_kv_packed_at(p.kv, 0)->rank && fv_kv_packed_at(p.kv, 1)->rank);
    rig_capture(&rig, &p, MORE, &s);
    cr_assert_eq(deliver_changed(&rig, &s, 1, N_SOURCE_AT, VISUAL / 2), FV_OK, "as it was: %s",
                 fv_last_error());
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++)
        cr_assert_neq(deliver_changed(&rig, &s, lies[i].pack, lies[i].at, lies[i].x), FV_OK,
                      "lie %zu", i);
    free(s.bytes);
    tiny_prompt_free(&p);
    rig_close(&rig);
}

/* ---- what leaves ------------------------------------------------------------------------- */

/* As many rows of each layer as its own number says, and the bytes with those of the first. */
static void assert_left(const fv_kv *kv, double share, const int32_t *had) {
    for (int32_t l = 0; l < 4; l++) {
        const fv_kv_packed *at = fv_kv_packed_at(kv, l);
        int32_t left = (int32_t)(share * had[l] + 1e-9);
        cr_assert_eq(at ? at->n_alive : 0, left, "layer %d has %d of %d", l, at ? at->n_alive : 0,
                     had[l]);
        if (!at) continue;
        const fv_kv_packed *lead = fv_kv_packed_at(kv, at->source_layer);
        cr_assert(at->n_alive <= at->rows.n && at->rows.n <= lead->rows.n);
        cr_assert_eq(lead->part[FV_PACKED_K].shape.n, lead->rows.n);
        cr_assert(memcmp(at->pos, lead->pos, (size_t)at->rows.n * sizeof *at->pos) == 0);
        cr_assert(at == lead || at->part[FV_PACKED_K].base == lead->part[FV_PACKED_K].data);
    }
}

/* By rank, and by the importance that a group's rows have together. */
Test(latent, layers_of_a_group_let_go_of_their_own_numbers) {
    for (int i = 0; i < 4; i++) {
        tiny_net net;
        tiny_prompt p;
        int32_t had[4], order = i % 2 ? FV_ANNEAL_IMPORTANCE : FV_ANNEAL_RANK;
        tiny_shape shape = tiny_shape_default();
        shape.latent_layers = i < 2 ? 2 : 4;
        tiny_net_open(&net, shape, FV_F32, NULL, 1);
        prefill(&net, &p,
                "prune=pvtp,layer=1,stride=8,first=0.4;pack=latent,budget=0.2;expand=attention;"
                "evict=vta,shallow=rank_by_first_tap",
                0);
        for (int32_t l = 0; l < 4; l++) had[l] = fv_kv_packed_at(p.kv, l)->rows.n;
        size_t before = fv_kv_packed_bytes(p.kv, 0, FV_SEG_VISUAL);
        for (double share = 0.95; share > 0.1; share -= 0.17) {
            cr_assert_eq(fv_anneal(p.kv, share, (fv_anneal_order)order), FV_OK, "%s",
                         fv_last_error());
            assert_left(p.kv, share, had);
        }
        cr_assert_lt(fv_kv_packed_bytes(p.kv, 0, FV_SEG_VISUAL), before);
        cr_assert_eq(fv_anneal(p.kv, 0, (fv_anneal_order)order), FV_OK);
        for (int32_t l = 0; l < 4; l++) cr_assert_null(fv_kv_packed_at(p.kv, l));
        tiny_prompt_free(&p);
        tiny_net_close(&net);
    }
}

/* The most important rows of either layer stay, and the second's are the first's first ones. */
Test(latent, the_important_rows_of_a_group_stay) {
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    prefill(&net, &p, "prune=fastv,layer=1,keep=0.5;pack=latent,budget=0.2;evict=importance", 0);
    fv_kv_packed *at[2] = {fv_kv_packed_at(p.kv, 0), fv_kv_packed_at(p.kv, 1)};
    int32_t few = at[1]->rows.n, wanted[4] = {at[0]->pos[few - 1], at[0]->pos[3],
                                              at[0]->pos[VISUAL - 1], at[0]->pos[few]};
    for (int32_t j = 0; j < VISUAL; j++) at[0]->importance[j] = 0.1f;
    for (int32_t j = 0; j < few; j++) at[1]->importance[j] = 0.1f;
    at[0]->importance[few - 1] = at[1]->importance[few - 1] = 9;
    at[1]->importance[3] = 8;
    at[0]->importance[VISUAL - 1] = 7;
    at[0]->importance[few] = 6;
    cr_assert_eq(fv_expand_keep(p.kv, 4.0 / VISUAL), FV_OK, "%s", fv_last_error());
    cr_assert(at[0]->rows.n == 4 && at[1]->rows.n == 2, "%d and %d", at[0]->rows.n, at[1]->rows.n);
    for (int32_t j = 0; j < 4; j++) cr_assert_eq(at[0]->pos[j], wanted[j], "row %d", j);
    for (int32_t j = 0; j < 2; j++) cr_assert_eq(at[1]->pos[j], wanted[j], "row %d", j);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
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

/* ---- own directions ----------------------------------------------------------------------- */

/* Beside the budget: of each token a byte per direction, and of each part 4 bytes and W / 2. */
Test(latent, memory_for_own_directions_is_set_aside_and_no_more) {
    fv_plan none = plan_of("pack=latent,budget=1/512", llava);
    for (int32_t r = 1; r <= 8; r++) {
        char policy[80];
        snprintf(policy, sizeof policy, "pack=latent,budget=1/512,residual=auto,residual_rank=%d",
                 r);
        fv_plan plan = plan_of(policy, llava);
        size_t planes = fv_packed_aligned(2 * (2048 + 8 * (size_t)r) * 36);
        size_t own = 16 * fv_packed_aligned((size_t)r * (4 + 4096 / 2));
        cr_assert_eq(plan.pack.layer[31].row_bits, none.pack.layer[31].row_bits);
        cr_assert_eq(plan.pack.layer[31].n_own, r);
        cr_assert_eq(fv_plan_count(&plan).visual, 4 * (planes + own));
        cr_assert_eq(fv_plan_count(&plan).tables, fv_plan_count(&none).tables);
    }
    fv_plan off = plan_of("pack=latent,budget=1/512,residual=none,residual_rank=5", llava);
    cr_assert_eq(fv_plan_count(&off).visual, fv_plan_count(&none).visual);
}

/* The directions of these tests expect no error at all. */
Test(latent, own_directions_take_what_the_others_leave) {
    static const char *const policies[] = {
        "pack=latent,budget=0.1",
        "pack=latent,budget=0.1,residual=auto,residual_rank=2",
        "pack=latent,budget=0.1,residual=auto",
    };
    static const int32_t ranks[] = {0, 2, 8};
    tiny_net net;
    tiny_prompt raw, p;
    double before[4][2] = {{0}};
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    prefill(&net, &raw, "", 0);
    for (int i = 0; i < 3; i++) {
        prefill(&net, &p, policies[i], i == 2 ? 7 : 0);
        for (int32_t l = 0; l < 4; l++) {
            const fv_kv_packed *at = fv_kv_packed_at(p.kv, l);
            cr_assert_eq(p.packed.layer[l].n_own, ranks[i]);
            for (int k = 0; k < 2; k++) {
                double err = error_of(&net, &raw, at, l, k);
                cr_assert_eq(at->part[k].shape.n_own, ranks[i]);
                cr_assert_eq(at->part[k].data != NULL, ranks[i] > 0 || (l % 2 == 0 && k == 0));
                cr_assert_float_eq(err, (double)p.packed.layer[l].error[k], 1e-4);
                if (i) cr_assert_lt(err, before[l][k], "layer %d, part %d, %s", l, k, policies[i]);
                before[l][k] = err;
            }
        }
        cr_assert_leq(fv_kv_bytes(p.kv, FV_SEG_VISUAL), fv_plan_count(&p.plan).visual);
        tiny_prompt_free(&p);
    }
    tiny_prompt_free(&raw);
    tiny_net_close(&net);
}

/* None where the error is what it may be, and their bytes are not taken. */
Test(latent, a_request_with_little_error_has_no_own_directions) {
    tiny_net net;
    tiny_prompt none, p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    fv_latent_layer *layer = (fv_latent_layer *)(uintptr_t)net.latent->layer;
    for (int32_t l = 0; l < 4; l++) layer[l].variance = 100; /* nearly all of it is expected */
    prefill(&net, &none, "pack=latent,budget=0.1", 0);
    prefill(&net, &p, "pack=latent,budget=0.1,residual=auto", 0);
    cr_assert(same_store(none.kv, p.kv));
    cr_assert_eq(fv_kv_bytes(none.kv, FV_SEG_VISUAL), fv_kv_bytes(p.kv, FV_SEG_VISUAL));
    cr_assert_eq(p.packed.layer[0].n_own, 0);
    tiny_prompt_free(&none);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

/* Where the payload of the first section of a type begins. */
static size_t payload_of(const rig_stream *s, const char *type) {
    size_t i = 0;
    while (i + 4 < s->n && memcmp(s->bytes + i, type, 4) != 0) i++;
    return i + FV_SECTION_HEADER - 4;
}

Test(latent, own_directions_arrive_and_those_that_nobody_sends_are_refused) {
    handoff_rig rig;
    tiny_prompt p;
    fv_received got;
    rig_stream s;
    rig_open(&rig, &(rig_options){.dtype = FV_BF16});
    prefill(&rig.net, &p, "pack=latent,budget=0.05,residual=auto,residual_rank=3", 0);
    size_t visual = fv_kv_bytes(p.kv, FV_SEG_VISUAL);
    cr_assert_eq(visual, fv_plan_count(&p.plan).visual);
    cr_assert_eq(rig_send(&rig, &p, MORE, 0, &got, NULL), FV_OK, "%s", fv_last_error());
    cr_assert_eq(visual, fv_kv_bytes(got.kv, FV_SEG_VISUAL));
    cr_assert(same_store(p.kv, got.kv));
    fv_received_free(&got);
    rig_capture(&rig, &p, MORE, &s);
    for (int i = 0; i < 4; i++) {
        uint8_t *bytes = malloc(s.n);
        memcpy(bytes, s.bytes, s.n);
        size_t pack = payload_of(&s, "PACK"), fact = payload_of(&s, "FACT");
        static const uint32_t numbers[] = {9, UINT32_MAX, 2};
        float scale = INFINITY;
        if (i < 3) /* of keys, and of values */
            for (int k = 0; k < 2; k++) memcpy(bytes + pack + 28 + 16 * k, &numbers[i], 4);
        else
            memcpy(bytes + fact + 4, &scale, 4);
        rig_put_right(bytes, s.n, s.hello.compat.hash);
        cr_assert_eq(rig_deliver(rig.receiver, &s.hello, bytes, s.n, 500, &got), FV_EDATA, "%d: %s",
                     i, fv_last_error());
        free(bytes);
    }
    rig_assert_baseline(&rig, "refused");
    free(s.bytes);
    tiny_prompt_free(&p);
    rig_close(&rig);
}

/* ---- prompts that begin with an image ------------------------------------------------------ */

/* Each part has the first token's numbers, and the planes say which row it is. */
Test(latent, the_first_token_of_an_image_has_bytes_of_its_own) {
    fv_token_span image = {.first = 0, .n = 576, .t = 1, .h = 24, .w = 24};
    fv_plan_shape s = llava;
    s.n_span = 1;
    s.span = &image;
    fv_plan plan = plan_of("pack=latent,budget=1/512", s);
    cr_assert(plan.pack.any && plan.pack.exact && plan.pack.layer[0].row_bits == 2048);
    cr_assert_eq(fv_plan_count(&plan).visual, 4 * (2 * 2048 * 36 + 64 + 16 * 4096 * 2));
    image.first = 1;
    cr_assert(!plan_of("pack=latent,budget=1/512", s).pack.exact);
}

/* Keys and values of the token at position 0, where nothing is rotated, are those of the store. */
static void assert_first_exact(const tiny_prompt *raw, const tiny_prompt *p) {
    const fv_kv_shape *s = fv_kv_get_shape(p->kv);
    float m[512], x[512];
    for (int32_t l = 0; l < s->n_layer; l++)
        for (int k = 0; k < 2; k++) {
            const fv_kv_packed *at = fv_kv_packed_at(p->kv, l);
            int32_t j = 0;
            cr_assert(at && s->n_kv * s->d_head <= 512);
            while (j < at->rows.n && at->pos[j] != 0) j++;
            if (j == at->rows.n) continue; /* it was pruned */
            fv_latent_read(&at->part[k], j, 1, m);
            for (int32_t g = 0; g < s->n_kv; g++) {
                void *row;
                fv_kv_contiguous(raw->kv, l, g, FV_SEG_VISUAL, k == 1, 0, 1, &row);
                widen_row(row, s->dtype, (size_t)s->d_head, x + g * s->d_head);
            }
            for (int32_t c = 0; c < s->n_kv * s->d_head; c++)
                cr_assert_eq(m[c], x[c], "layer %d, part %d, number %d", l, k, c);
        }
}

static void lay(tiny_net *net, tiny_prompt *p, const char *policy) {
    tiny_prompt_lay(net, p, "v40 t5 v30 t9", 11, policy);
    cr_assert_eq(tiny_prefill(net, p, 1, 0), FV_OK, "%s", fv_last_error());
    cr_assert_eq(p->packed.status, FV_OK, "%s", p->packed.text);
}

Test(latent, the_first_token_stays_exact_in_every_policy_and_on_arrival) {
    static const char *const policies[] = {
        "pack=latent,budget=0.1", "pack=latent,budget=0.1,residual=auto,residual_rank=3",
        "prune=fastv,layer=1,keep=0.8;pack=latent,budget=0.1",
        "pack=latent,budget=0.1;expand=attention,parts=both", "pack=latent,budget=0.1;evict=vta"};
    for (int i = 0; i < 10; i++) {
        handoff_rig rig;
        tiny_prompt raw, p;
        fv_received got;
        rig_open(&rig, &(rig_options){.shape = tiny_shape_either(i % 2), .dtype = FV_BF16});
        lay(&rig.net, &raw, "");
        lay(&rig.net, &p, policies[i / 2]);
        assert_first_exact(&raw, &p);
        size_t visual = fv_kv_bytes(p.kv, FV_SEG_VISUAL);
        cr_assert_eq(visual, fv_plan_count(&p.plan).visual, "%s", policies[i / 2]);
        cr_assert_eq(rig_send(&rig, &p, MORE, 0, &got, NULL), FV_OK, "%s", fv_last_error());
        cr_assert(same_store(p.kv, got.kv) && fv_kv_bytes(got.kv, FV_SEG_VISUAL) == visual);
        fv_received_free(&got);
        tiny_prompt_free(&p);
        tiny_prompt_free(&raw);
        rig_close(&rig);
    }
}
