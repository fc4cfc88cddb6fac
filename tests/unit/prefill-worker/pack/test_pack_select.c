/* select x pack: the same tokens are chosen for all KV heads first, and what is kept of the image
 * is compressed. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decode-worker/evict/evict.h"
#include "kv/packed.h"
#include "tests/support/evict.h"
#include "tests/support/handoff.h"

enum { BEFORE = 5, VISUAL = 70, AFTER = 25, LAYERS = 4, HEADS = 2, STEPS = 3, MORE = 8 };

#define CSP "select=csp,heads=shared,heavy=0.3,recent=0.1"
#define WHOLE ";pack=svd,rank_k=48,rank_v=48,gain=0"
#define LOW ";pack=svd,rank_k=7,rank_v=9,gain=0"

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

static void start(tiny_net *net, tiny_prompt *p, const char *policy, int32_t chunk) {
    tiny_prompt_make(net, p, BEFORE, VISUAL, AFTER, 11, policy);
    ok(tiny_prefill(net, p, 1, chunk));
    cr_assert_eq(p->packed.status, FV_OK, "%s", p->packed.text);
}

static float most_off(const float *a, const float *b, int32_t n) {
    float most = 0;
    for (int32_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= most)) most = fabsf(a[i] - b[i]);
    return most;
}

static int by_value(const void *a, const void *b) {
    return *(const int32_t *)a - *(const int32_t *)b;
}

Test(pack_select, what_the_selection_keeps_is_what_is_packed) {
    static const char *const policies[][2] = {
        {CSP, CSP WHOLE},
        {CSP ",group=max,share=0.9", CSP ",group=max,share=0.9" WHOLE},
        {"lazy=vla,map=given,blocks=1-3;" CSP, "lazy=vla,map=given,blocks=1-3;" CSP WHOLE},
        {"prune=fastv,layer=2,keep=0.6;" CSP, "prune=fastv,layer=2,keep=0.6;" CSP WHOLE},
        {"select=snapkv,heads=shared,heavy=0.3", "select=snapkv,heads=shared,heavy=0.3" WHOLE},
        {"select=h2o,heads=shared,group=max", "select=h2o,heads=shared,group=max" WHOLE},
        {"select=roco,heads=shared,heavy=0.4", "select=roco,heads=shared,heavy=0.4" WHOLE},
        {"select=knorm,heads=shared,heavy=0.4", "select=knorm,heads=shared,heavy=0.4" WHOLE},
        {"select=random,heads=shared,heavy=0.4", "select=random,heads=shared,heavy=0.4" WHOLE}};
    for (int i = 0; i < 9; i++) {
        tiny_net net;
        tiny_prompt raw, p, *both[2] = {&raw, &p};
        int32_t n_packed = 0;
        tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
        start(&net, &raw, policies[i][0], 0);
        start(&net, &p, policies[i][1], 13);
        cr_assert(same_bits(raw.logits, p.logits, 97), "prefill is the same");
        for (int32_t l = 0; l < LAYERS; l++) {
            const fv_kv_packed *at = fv_kv_packed_of(p.kv, l, FV_SEG_VISUAL);
            int32_t n = fv_kv_len(raw.kv, l, 0, FV_SEG_VISUAL), pos[VISUAL];
            cr_assert_eq(at ? at->rows.n : 0, n, "%s: layer %d", policies[i][1], l);
            cr_assert_lt(n, VISUAL);
            if (!at) continue;
            n_packed++;
            memcpy(pos, at->pos, (size_t)n * sizeof *pos);
            qsort(pos, (size_t)n, sizeof *pos, by_value);
            for (int32_t g = 0; g < HEADS; g++) {
                cr_assert_arr_eq(fv_kv_positions(raw.kv, l, g, FV_SEG_VISUAL), pos, (size_t)n * 4);
                cr_assert_eq(fv_kv_len(raw.kv, l, g, FV_SEG_TEXT),
                             fv_kv_len(p.kv, l, g, FV_SEG_TEXT));
            }
        }
        cr_assert_gt(n_packed, 0);
        for (int step = 0; step < STEPS; step++) {
            int32_t id = 7 + step;
            ok(tiny_step(&net, both, 2, &id, 1, step));
            cr_assert_lt(most_off(raw.logits, p.logits, 97), 2e-3f, "%s, step %d", policies[i][1],
                         step);
        }
        tiny_prompt_free(&raw);
        tiny_prompt_free(&p);
        tiny_net_close(&net);
    }
}

/* How many tokens are of the image depends on data, so bytes are bounded; so are those of an image
 * that is no longer worth compressing. */
Test(pack_select, bytes_are_bounded_and_the_same_in_pool_wire_and_where_they_arrive) {
    static const char *const policies[] = {
        CSP LOW,
        CSP ";pack=svd,rank_k=7,rank_v=9,gain=1.5,bits=8",
        "select=csp,heads=shared,heavy=0.1,recent=0.05;pack=svd,rank_k=7,rank_v=9,gain=2",
        "select=csp,heads=shared,heavy=0.1,recent=0.9;pack=svd,rank_k=7,rank_v=9,gain=1",
        "lazy=vla,map=given,blocks=1-3;" CSP LOW ",bits=4;expand=attention",
        "lazy=gla,map=given,blocks=0-2;" CSP LOW,
        "prune=visipruner,shallow=1,l2=0.05;" CSP LOW,
        CSP LOW ";evict=vta,tau=9,layer=1"};
    static const fv_dtype dtypes[] = {FV_F32, FV_BF16};
    for (int i = 0; i < 16; i++) {
        handoff_rig rig;
        tiny_prompt p;
        fv_received got;
        rig_open(&rig, &(rig_options){.dtype = dtypes[i % 2]});
        start(&rig.net, &p, policies[i / 2], 0);
        fv_plan_bytes bound = fv_plan_count(&p.plan);
        size_t bytes = fv_kv_bytes(p.kv, FV_SEG_VISUAL);
        cr_assert_leq(bytes, bound.visual, "%s", policies[i / 2]);
        cr_assert_leq(bytes + fv_kv_bytes(p.kv, FV_SEG_TEXT), bound.held, "%s", policies[i / 2]);
        cr_assert_lt(bound.held, bound.raw, "%s", policies[i / 2]);
        ok(rig_send(&rig, &p, MORE, 0, &got, NULL));
        cr_assert(same_store(p.kv, got.kv));
        cr_assert_eq(fv_kv_bytes(got.kv, FV_SEG_VISUAL), bytes);
        cr_assert_eq(fv_kv_bytes_held(got.kv), fv_kv_pool_used(rig.pool));
        fv_received_free(&got);
        tiny_prompt_free(&p);
        cr_assert_eq(fv_kv_pool_used(rig.net.pool), 0);
        rig_close(&rig);
    }
}

Test(pack_select, a_selection_that_keeps_everything_changes_no_bit_of_packing) {
    tiny_net net;
    tiny_prompt p[2], *both[2] = {&p[0], &p[1]};
    tiny_net_open(&net, tiny_shape_default(), FV_BF16, NULL, 1);
    start(&net, &p[0], "select=csp,heads=shared,heavy=0.5,recent=0.5" LOW, 0);
    start(&net, &p[1], "pack=svd,rank_k=7,rank_v=9,gain=0", 0);
    cr_assert(same_store(p[0].kv, p[1].kv));
    cr_assert_eq(fv_plan_count(&p[0].plan).visual, fv_plan_count(&p[1].plan).visual);
    int32_t id = 5;
    ok(tiny_step(&net, both, 2, &id, 1, 0));
    cr_assert(same_bits(p[0].logits, p[1].logits, 97));
    for (int b = 0; b < 2; b++) tiny_prompt_free(&p[b]);
    tiny_net_close(&net);
}

/* Batched, in chunks, after a hand-off, and as a resumed answer; bias=0 prunes the prompt's last
 * token, which first=packed runs again. */
Test(pack_select, an_answer_has_the_same_bits_wherever_it_runs) {
    static const char *const policies[] = {
        CSP LOW ";expand=attention",
        CSP LOW ",first=packed",
        "select=csp,heads=shared,heavy=0.3,recent=0.1,bias=0" LOW ",first=packed",
        "lazy=vla,map=given,blocks=1-3;" CSP LOW ";expand=attention",
        "select=random,heads=shared,heavy=0.4,recent=0.1" LOW ";expand=attention",
        CSP LOW ";expand=attention;evict=vta,tau=5,order=ema,layer=1,shallow=rank_by_first_tap"};
    static const int32_t more[] = {14, 15, 16};
    for (int i = 0; i < 6; i++) {
        handoff_rig rig;
        tiny_prompt p, oob[2], again, there, *one;
        fv_evict e[2];
        fv_received got;
        float logits[97];
        rig_open(&rig, &(rig_options){.dtype = FV_F16});
        start(&rig.net, &p, policies[i], 0);
        tiny_prompt_make(&rig.net, &oob[0], 3, 20, 9, 5, "prune=vtw,layer=1");
        tiny_prompt_make(&rig.net, &oob[1], BEFORE, VISUAL, AFTER, 11, policies[i]);
        ok(tiny_prefill(&rig.net, oob, 2, 16));
        cr_assert(same_store(p.kv, oob[1].kv), "%s", policies[i]);
        cr_assert(same_bits(p.logits, oob[1].logits, 97), "%s", policies[i]);
        ok(rig_send(&rig, &p, MORE, 1, &got, NULL));
        there = p;
        there.kv = got.kv;
        there.logits = logits;
        for (int b = 0; b < 2; b++) ok(evict_init(&e[b], policies[i], p.n));
        for (int32_t t = 1; t <= 3; t++) {
            ok(fv_evict_step(&e[0], p.kv, t));
            ok(fv_evict_step(&e[1], got.kv, t));
            one = &p;
            ok(tiny_step(&rig.net, &one, 1, &more[t - 1], 1, t - 1));
            one = &there;
            ok(tiny_step(&rig.net, &one, 1, &more[t - 1], 1, t - 1));
            cr_assert(same_bits(p.logits, logits, 97), "%s at %d", policies[i], t);
        }
        tiny_prompt_again(&rig.net, &again, &p, policies[i], more, 3);
        ok(tiny_prefill(&rig.net, &again, 1, 7));
        cr_assert(same_bits(p.logits, again.logits, 97), "%s", policies[i]);
        cr_assert(same_store(p.kv, again.kv), "%s", policies[i]);
        fv_received_free(&got);
        tiny_prompt_free(&p);
        tiny_prompt_free(&again);
        for (int b = 0; b < 2; b++) tiny_prompt_free(&oob[b]);
        rig_close(&rig);
    }
}
