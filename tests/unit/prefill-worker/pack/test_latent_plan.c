/* pack=latent in the plan: bits, bytes and groups before a request runs, and incompatible
 * methods. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "policy/plan/packed_shape.h"
#include "tests/support/planned.h"

static const fv_plan_shape llava = {.n_layer = 32,
                                    .n_kv = 32,
                                    .n_visual = 576,
                                    .n_text = 50,
                                    .d_head = 128,
                                    .bytes_value = 2,
                                    .latent_layers = 8,
                                    .latent_rank = 256};

/* 8 layers of 2 x 4096 numbers at 16 bits over 576 tokens: 75 497 472 bytes a group. */
Test(latent_plan, the_plan_knows_the_bytes_and_keeps_the_budget) {
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

Test(latent_plan, a_request_that_cannot_be_packed_says_why) {
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
Test(latent_plan, layers_of_fewer_tokens_are_in_the_group) {
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
        s.latent.row_bits++;
        cr_assert_gt((double)fv_packed_bytes(&s), raw / 600, "%s", policy);
    }
}

/* With select, each layer chooses its own tokens. */
Test(latent_plan, select_needs_directions_of_single_layers) {
    fv_plan_shape s = llava;
    assert_note("select=snapkv,heads=shared;pack=latent", s, "several layers together");
    s.latent_layers = 1;
    fv_plan plan = plan_of("select=snapkv,heads=shared;pack=latent", s);
    cr_assert(plan.pack.any && !plan.note[FV_STAGE_PACK][0]);
    for (int32_t l = 0; l < 32; l++) cr_assert(plan.pack.layer[l].row_bits > 0);
}

Test(latent_plan, the_rank_of_unimportant_tokens_is_a_share_of_the_directions_with_bits) {
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

Test(latent_plan, methods_that_do_not_go_with_it_conflict) {
    static const char *const bad[] = {
        "lazy=vla;pack=latent",     "select=csp;pack=latent",
        "pack=latent;evict=h2o",    "prune=pdrop;pack=latent",
        "pack=latent,budget=0",     "pack=latent,budget=1/0",
        "select=lookm;pack=latent", "pack=latent,budget=1/",
        "pack=latent,keys=raw",     "pack=latent,keys=codes;expand=attention,parts=both"};
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

/* Not in the budget: per token a byte for each direction, and per part 4 + W / 2 bytes. */
Test(latent_plan, memory_for_own_directions_is_set_aside_and_no_more) {
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

/* Half a byte for each of the 4096 numbers of a layer's keys and 2 bytes for each of 32 heads, in
 * whole tiles; the bytes sent do not change. */
Test(latent_plan, keys_in_codes_are_held_beside_the_budget_and_not_sent) {
    for (int32_t n = 570; n <= 576; n += 6) {
        fv_plan_shape s = llava;
        s.n_visual = n;
        fv_plan rebuilt = plan_of("pack=latent,budget=1/512", s);
        fv_plan coded = plan_of("pack=latent,budget=1/512,keys=codes", s);
        fv_plan_bytes a = fv_plan_count(&rebuilt), b = fv_plan_count(&coded);
        cr_assert(!rebuilt.pack.coded_keys && coded.pack.coded_keys);
        cr_assert_eq(coded.pack.layer[31].row_bits, rebuilt.pack.layer[31].row_bits);
        cr_assert_eq(a.unsent, 0);
        cr_assert_eq(b.unsent, 32 * 576 * (4096 / 2 + 2 * 32));
        cr_assert_eq(b.visual, a.visual + b.unsent);
        cr_assert_eq(b.held, a.held + b.unsent);
        cr_assert_eq(b.tables, a.tables);
        for (int k = 0; k < 2; k++) {
            fv_packed_shape x = fv_plan_packed_shape(&rebuilt, 8, (fv_packed_kind)k, n, FV_BF16);
            fv_packed_shape y = fv_plan_packed_shape(&coded, 8, (fv_packed_kind)k, n, FV_BF16);
            cr_assert_eq(fv_packed_sent_bytes(&x), fv_packed_sent_bytes(&y));
        }
    }
    fv_plan_shape none = llava;
    none.latent_layers = 0;
    fv_plan plan = plan_of("pack=latent,keys=codes", none);
    cr_assert(!plan.pack.coded_keys && fv_plan_count(&plan).unsent == 0);
}

/* Each part has the first token's numbers, and the planes say which row it is. */
Test(latent_plan, the_first_token_of_an_image_has_bytes_of_its_own) {
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
