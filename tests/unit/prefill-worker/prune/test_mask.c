/* prune=fastv,mode=mask: tokens that keep running, are handed off and held, but masked. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/handoff.h"
#include "tests/support/rendered.h"

enum { VOCAB = 97, STEPS = 3 };
static const char *const two = "t5 v35 t3 v36 t6";

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

typedef struct request {
    tiny_net net;
    tiny_prompt p;
} request;

static void prefill(request *r, tiny_shape shape, const char *layout, const char *policy,
                    int32_t chunk) {
    tiny_net_open(&r->net, shape, FV_F32, NULL, 2);
    tiny_prompt_lay(&r->net, &r->p, layout, 11, policy);
    ok(tiny_prefill(&r->net, &r->p, 1, chunk));
}

static void end(request *r) {
    tiny_prompt_free(&r->p);
    tiny_net_close(&r->net);
}

typedef struct trail {
    float logits[STEPS + 1][VOCAB];
} trail;

static void answer(request *r, trail *out) {
    tiny_prompt *one = &r->p;
    memcpy(out->logits[0], r->p.logits, sizeof out->logits[0]);
    for (int32_t s = 0; s < STEPS; s++) {
        int32_t id = 13 + s;
        ok(tiny_step(&r->net, &one, 1, &id, 1, s));
        memcpy(out->logits[s + 1], r->p.logits, sizeof out->logits[0]);
    }
}

static const float *row_of(const fv_kv *kv, int32_t layer, int32_t head, bool value, int32_t j) {
    void *at;
    fv_kv_contiguous(kv, layer, head, FV_SEG_VISUAL, value, j, j + 1, &at);
    return at;
}

/* ---- tokens that attention reads --------------------------------------------------------- */

Test(mask, a_masked_token_acts_like_a_pruned_one) {
    static const tiny_shape shapes[] = {
        {.n_layer = 4, .n_head = 4, .n_kv = 2, .d_head = 24, .d_ffn = 70, .vocab = VOCAB},
        {.n_layer = 3, .n_head = 6, .n_kv = 1, .d_head = 20, .d_ffn = 40, .vocab = VOCAB},
        {.n_layer = 2, .n_head = 3, .n_kv = 3, .d_head = 16, .d_ffn = 40, .vocab = VOCAB}};
    static const char *const layouts[] = {"t5 v35 t3 v36 t6", "v200 t7", "t1 v1 t1"};
    static const double keeps[] = {0, 0.3, 0.5};
    for (int i = 0; i < 27; i++) {
        char drop[64], mask[80];
        request a, b;
        trail left, masked;
        tiny_shape s = shapes[i % 3];
        snprintf(drop, sizeof drop, "prune=fastv,layer=%d,keep=%g", 1 + i % (s.n_layer - 1),
                 keeps[i / 9]);
        snprintf(mask, sizeof mask, "%s,mode=mask", drop);
        prefill(&a, s, layouts[i / 3 % 3], drop, 0);
        prefill(&b, s, layouts[i / 3 % 3], mask, i % 2 ? 7 : 0);
        answer(&a, &left);
        answer(&b, &masked);
        cr_assert_eq(memcmp(&left, &masked, sizeof left), 0, "%s of %s", mask, layouts[i / 3 % 3]);
        for (int32_t l = 0; l < s.n_layer; l++)
            for (int32_t g = 0; g < s.n_kv; g++) {
                int32_t n = fv_kv_len(a.p.kv, l, g, FV_SEG_VISUAL);
                cr_assert_eq(fv_kv_len(b.p.kv, l, g, FV_SEG_VISUAL), n);
                cr_assert_eq(n + fv_kv_masked(b.p.kv, l), b.p.n_visual);
            }
        end(&a);
        end(&b);
    }
}

Test(mask, every_token_kept_is_exact) {
    request a, b;
    trail exact, all;
    prefill(&a, tiny_shape_default(), two, "", 0);
    prefill(&b, tiny_shape_default(), two, "prune=fastv,keep=1,mode=mask", 0);
    cr_assert(strstr(b.p.plan.note[FV_STAGE_PRUNE], "every visual token is kept"));
    answer(&a, &exact);
    answer(&b, &all);
    cr_assert_eq(memcmp(&exact, &all, sizeof all), 0);
    end(&a);
    end(&b);
}

/* A NaN in a key or a value spreads to everything that reads it. */
Test(mask, what_nobody_sees_may_hold_anything) {
    request a, b;
    trail clean, poisoned;
    prefill(&a, tiny_shape_default(), two, "prune=fastv,layer=2,keep=0.3,mode=mask", 0);
    prefill(&b, tiny_shape_default(), two, "prune=fastv,layer=2,keep=0.3,mode=mask", 0);
    for (int32_t l = 2; l < 4; l++)
        for (int32_t g = 0; g < 2; g++)
            for (int32_t j = fv_kv_len(b.p.kv, l, g, FV_SEG_VISUAL); j < b.p.n_visual; j++)
                for (int value = 0; value < 2; value++)
                    ((float *)(uintptr_t)row_of(b.p.kv, l, g, value, j))[5] = NAN;
    answer(&a, &clean);
    answer(&b, &poisoned);
    cr_assert_eq(memcmp(&clean, &poisoned, sizeof clean), 0);
    end(&a);
    end(&b);
}

/* ---- held tokens ------------------------------------------------------------------------- */

Test(mask, bytes_are_those_of_exact) {
    request a, b;
    prefill(&a, tiny_shape_default(), two, "", 0);
    prefill(&b, tiny_shape_default(), two, "prune=fastv,layer=1,keep=0.3,mode=mask", 0);
    fv_plan_bytes plan = fv_plan_count(&b.p.plan);
    cr_assert_eq(plan.held, plan.raw);
    cr_assert_eq(fv_kv_bytes(b.p.kv, FV_SEG_VISUAL), fv_kv_bytes(a.p.kv, FV_SEG_VISUAL));
    cr_assert_eq(fv_kv_bytes(b.p.kv, FV_SEG_VISUAL), plan.visual);
    end(&a);
    end(&b);
}

/* A mask in layer K affects tokens in layer K + 1 at the earliest. */
Test(mask, the_first_layer_that_masks_holds_the_tokens_of_exact) {
    request a, b;
    prefill(&a, tiny_shape_default(), two, "", 0);
    prefill(&b, tiny_shape_default(), two, "prune=fastv,layer=2,keep=0.3,mode=mask", 13);
    int32_t last = 0;
    for (int32_t g = 0; g < 2; g++) {
        const int32_t *at = fv_kv_positions(a.p.kv, 2, g, FV_SEG_VISUAL);
        const int32_t *pos = fv_kv_positions(b.p.kv, 2, g, FV_SEG_VISUAL);
        for (int32_t j = 0; j < 71; j++) {
            int32_t k = 0;
            while (at[k] != pos[j]) cr_assert_lt(++k, 71);
            for (int value = 0; value < 2; value++)
                cr_assert_eq(memcmp(row_of(a.p.kv, 2, g, value, k), row_of(b.p.kv, 2, g, value, j),
                                    24 * sizeof(float)),
                             0, "position %d", pos[j]);
            last += j > 0 && pos[j] < pos[j - 1]; /* first visible, then masked */
        }
    }
    cr_assert_eq(last, 2);
    end(&a);
    end(&b);
}

/* ---- attention of masked tokens ---------------------------------------------------------- */

/* The text before them and the visible tokens before them: against NumPy's mask. */
Test(mask, masked_tokens_attend_to_unmasked_ones) {
    tiny_shape shape = {
        .n_layer = 4, .n_head = 4, .n_kv = 2, .d_head = 24, .d_ffn = 70, .vocab = 31};
    json_t *root = rendered_read("fastv");
    const json_t *view = rendered_at(root, "own_view");
    request r;
    float sums[71] = {0};
    cr_assert_eq(rendered_int(view, "seed"), 11);
    prefill(&r, shape, rendered_text(view, "layout"), rendered_text(view, "policy"), 10);
    int32_t seen = fv_kv_len(r.p.kv, 3, 0, FV_SEG_VISUAL), n = fv_kv_masked(r.p.kv, 3);
    cr_assert_eq(seen, 21);
    for (int32_t j = 0; j < n; j++)
        for (int32_t d = 0; d < 24; d++)
            sums[j] +=
                row_of(r.p.kv, 3, 0, false, seen + j)[d] + row_of(r.p.kv, 3, 0, true, seen + j)[d];
    cr_assert_eq(json_array_size(rendered_at(view, "sums")), (size_t)n);
    cr_assert_lt(rendered_off(sums, rendered_at(view, "sums")), 1e-4);
    end(&r);
    json_decref(root);
}

Test(mask, chunks_change_no_bit_of_masked_tokens) {
    static const int32_t chunks[] = {1, 2, 9, 64};
    request all;
    prefill(&all, tiny_shape_default(), two, "prune=fastv,layer=1,keep=0.3,mode=mask", 0);
    for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; c++) {
        request cut;
        prefill(&cut, tiny_shape_default(), two, "prune=fastv,layer=1,keep=0.3,mode=mask",
                chunks[c]);
        cr_assert(same_store(all.p.kv, cut.p.kv), "chunk %d", chunks[c]);
        end(&cut);
    }
    end(&all);
}

Test(mask, a_batch_changes_no_bit) {
    request alone[2];
    tiny_net net;
    tiny_prompt p[4];
    static const char *const policy[] = {
        "prune=fastv,layer=2,keep=0.3,mode=mask", "prune=fastv,layer=1,keep=0.6,mode=mask",
        "prune=fastv,layer=2,keep=0.3", "lazy=vla,map=given,blocks=0-3"};
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 2);
    for (int b = 0; b < 4; b++) tiny_prompt_lay(&net, &p[b], two, 11, policy[b]);
    net.prefill.group = 1;
    ok(tiny_prefill(&net, p, 4, 10));
    for (int b = 0; b < 2; b++) {
        prefill(&alone[b], tiny_shape_default(), two, policy[b], 0);
        cr_assert(same_store(alone[b].p.kv, p[b].kv), "%s", policy[b]);
        cr_assert(same_bits(alone[b].p.logits, p[b].logits, VOCAB), "%s", policy[b]);
        end(&alone[b]);
    }
    for (int b = 0; b < 4; b++) tiny_prompt_free(&p[b]);
    tiny_net_close(&net);
}

/* ---- over the wire ----------------------------------------------------------------------- */

Test(mask, what_is_masked_crosses_the_wire_and_stays_masked) {
    handoff_rig rig;
    tiny_prompt p;
    fv_received got = {0};
    fv_export_report report, exact;
    rig_open(&rig, &(rig_options){0});
    tiny_prompt_lay(&rig.net, &p, two, 11, "prune=fastv,layer=2,keep=0.3,mode=mask");
    ok(tiny_prefill(&rig.net, &p, 1, 0));
    ok(rig_send(&rig, &p, 4, 1, &got, &report));
    cr_assert(same_store(p.kv, got.kv));
    cr_assert_eq(fv_kv_masked(got.kv, 1), 0);
    cr_assert_eq(fv_kv_masked(got.kv, 2), 50);
    cr_assert_eq(fv_kv_bytes(got.kv, FV_SEG_VISUAL), fv_kv_bytes(p.kv, FV_SEG_VISUAL));
    fv_received_free(&got);
    tiny_prompt_free(&p);
    tiny_prompt_lay(&rig.net, &p, two, 11, "");
    ok(tiny_prefill(&rig.net, &p, 1, 0));
    ok(rig_send(&rig, &p, 4, 1, &got, &exact));
    cr_assert_eq(report.rows, exact.rows);
    fv_received_free(&got);
    tiny_prompt_free(&p);
    rig_close(&rig);
}

/* ---- incompatible methods ---------------------------------------------------------------- */

Test(mask, pruning_and_sharing_conflict_with_a_mask) {
    static const char *const others[] = {"lazy=vla",         "lazy=gla",   "select=csp",
                                         "select=streaming", "pack=svd",   "evict=vta",
                                         "evict=h2o",        "evict=tova", "select=lookm"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        char text[128];
        fv_policy policy;
        snprintf(text, sizeof text, "prune=fastv,mode=mask;%s", others[i]);
        cr_assert_eq(fv_policy_parse(text, &policy), FV_EINVAL, "%s", text);
        cr_assert(strstr(fv_last_error(), "use mode=drop"), "%s: %s", text, fv_last_error());
        snprintf(text, sizeof text, "prune=fastv,mode=drop;%s", others[i]);
        ok(fv_policy_parse(text, &policy));
    }
}
