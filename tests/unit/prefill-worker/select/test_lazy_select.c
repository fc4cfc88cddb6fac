/* lazy x select: layers of a block hold the tokens that their source layer chose. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/handoff.h"

enum { LAYERS = 4, HEADS = 2, MORE = 8, POLICY_MAX = 200 };
static const char *const layout = "t9 v35 t4 v35 t20";

static const char *const selections[] = {
    "select=snapkv,heavy=0.3",
    "select=snapkv,heavy=0.2,heads=shared,pool=max",
    "select=h2o,heavy=0.3",
    "select=h2o,heavy=0.3,normalise=seen,group=max",
    "select=roco,heavy=0.3",
    "select=knorm,heavy=0.4",
    "select=knorm,heavy=0.4,heads=shared",
    "select=random,heavy=0.4",
    "select=lookm,heavy=0.3,prior=none,merge=none",
    "select=lookm,heavy=0.5,merge=none",
    "select=streaming,recent=0.3",
};
enum { SELECTIONS = sizeof selections / sizeof selections[0] };

/* Policies with a block of three layers, or two of two. Layer 1, the source layer of layers 1-3, attends as
 * in `exact`. */
static const char *const lazies[] = {
    "lazy=vla,map=given,blocks=1-3;", "lazy=gla,map=given,blocks=1-3;",
    "lazy=vla,map=given,blocks=0-1/2-3;", "lazy=gla,map=given,blocks=0-1/2-3;"};

static void ok(fv_status st, const char *policy) {
    cr_assert_eq(st, FV_OK, "%s: %s", policy, fv_last_error());
}

static void start(tiny_net *net, tiny_prompt *p, const char *policy, int32_t chunk) {
    tiny_prompt_lay(net, p, layout, 11, policy);
    ok(tiny_prefill(net, p, 1, chunk), policy);
}

static bool same_positions(fv_kv *a, int32_t la, fv_kv *b, int32_t lb) {
    for (int32_t g = 0; g < HEADS; g++)
        for (int s = 0; s < FV_N_SEG; s++) {
            fv_kv_segment seg = (fv_kv_segment)s;
            int32_t n = fv_kv_len(a, la, g, seg);
            if (n != fv_kv_len(b, lb, g, seg)) return false;
            if (n && memcmp(fv_kv_positions(a, la, g, seg), fv_kv_positions(b, lb, g, seg),
                            (size_t)n * 4) != 0)
                return false;
        }
    return true;
}

Test(lazy_select, a_block_holds_what_its_source_layer_chose, .timeout = 240) {
    for (int i = 0; i < 4 * SELECTIONS; i++) {
        tiny_net net;
        tiny_prompt p, alone;
        char policy[POLICY_MAX];
        const char *select = selections[i / 4];
        snprintf(policy, sizeof policy, "%s%s", lazies[i % 4], select);
        tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
        start(&net, &p, policy, i % 3 ? 0 : 13);
        start(&net, &alone, select, 0);
        for (int32_t l = 0; l < LAYERS; l++)
            cr_assert(same_positions(p.kv, l, p.kv, fv_kv_source_layer(p.kv, l)), "%s: layer %d",
                      policy, l);
        cr_assert_eq(fv_kv_source_layer(p.kv, 3), i % 4 < 2 ? 1 : 2);
        /* Layers up to the first source layer compute the same as without lazy layers. */
        for (int32_t l = 0; l <= (i % 4 < 2 ? 1 : 0); l++)
            cr_assert(same_positions(p.kv, l, alone.kv, l), "%s: layer %d", policy, l);
        cr_assert_lt(fv_kv_len(p.kv, 2, 1, FV_SEG_VISUAL), 70, "%s", policy);
        tiny_prompt_free(&p);
        tiny_prompt_free(&alone);
        tiny_net_close(&net);
    }
}

/* The bound is what a separate layer would hold; the source layer's counts are the block's. */
Test(lazy_select, bytes_are_bounded_and_the_same_in_pool_wire_and_where_they_arrive,
     .timeout = 240) {
    static const fv_dtype dtypes[] = {FV_F32, FV_BF16};
    for (int i = 0; i < 4 * SELECTIONS; i++) {
        handoff_rig rig;
        tiny_prompt p;
        fv_received got;
        char policy[POLICY_MAX];
        snprintf(policy, sizeof policy, "%s%s", lazies[i % 4], selections[i / 4]);
        rig_open(&rig, &(rig_options){.dtype = dtypes[i / 4 % 2]});
        start(&rig.net, &p, policy, 0);
        fv_plan_bytes most = fv_plan_count(&p.plan);
        size_t visual = fv_kv_bytes(p.kv, FV_SEG_VISUAL), text = fv_kv_bytes(p.kv, FV_SEG_TEXT);
        cr_assert_leq(visual, most.visual, "%s", policy);
        cr_assert_leq(visual + text, most.held, "%s", policy);
        cr_assert_lt(most.held, most.raw, "%s", policy);
        ok(rig_send(&rig, &p, MORE, 0, &got, NULL), policy);
        cr_assert(same_store(p.kv, got.kv), "%s", policy);
        cr_assert_eq(fv_kv_bytes(got.kv, FV_SEG_VISUAL), visual);
        cr_assert_eq(fv_kv_bytes(got.kv, FV_SEG_TEXT), text);
        cr_assert_eq(fv_kv_bytes_held(got.kv), fv_kv_pool_used(rig.pool));
        fv_received_free(&got);
        tiny_prompt_free(&p);
        cr_assert_eq(fv_kv_pool_used(rig.net.pool), 0);
        rig_close(&rig);
    }
}

/* Batched, in chunks and groups, after a hand-off, and as a resumed answer. */
Test(lazy_select, an_answer_has_the_same_bits_wherever_it_runs, .timeout = 240) {
    static const int32_t more[] = {14, 15, 16};
    for (int i = 0; i < 4 * SELECTIONS; i++) {
        handoff_rig rig;
        tiny_prompt p, oob[2], again, there, *one;
        fv_received got;
        float logits[97];
        char policy[POLICY_MAX];
        snprintf(policy, sizeof policy, "%s%s", lazies[i % 4], selections[i / 4]);
        rig_open(&rig, &(rig_options){.dtype = FV_F16});
        tiny_prompt_make(&rig.net, &p, 9, 70, 20, 11, policy);
        ok(tiny_prefill(&rig.net, &p, 1, 0), policy);
        tiny_prompt_make(&rig.net, &oob[0], 3, 20, 9, 5, "prune=vtw,layer=2");
        tiny_prompt_make(&rig.net, &oob[1], 9, 70, 20, 11, policy);
        ok(tiny_prefill(&rig.net, oob, 2, 16), policy);
        cr_assert(same_store(p.kv, oob[1].kv), "%s", policy);
        cr_assert(same_bits(p.logits, oob[1].logits, 97), "%s", policy);
        ok(rig_send(&rig, &p, MORE, 1, &got, NULL), policy);
        there = p;
        there.kv = got.kv;
        there.logits = logits;
        for (int32_t t = 0; t < 3; t++) {
            one = &p;
            ok(tiny_step(&rig.net, &one, 1, &more[t], 1, t), policy);
            one = &there;
            ok(tiny_step(&rig.net, &one, 1, &more[t], 1, t), policy);
            cr_assert(same_bits(p.logits, logits, 97), "%s at %d", policy, t);
        }
        tiny_prompt_again(&rig.net, &again, &p, policy, more, 3);
        ok(tiny_prefill(&rig.net, &again, 1, 7), policy);
        cr_assert(same_bits(p.logits, again.logits, 97), "%s", policy);
        cr_assert(same_store(p.kv, again.kv), "%s", policy);
        fv_received_free(&got);
        tiny_prompt_free(&p);
        tiny_prompt_free(&again);
        for (int b = 0; b < 2; b++) tiny_prompt_free(&oob[b]);
        rig_close(&rig);
    }
}

/* Keeping all tokens is the lazy policy alone. */
Test(lazy_select, a_selection_that_keeps_everything_changes_no_bit) {
    static const char *const all[] = {"select=h2o,heavy=0.5,recent=0.5", "select=random,heavy=1",
                                      "select=knorm,heavy=1"};
    for (int i = 0; i < 12; i++) {
        tiny_net net;
        tiny_prompt p[2];
        char policy[POLICY_MAX];
        snprintf(policy, sizeof policy, "%s%s", lazies[i % 4], all[i / 4]);
        tiny_net_open(&net, tiny_shape_default(), FV_BF16, NULL, 1);
        start(&net, &p[0], policy, 0);
        snprintf(policy, sizeof policy, "%s", lazies[i % 4]);
        policy[strlen(policy) - 1] = '\0';
        start(&net, &p[1], policy, 0);
        cr_assert(same_store(p[0].kv, p[1].kv), "%s", policy);
        for (int b = 0; b < 2; b++) tiny_prompt_free(&p[b]);
        tiny_net_close(&net);
    }
}

Test(lazy_select, keys_that_are_merged_are_not_shared) {
    fv_policy p;
    cr_assert_eq(fv_policy_parse("lazy=vla;select=lookm", &p), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "merge=none"), "%s", fv_last_error());
    ok(fv_policy_parse("lazy=vla;select=lookm,merge=none", &p), "merge=none");
}
