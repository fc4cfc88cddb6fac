/* pack=minicache: the plan, the KV after prefill, and decoding. The numbers that merged tokens
 * represent: test_merged.c. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode-worker/evict/evict.h"
#include "handoff/kv_packet.h"
#include "kv/packed.h"
#include "policy/plan/packed_shape.h"
#include "tests/support/evict.h"
#include "tests/support/handoff.h"
#include "tests/support/packed_error.h"
#include "tests/support/planned.h"
#include "tests/support/stream.h"

enum { BEFORE = 5, VISUAL = 70, AFTER = 9, MORE = 12, VOCAB = 97 };

static const fv_plan_shape llava = {
    .n_layer = 32, .n_kv = 32, .n_visual = 576, .n_text = 50, .d_head = 128, .bytes_value = 2};

/* "16 17 18": the layers that are to be merged; listed at the second of each pair. */
static void assert_pairs(const char *policy, int32_t n_layer, int32_t from, int32_t to) {
    fv_plan_shape s = llava;
    s.n_layer = n_layer;
    fv_plan plan = plan_of(policy, s);
    for (int32_t l = 0; l < n_layer; l++) {
        bool is = l >= from && l < to;
        cr_assert_eq(plan.pack.layer[l].rank[FV_PACKED_V] > 0, is, "%s: layer %d", policy, l);
        cr_assert_eq(plan.pack.layer[l].back, is && l % 2, "%s: layer %d", policy, l);
        cr_assert_eq(fv_plan_pair(&plan, l), is ? l - l % 2 : l);
    }
    cr_assert_eq(plan.pack.any, to > from);
    cr_assert_eq(plan.note[FV_STAGE_PACK][0] != 0, to == from, "%s", plan.note[FV_STAGE_PACK]);
}

Test(minicache, layers_are_merged_two_and_two_from_an_even_one_on) {
    assert_pairs("pack=minicache", 32, 16, 32);
    assert_pairs("pack=minicache,start=0", 32, 0, 32);
    assert_pairs("pack=minicache,start=17", 32, 18, 32);
    assert_pairs("pack=minicache,start=30", 32, 30, 32);
    assert_pairs("pack=minicache,start=31", 32, 32, 32);
    assert_pairs("pack=minicache", 31, 16, 30);
    assert_pairs("pack=minicache,start=0", 7, 0, 6);
    assert_pairs("pack=minicache", 6, 4, 6);
    assert_pairs("pack=minicache,start=0", 1, 0, 0);
    assert_pairs("prune=vtw,layer=20;pack=minicache", 32, 16, 20);
    fv_policy p;
    fv_plan plan;
    cr_assert_eq(fv_policy_parse("pack=minicache,start=32", &p), FV_OK);
    cr_assert_eq(fv_plan_make(&p, &llava, &plan), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "layers 0..31"), "%s", fv_last_error());
}

Test(minicache, two_layers_of_different_tokens_are_not_merged) {
    fv_plan plan = plan_of("prune=fastv,layer=19,keep=0.5;pack=minicache", llava);
    for (int32_t l = 0; l < 32; l++)
        cr_assert_eq(plan.pack.layer[l].rank[0] > 0, l >= 16 && l != 18 && l != 19, "layer %d", l);
    plan = plan_of("prune=fastv,layer=20,keep=0.5;pack=minicache", llava);
    for (int32_t l = 0; l < 32; l++) cr_assert_eq(plan.pack.layer[l].rank[0] > 0, l >= 16);
}

/* How many tokens are kept exactly is not known in advance, so the bound is their uncompressed
 * size. */
Test(minicache, the_bound_is_that_of_the_tokens) {
    fv_plan plan = plan_of("pack=minicache,start=0", llava), exact = plan_of("", llava);
    cr_assert(!plan.exact_counts);
    cr_assert_eq(fv_plan_count(&plan).visual, fv_plan_count(&exact).visual);
    cr_assert_eq(fv_plan_count(&plan).held, fv_plan_count(&exact).held);
}

Test(minicache, a_request_that_has_nothing_to_merge_says_so) {
    fv_plan_shape text = llava, one = llava;
    text.n_visual = 0;
    one.n_visual = 1;
    fv_plan plan = plan_of("pack=minicache", text);
    cr_assert(!plan.pack.any && !plan.pack.merged && plan.pack.bits == 0);
    cr_assert(strstr(plan.note[FV_STAGE_PACK], "no image"));
    plan = plan_of("pack=minicache;expand=full", one);
    cr_assert(!plan.pack.any && strstr(plan.note[FV_STAGE_PACK], "smaller merged"));
    cr_assert(strstr(plan.note[FV_STAGE_EXPAND], "no layer is packed"));
}

Test(minicache, methods_with_ranks_or_their_own_tokens_conflict) {
    static const char *const bad[] = {"pack=minicache;expand=attention",
                                      "pack=minicache;evict=importance",
                                      "pack=minicache;evict=vta,order=ema",
                                      "pack=minicache;evict=h2o",
                                      "pack=minicache;evict=scissorhands",
                                      "pack=minicache;evict=tova",
                                      "select=csp,heads=shared;pack=minicache",
                                      "select=snapkv;pack=minicache",
                                      "lazy=vla;pack=minicache",
                                      "lazy=gla;pack=minicache",
                                      "prune=pdrop;pack=minicache",
                                      "prune=fastv,mode=mask;pack=minicache"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fv_policy p;
        fv_plan plan;
        fv_status st = fv_policy_parse(bad[i], &p);
        if (st == FV_OK) st = fv_plan_make(&p, &llava, &plan);
        cr_assert_eq(st, FV_EINVAL, "%s", bad[i]);
    }
}

/* ---- the KV after prefill ---------------------------------------------------------------- */

static void prefill(tiny_net *net, tiny_prompt *p, const char *policy, int32_t chunk) {
    tiny_prompt_make(net, p, BEFORE, VISUAL, AFTER, 11, policy);
    cr_assert_eq(tiny_prefill(net, p, 1, chunk), FV_OK, "%s", fv_last_error());
    cr_assert_eq(p->packed.status, FV_OK, "%s", p->packed.text);
}

static void assert_directions(tiny_shape shape) {
    static const char *const policies[] = {
        "pack=minicache,start=0", "pack=minicache,start=0,gamma=0.3,t=0.5",
        "pack=minicache,start=0,block=0", "pack=minicache,start=0,gamma=0,block=16"};
    tiny_net net;
    tiny_prompt raw, p;
    tiny_net_open(&net, shape, FV_F32, NULL, 1);
    prefill(&net, &raw, "", 0);
    for (int i = 0; i < 4; i++) {
        prefill(&net, &p, policies[i], i % 2 ? 7 : 0);
        for (int32_t l = 0; l < 4; l++) {
            const fv_kv_packed *at = fv_kv_packed_of(p.kv, l, FV_SEG_VISUAL);
            cr_assert(at && at->rows.n == VISUAL && !fv_kv_len(p.kv, l, 0, FV_SEG_VISUAL));
            cr_assert(at->source_layer == l - l % 2 && p.packed.layer[l].merged && !p.packed.said);
            for (int k = 0; k < 2; k++) {
                double err = packed_error(raw.kv, at, l, k, &net.cfg.rope);
                double said = (double)p.packed.layer[l].error[k];
                cr_assert_eq(at->part[k].shape.form, FV_PACKED_MERGED);
                cr_assert_eq(at->part[k].base != NULL, l % 2);
                cr_assert_float_eq(err, said, 1e-4, "%s, layer %d, part %d: %g and not %g",
                                   policies[i], l, k, err, said);
                cr_assert(said > 0 && said < 1);
            }
        }
        tiny_prompt_free(&p);
    }
    tiny_prompt_free(&raw);
    tiny_net_close(&net);
}

Test(minicache, directions_are_the_tokens_and_the_error_is_as_reported) {
    for (int grid = 0; grid < 2; grid++) assert_directions(tiny_shape_either(grid));
}

/* Bytes: the bound, compressed, in the pool, on the wire, and on arrival. */
Test(minicache, bytes_are_the_same_everywhere_and_within_the_bound) {
    static const char *const policies[] = {"pack=minicache", "pack=minicache,start=0,gamma=0.3",
                                           "prune=fastv,layer=1,keep=0.8;pack=minicache,start=0"};
    for (int i = 0; i < 3; i++)
        for (fv_dtype type = 0; type < FV_N_DTYPE; type++) {
            handoff_rig rig;
            tiny_prompt p;
            fv_received got;
            rig_open(&rig, &(rig_options){.dtype = type});
            prefill(&rig.net, &p, policies[i], 0);
            size_t visual = fv_kv_bytes(p.kv, FV_SEG_VISUAL), parts = 0, raw = 0;
            for (int32_t l = 0; l < 4; l++) {
                const fv_kv_packed *at = fv_kv_packed_of(p.kv, l, FV_SEG_VISUAL);
                parts += fv_kv_packed_bytes(p.kv, l, FV_SEG_VISUAL);
                for (int k = 0; at && k < 2; k++) raw += fv_packed_raw_bytes(&at->part[k].shape);
            }
            cr_assert_leq(visual, fv_plan_count(&p.plan).visual, "%s", policies[i]);
            cr_assert_eq(parts, p.packed.bytes);
            cr_assert_eq(raw, p.packed.bytes_raw);
            cr_assert(parts > raw / 2 && parts < raw, "%zu of %zu", parts, raw);
            cr_assert_eq(rig_send(&rig, &p, MORE, 0, &got, NULL), FV_OK, "%s", fv_last_error());
            cr_assert_eq(visual, fv_kv_bytes(got.kv, FV_SEG_VISUAL));
            cr_assert(same_store(p.kv, got.kv));
            cr_assert_eq(fv_kv_bytes_held(got.kv), fv_kv_pool_used(rig.pool));
            fv_received_free(&got);
            tiny_prompt_free(&p);
            rig_close(&rig);
        }
}

/* Nothing is merged, either by plan or because of the data. */
Test(minicache, what_keeps_everything_is_exact) {
    static const char *const policies[] = {"pack=minicache,start=3",
                                           "pack=minicache,start=0,gamma=1,first=packed"};
    tiny_net net;
    tiny_prompt raw, p, *one = &p, *other = &raw;
    int32_t id = 14;
    tiny_net_open(&net, tiny_shape_default(), FV_BF16, NULL, 1);
    for (int i = 0; i < 2; i++) {
        prefill(&net, &raw, "", 0);
        prefill(&net, &p, policies[i], 0);
        cr_assert_eq(p.packed.bytes, 0);
        cr_assert_eq(p.packed.said != NULL, i == 1);
        cr_assert(same_store(raw.kv, p.kv));
        cr_assert(same_bits(raw.logits, p.logits, VOCAB), "%s", policies[i]);
        cr_assert_eq(tiny_step(&net, &one, 1, &id, 1, 0), FV_OK);
        cr_assert_eq(tiny_step(&net, &other, 1, &id, 1, 0), FV_OK);
        cr_assert(same_bits(raw.logits, p.logits, VOCAB), "%s, a token on", policies[i]);
        tiny_prompt_free(&p);
        tiny_prompt_free(&raw);
    }
    tiny_net_close(&net);
}

/* Merging gains nothing with one image token per layer, or with none. */
Test(minicache, one_image_token_stays_as_it_is) {
    tiny_net net;
    tiny_prompt raw, p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    for (int i = 0; i < 2; i++) {
        const char *layout = i ? "t12" : "t3 v1 t8";
        tiny_prompt_lay(&net, &raw, layout, 11, "");
        tiny_prompt_lay(&net, &p, layout, 11, "pack=minicache,start=0");
        cr_assert_eq(tiny_prefill(&net, &raw, 1, 0), FV_OK);
        cr_assert_eq(tiny_prefill(&net, &p, 1, 0), FV_OK, "%s", fv_last_error());
        cr_assert(p.plan.note[FV_STAGE_PACK][0] && same_bits(raw.logits, p.logits, VOCAB));
        tiny_prompt_free(&p);
        tiny_prompt_free(&raw);
    }
    tiny_net_close(&net);
}

/* Another method prunes tokens between two layers that are merged here, so groups of layers end
 * there. */
Test(minicache, neighbours_change_no_bit_of_an_answer) {
    static const char *const policies[] = {"pack=minicache,start=0", "prune=fastv,layer=1,keep=0.5",
                                           "",
                                           "prune=fastv,layer=3,keep=0.5;pack=minicache,start=0",
                                           "pack=minicache,block=0,first=packed"};
    enum { N = 5 };
    tiny_net net;
    tiny_prompt p[N], one, *all[N];
    tiny_net_open(&net, tiny_shape_default(), FV_BF16, NULL, 2);
    for (int i = 0; i < N; i++) {
        tiny_prompt_make(&net, &p[i], BEFORE + i, VISUAL - 9 * i, AFTER, (uint64_t)(11 + i),
                         policies[i]);
        all[i] = &p[i];
    }
    cr_assert_eq(tiny_prefill(&net, p, N, 13), FV_OK, "%s", fv_last_error());
    float first[N][VOCAB];
    int32_t id = 14;
    for (int i = 0; i < N; i++) memcpy(first[i], p[i].logits, sizeof first[i]);
    cr_assert_eq(tiny_step(&net, all, N, &id, 1, 0), FV_OK);
    for (int i = 0; i < N; i++) {
        tiny_prompt *alone = &one;
        tiny_prompt_make(&net, &one, BEFORE + i, VISUAL - 9 * i, AFTER, (uint64_t)(11 + i),
                         policies[i]);
        cr_assert_eq(tiny_prefill(&net, &one, 1, 0), FV_OK, "%s", fv_last_error());
        cr_assert(same_bits(one.logits, first[i], VOCAB), "%s", policies[i]);
        cr_assert_eq(tiny_step(&net, &alone, 1, &id, 1, 0), FV_OK);
        cr_assert(same_bits(one.logits, p[i].logits, VOCAB), "%s, a token on", policies[i]);
        tiny_prompt_free(&one);
    }
    for (int i = 0; i < N; i++) tiny_prompt_free(&p[i]);
    tiny_net_close(&net);
}

/* A layer without a partner stays uncompressed, after a hand-off as well. */
Test(minicache, layers_that_are_left_over_stay_raw) {
    tiny_shape shape = tiny_shape_default();
    shape.n_layer = 5;
    for (int32_t start = 0; start < 5; start++) {
        handoff_rig rig;
        tiny_prompt p;
        fv_received got;
        char policy[64];
        snprintf(policy, sizeof policy, "pack=minicache,start=%d", start);
        rig_open(&rig, &(rig_options){.shape = shape, .dtype = FV_F32});
        prefill(&rig.net, &p, policy, 0);
        for (int32_t l = 0; l < 5; l++)
            cr_assert_eq(fv_kv_packed_of(p.kv, l, FV_SEG_VISUAL) != NULL,
                         l >= start + start % 2 && l < 4, "layer %d from %d on", l, start);
        cr_assert_eq(rig_send(&rig, &p, MORE, 2, &got, NULL), FV_OK, "%s", fv_last_error());
        cr_assert(same_store(p.kv, got.kv));
        fv_received_free(&got);
        tiny_prompt_free(&p);
        rig_close(&rig);
    }
}

/* Layers that become final one by one are sent in pairs. */
Test(minicache, groups_of_layers_do_not_cut_a_pair) {
    for (int32_t group = 1; group <= 3; group++) {
        handoff_rig rig;
        tiny_prompt p, whole;
        fv_received got;
        rig_open(&rig, &(rig_options){.dtype = FV_F16});
        prefill(&rig.net, &whole, "pack=minicache,start=0", 0);
        rig.net.prefill.group = group;
        prefill(&rig.net, &p, "pack=minicache,start=0", 0);
        cr_assert(same_store(whole.kv, p.kv) && same_bits(whole.logits, p.logits, VOCAB));
        cr_assert_eq(rig_send(&rig, &p, MORE, group, &got, NULL), FV_OK, "%s", fv_last_error());
        cr_assert(same_store(p.kv, got.kv));
        fv_received_free(&got);
        tiny_prompt_free(&p);
        tiny_prompt_free(&whole);
        rig_close(&rig);
    }
}

Test(minicache, non_finite_tokens_end_only_their_request) {
    tiny_net net;
    tiny_prompt p[2], raw;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    for (int b = 0; b < 2; b++)
        tiny_prompt_make(&net, &p[b], BEFORE, VISUAL, AFTER, 11, b ? "" : "pack=minicache");
    p[0].embeds[100] = INFINITY;
    cr_assert_eq(tiny_prefill(&net, p, 2, 0), FV_OK, "%s", fv_last_error());
    cr_assert_eq(p[0].packed.status, FV_EINVAL);
    cr_assert(strstr(p[0].packed.text, "keys of layer 3") &&
                  strstr(p[0].packed.text, "NaN or infinity"),
              "%s", p[0].packed.text);
    prefill(&net, &raw, "", 0);
    cr_assert(same_bits(raw.logits, p[1].logits, VOCAB));
    for (int b = 0; b < 2; b++) tiny_prompt_free(&p[b]);
    tiny_prompt_free(&raw);
    tiny_net_close(&net);
}

static fv_status lacking(fv_backend *be, const fv_attn_packed_args *a) {
    (void)a;
    return FV_FAIL(FV_EUNSUPPORTED, "the %s backend has no operation attn_merged", be->ops->name);
}

Test(minicache, a_backend_that_cannot_attend_to_it_ends_the_request) {
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    fv_backend_ops without = *net.be.ops;
    without.attn_merged = lacking;
    net.be.ops = &without;
    tiny_prompt_make(&net, &p, BEFORE, VISUAL, AFTER, 11, "pack=minicache,first=packed");
    cr_assert_eq(tiny_prefill(&net, &p, 1, 0), FV_EUNSUPPORTED);
    cr_assert(strstr(fv_last_error(), "no operation attn_merged"), "%s", fv_last_error());
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

/* ---- invalid sections from a peer -------------------------------------------------------
 */

/* The `which`-th section of a type, counted from 0. */
static uint8_t *section_at(const rig_stream *s, uint32_t type, int which) {
    uint32_t is, length;
    for (uint8_t *at = s->bytes;; at += FV_SECTION_HEADER + length) {
        cr_assert_lt((size_t)(at - s->bytes), s->n);
        memcpy(&is, at + 4, 4);
        memcpy(&length, at + 40, 4);
        if (is == type && which-- == 0) return at;
    }
}

static fv_status deliver(handoff_rig *rig, const rig_stream *s) {
    fv_received got;
    rig_put_right(s->bytes, s->n, s->hello.compat.hash);
    fv_status st = rig_deliver(rig->receiver, &s->hello, s->bytes, s->n, 500, &got);
    if (st == FV_OK) fv_received_free(&got);
    rig_assert_baseline(rig, "a pair");
    return st;
}

static fv_status deliver_changed(handoff_rig *rig, const rig_stream *s, uint8_t *at, uint32_t x) {
    uint32_t was;
    memcpy(&was, at, 4);
    memcpy(at, &x, 4);
    fv_status st = deliver(rig, s);
    memcpy(at, &was, 4);
    return st;
}

Test(minicache, pairs_that_are_none_are_refused) {
    enum { SOURCE_LAYER_AT = 8, FLAGS_AT = 12, K_AT = 16, V_AT = 32 };
    static const struct {
        int section;
        size_t at;
        uint32_t x;
    } lies[] = {{1, SOURCE_LAYER_AT, 1}, {1, SOURCE_LAYER_AT, 2}, {1, SOURCE_LAYER_AT, UINT32_MAX},
                {3, SOURCE_LAYER_AT, 1}, /* which refers to itself */
                {3, SOURCE_LAYER_AT, 3}, {0, SOURCE_LAYER_AT, 1}, {1, FLAGS_AT, 1 + 8},
                {1, FLAGS_AT, 1},        {0, FLAGS_AT, 25},       {1, K_AT, 1},
                {1, V_AT + 8, 8},        {0, V_AT + 8, 4},        {1, K_AT + 12, 10000},
                {0, V_AT + 12, 141}};
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    rig_open(&rig, &(rig_options){.dtype = FV_F16});
    prefill(&rig.net, &p, "pack=minicache,start=0", 0);
    rig_capture(&rig, &p, MORE, &s);
    cr_assert_eq(deliver(&rig, &s), FV_OK, "%s", fv_last_error());
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        uint8_t *at = section_at(&s, FV_SECTION_PACKED, lies[i].section) + FV_SECTION_HEADER;
        fv_refusal why = fv_refusal_of(deliver_changed(&rig, &s, at + lies[i].at, lies[i].x));
        cr_assert(why == FV_REFUSED_MALFORMED || why == FV_REFUSED_OVER_BUDGET, "lie %zu: %s", i,
                  fv_refusal_name(why));
    }
    for (int part = 0; part < 4; part++) {
        fv_codes_layout l = fv_codes_layout_of(
            &fv_kv_packed_of(p.kv, part / 2, FV_SEG_VISUAL)->part[part % 2].shape);
        uint8_t *at = section_at(&s, FV_SECTION_FACTOR, part) + FV_SECTION_HEADER;
        cr_assert_gt(l.value, l.first, "something is kept");
        cr_assert_eq(fv_refusal_of(deliver_changed(&rig, &s, at + l.first + 4 * 7, 1u << 30)),
                     FV_REFUSED_MALFORMED);
        cr_assert_eq(fv_refusal_of(deliver_changed(&rig, &s, at + l.channel, 2)),
                     FV_REFUSED_MALFORMED, "head 2");
    }
    cr_assert_eq(deliver(&rig, &s), FV_OK, "%s", fv_last_error());
    free(s.bytes);
    tiny_prompt_free(&p);
    rig_close(&rig);
}

/* ---- tokens that are pruned ---------------------------------------------------------- */

static int32_t rows_left(const fv_kv *kv, int32_t layer) {
    const fv_kv_packed *at = fv_kv_packed_of(kv, layer, FV_SEG_VISUAL);
    return at ? at->n_alive : fv_kv_len(kv, layer, 0, FV_SEG_VISUAL);
}

/* Evicts in one process and after a hand-off, with the same bits; both layers of a pair lose the
 * same tokens, layers below `first` none. */
static void anneal(const char *policy, int32_t first) {
    handoff_rig rig;
    tiny_prompt here, there, *a = &here, *b = &there;
    fv_received got;
    fv_evict evict[2];
    rig_open(&rig, &(rig_options){.dtype = FV_F32});
    prefill(&rig.net, &here, policy, 0);
    cr_assert_gt(here.packed.bytes, 0);
    cr_assert_eq(rig_send(&rig, &here, MORE, 0, &got, NULL), FV_OK, "%s", fv_last_error());
    there = here;
    there.kv = got.kv;
    there.logits = malloc(VOCAB * sizeof(float));
    cr_assert_eq(evict_init(&evict[0], policy, here.n), FV_OK);
    cr_assert_eq(evict_init(&evict[1], got.policy, got.n), FV_OK);
    size_t bytes = fv_kv_bytes(got.kv, FV_SEG_VISUAL);
    int32_t had[4];
    for (int32_t l = 0; l < 4; l++) had[l] = rows_left(got.kv, l);
    for (int32_t t = 1; t <= 10; t++) {
        int32_t id = t;
        cr_assert_eq(fv_evict_step(&evict[0], here.kv, t), FV_OK, "%s", fv_last_error());
        cr_assert_eq(fv_evict_step(&evict[1], there.kv, t), FV_OK, "%s", fv_last_error());
        for (int32_t l = 0; l < 4; l++) {
            int32_t left =
                l < first ? had[l] : (int32_t)floor(had[l] * cos(acos(-1) / 20 * t) + 1e-9);
            cr_assert_eq(rows_left(there.kv, l), left, "%s: layer %d at %d: %d and not %d", policy,
                         l, t, rows_left(there.kv, l), left);
        }
        cr_assert_eq(tiny_step(&rig.net, &a, 1, &id, 1, t - 1), FV_OK, "%s", fv_last_error());
        cr_assert_eq(tiny_step(&rig.net, &b, 1, &id, 1, t - 1), FV_OK, "%s", fv_last_error());
        cr_assert(same_bits(here.logits, there.logits, VOCAB), "%s, token %d", policy, t);
        cr_assert_leq(fv_kv_bytes(there.kv, FV_SEG_VISUAL), bytes);
        bytes = fv_kv_bytes(there.kv, FV_SEG_VISUAL);
    }
    if (first == 0) cr_assert_eq(bytes, 0, "nothing is left");
    free(there.logits);
    fv_received_free(&got);
    tiny_prompt_free(&here);
    rig_close(&rig);
}

Test(minicache, annealing_evicts_the_same_tokens_in_both_layers_of_a_pair) {
    anneal("pack=minicache,start=0,gamma=0.2;evict=vta,tau=10,layer=1,shallow=rank_by_first_tap",
           0);
    anneal("pack=minicache,start=2;evict=vta,tau=10,layer=2", 2);
    anneal("pack=minicache,start=2;evict=vta,tau=10,layer=3", 4); /* as the first of the two */
    anneal("pack=minicache,start=0,block=16;evict=vta,tau=10,layer=1", 2);
}

/* A pruner that decides by data may prune between the layers of a pair, unplanned: then the pair
 * stays uncompressed. */
Test(minicache, a_pair_that_data_cut_is_not_merged) {
    tiny_net net;
    tiny_prompt p;
    tiny_shape shape = tiny_shape_default();
    shape.n_layer = 8;
    tiny_net_open(&net, shape, FV_F32, NULL, 1);
    prefill(&net, &p, "prune=visipruner,filter=4,l2=0.3;pack=minicache,start=0", 0);
    int32_t merged = 0;
    for (int32_t l = 0; l < 8; l += 2) {
        const fv_kv_packed *a = fv_kv_packed_of(p.kv, l, FV_SEG_VISUAL),
                           *b = fv_kv_packed_of(p.kv, l + 1, FV_SEG_VISUAL);
        cr_assert_eq(!a, !b);
        if (!a) continue;
        merged++;
        cr_assert(a->rows.n == b->rows.n);
        cr_assert_arr_eq(a->pos, b->pos, (size_t)a->rows.n * sizeof *a->pos);
    }
    cr_assert(merged > 0 && merged < 4, "%d of 4", merged);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}
