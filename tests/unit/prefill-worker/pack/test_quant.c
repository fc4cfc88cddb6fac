/* pack=quant: the plan, the KV after prefill, and decoding. The numbers that codes represent:
 * test_codes.c. */
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

enum { BEFORE = 5, VISUAL = 70, AFTER = 9, MORE = 12 };

static const fv_plan_shape llava = {
    .n_layer = 32, .n_kv = 32, .n_visual = 576, .n_text = 50, .d_head = 128, .bytes_value = 2};

/* AttentionPack's table counts KVQuant as a quarter, without scales and offsets. */
Test(quant, four_bits_are_a_quarter_and_what_belongs_to_them_is_counted) {
    fv_plan plan = plan_of("pack=quant,bits=4", llava);
    fv_plan_bytes bytes = fv_plan_count(&plan);
    uint64_t codes = 32ull * 2 * 576 * 4096 / 2, pairs = 32ull * (4096 + 576) * 8;
    cr_assert_eq(bytes.visual, codes + pairs);
    cr_assert_eq(4 * codes, 32ull * 2 * 576 * 4096 * 2);
    plan = plan_of("preset=paper-kvquant", llava);
    uint64_t with = fv_plan_count(&plan).visual;
    cr_assert(with > bytes.visual && with < 1.12 * (double)codes, "%llu", (unsigned long long)with);
}

Test(quant, a_request_that_has_nothing_to_pack_says_so) {
    fv_plan_shape text = llava, one = llava;
    text.n_visual = 0;
    one.n_visual = 1;
    fv_plan plan = plan_of("pack=quant", text);
    cr_assert(!plan.pack.any && strstr(plan.note[FV_STAGE_PACK], "no image"));
    plan = plan_of("pack=quant,bits=4,outliers=0.01;expand=full", one);
    cr_assert(!plan.pack.any && strstr(plan.note[FV_STAGE_PACK], "to be smaller"));
    cr_assert(strstr(plan.note[FV_STAGE_EXPAND], "no layer is packed"));
    cr_assert_eq(fv_plan_count(&plan).held, 51ull * 32 * 32 * 128 * 4);
    plan = plan_of("prune=vtw,layer=20;pack=quant", llava);
    for (int32_t l = 0; l < 32; l++) cr_assert_eq(plan.pack.layer[l].rank[0] > 0, l < 20);
}

/* ---- the KV after prefill ---------------------------------------------------------------- */

static void prefill(tiny_net *net, tiny_prompt *p, const char *policy, int32_t chunk) {
    tiny_prompt_make(net, p, BEFORE, VISUAL, AFTER, 11, policy);
    cr_assert_eq(tiny_prefill(net, p, 1, chunk), FV_OK, "%s", fv_last_error());
    cr_assert_eq(p->packed.status, FV_OK, "%s", p->packed.text);
}

static float most_off(const float *a, const float *b, int32_t n) {
    float most = 0;
    for (int32_t i = 0; i < n; i++) most = fmaxf(most, fabsf(a[i] - b[i]));
    return most;
}

static void assert_codes(tiny_shape shape) {
    static const char *const policies[] = {"pack=quant", "pack=quant,bits=4,outliers=0.1",
                                           "pack=quant,bits=4,block=0", "pack=quant,block=16"};
    tiny_net net;
    tiny_prompt raw, p;
    tiny_net_open(&net, shape, FV_F32, NULL, 1);
    prefill(&net, &raw, "", 0);
    for (int i = 0; i < 4; i++) {
        prefill(&net, &p, policies[i], i % 2 ? 7 : 0);
        for (int32_t l = 0; l < 4; l++) {
            const fv_kv_packed *at = fv_kv_packed_of(p.kv, l, FV_SEG_VISUAL);
            cr_assert(at && at->rows.n == VISUAL && !fv_kv_len(p.kv, l, 0, FV_SEG_VISUAL));
            for (int k = 0; k < 2; k++) {
                double err = packed_error(raw.kv, at, l, k, &net.cfg.rope);
                double said = (double)p.packed.layer[l].error[k];
                cr_assert_eq(at->part[k].shape.form, FV_PACKED_QUANTIZED);
                cr_assert_float_eq(err, said, 1e-4, "%s, layer %d, part %d: %g and not %g",
                                   policies[i], l, k, err, said);
                cr_assert(said > 0 && said < (strstr(policies[i], "bits=4") ? 0.2 : 0.01));
            }
        }
        tiny_prompt_free(&p);
    }
    tiny_prompt_free(&raw);
    tiny_net_close(&net);
}

Test(quant, codes_are_the_tokens_and_the_error_is_as_reported) {
    for (int grid = 0; grid < 2; grid++) assert_codes(tiny_shape_either(grid));
}

/* Bytes: the bound, compressed, in the pool, on the wire, and on arrival. */
Test(quant, bytes_are_those_of_the_plan_everywhere) {
    static const char *const policies[] = {
        "pack=quant", "preset=paper-kvquant", "pack=quant,bits=4,outliers=0.1,block=0",
        "lazy=vla,map=given,blocks=1-3;pack=quant,bits=4,outliers=0.05"};
    for (int i = 0; i < 4; i++)
        for (fv_dtype type = 0; type < FV_N_DTYPE; type++) {
            handoff_rig rig;
            tiny_prompt p;
            fv_received got;
            rig_open(&rig, &(rig_options){.dtype = type});
            prefill(&rig.net, &p, policies[i], 0);
            cr_assert(p.plan.exact_counts);
            size_t bound = (size_t)fv_plan_count(&p.plan).visual;
            cr_assert_eq(bound, fv_kv_bytes(p.kv, FV_SEG_VISUAL), "%s", policies[i]);
            cr_assert_eq(bound, p.packed.bytes);
            cr_assert_eq(rig_send(&rig, &p, MORE, 0, &got, NULL), FV_OK, "%s", fv_last_error());
            cr_assert_eq(bound, fv_kv_bytes(got.kv, FV_SEG_VISUAL));
            cr_assert(same_store(p.kv, got.kv));
            cr_assert_eq(fv_kv_bytes_held(got.kv), fv_kv_pool_used(rig.pool));
            fv_received_free(&got);
            tiny_prompt_free(&p);
            rig_close(&rig);
        }
}

/* Keys with a few outliers: when these are kept exactly, the others have finer codes. */
Test(quant, more_bits_and_more_outliers_come_closer_to_exact) {
    static const char *const policies[] = {
        "pack=quant,bits=4,first=packed", "pack=quant,bits=4,outliers=0.3,first=packed",
        "pack=quant,bits=8,first=packed", "pack=quant,bits=8,outliers=0.3,first=packed"};
    tiny_net net;
    tiny_prompt raw, p;
    float last = INFINITY;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    prefill(&net, &raw, "", 0);
    for (int i = 0; i < 4; i++) {
        prefill(&net, &p, policies[i], 0);
        float off = most_off(p.logits, raw.logits, 97);
        cr_assert(off > 0 && off < last, "%s: %g after %g", policies[i], (double)off, (double)last);
        last = off;
        tiny_prompt_free(&p);
    }
    cr_assert_lt(last, 0.05f);
    tiny_prompt_free(&raw);
    tiny_net_close(&net);
}

Test(quant, neighbours_change_no_bit_of_an_answer) {
    static const char *const policies[] = {
        "preset=paper-kvquant", "pack=svd,rank_k=9,rank_v=9,gain=0", "", "pack=quant,block=0"};
    tiny_net net;
    tiny_prompt p[4], one, *all[4];
    tiny_net_open(&net, tiny_shape_default(), FV_BF16, NULL, 2);
    for (int i = 0; i < 4; i++) {
        tiny_prompt_make(&net, &p[i], BEFORE + i, VISUAL - 9 * i, AFTER, (uint64_t)(11 + i),
                         policies[i]);
        all[i] = &p[i];
    }
    cr_assert_eq(tiny_prefill(&net, p, 4, 13), FV_OK, "%s", fv_last_error());
    float first[4][97];
    int32_t id = 14;
    for (int i = 0; i < 4; i++) memcpy(first[i], p[i].logits, sizeof first[i]);
    cr_assert_eq(tiny_step(&net, all, 4, &id, 1, 0), FV_OK);
    for (int i = 0; i < 4; i++) {
        tiny_prompt *alone = &one;
        tiny_prompt_make(&net, &one, BEFORE + i, VISUAL - 9 * i, AFTER, (uint64_t)(11 + i),
                         policies[i]);
        cr_assert_eq(tiny_prefill(&net, &one, 1, 0), FV_OK, "%s", fv_last_error());
        cr_assert(same_bits(one.logits, first[i], 97), "%s", policies[i]);
        cr_assert_eq(tiny_step(&net, &alone, 1, &id, 1, 0), FV_OK);
        cr_assert(same_bits(one.logits, p[i].logits, 97), "%s, a token on", policies[i]);
        tiny_prompt_free(&one);
    }
    for (int i = 0; i < 4; i++) tiny_prompt_free(&p[i]);
    tiny_net_close(&net);
}

Test(quant, non_finite_tokens_end_only_their_request) {
    tiny_net net;
    tiny_prompt p[2], raw;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    for (int b = 0; b < 2; b++)
        tiny_prompt_make(&net, &p[b], BEFORE, VISUAL, AFTER, 11, b ? "" : "pack=quant");
    p[0].embeds[100] = INFINITY;
    cr_assert_eq(tiny_prefill(&net, p, 2, 0), FV_OK, "%s", fv_last_error());
    cr_assert_eq(p[0].packed.status, FV_EINVAL);
    cr_assert(strstr(p[0].packed.text, "keys of layer 0") &&
                  strstr(p[0].packed.text, "NaN or infinity"),
              "%s", p[0].packed.text);
    prefill(&net, &raw, "", 0);
    cr_assert(same_bits(raw.logits, p[1].logits, 97));
    for (int b = 0; b < 2; b++) tiny_prompt_free(&p[b]);
    tiny_prompt_free(&raw);
    tiny_net_close(&net);
}

Test(quant, a_prompt_that_ends_with_an_image_cannot_read_its_last_token_again) {
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    tiny_prompt_lay(&net, &p, "t5 v70", 11, "pack=quant,first=packed");
    cr_assert_eq(tiny_prefill(&net, &p, 1, 0), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "pack=quant,first=packed"), "%s", fv_last_error());
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

/* Kernels use the positions of outliers as indices, so the receiver checks them. */
Test(quant, outliers_with_invalid_indices_are_refused) {
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    fv_received got;
    uint32_t type, length;
    rig_open(&rig, &(rig_options){.dtype = FV_F16});
    prefill(&rig.net, &p, "pack=quant,bits=4,outliers=0.1", 0);
    rig_capture(&rig, &p, MORE, &s);
    for (int part = 0; part < 2; part++) {
        uint8_t *at = s.bytes;
        for (int seen = 0;; at += FV_SECTION_HEADER + length) {
            memcpy(&type, at + 4, 4);
            memcpy(&length, at + 40, 4);
            if (type == FV_SECTION_FACTOR && seen++ == part) break;
        }
        fv_codes_layout l =
            fv_codes_layout_of(&fv_kv_packed_of(p.kv, 0, FV_SEG_VISUAL)->part[part].shape);
        at += FV_SECTION_HEADER + l.first + 4 * 7;
        uint32_t was, lie = 1u << 30;
        memcpy(&was, at, 4);
        memcpy(at, &lie, 4);
        rig_put_right(s.bytes, s.n, s.hello.compat.hash);
        cr_assert_eq(fv_refusal_of(rig_deliver(rig.receiver, &s.hello, s.bytes, s.n, 500, &got)),
                     FV_REFUSED_MALFORMED);
        cr_assert(strstr(fv_last_error(), "outliers"), "%s", fv_last_error());
        memcpy(at, &was, 4);
    }
    rig_put_right(s.bytes, s.n, s.hello.compat.hash);
    cr_assert_eq(rig_deliver(rig.receiver, &s.hello, s.bytes, s.n, 500, &got), FV_OK);
    fv_received_free(&got);
    free(s.bytes);
    tiny_prompt_free(&p);
    rig_close(&rig);
}

/* ---- tokens that are pruned ---------------------------------------------------------- */

/* Evicts in one process and after a hand-off, with the same bits, until the bytes are zero. */
static void anneal(const char *before) {
    char policy[200];
    handoff_rig rig;
    tiny_prompt here, there, *a = &here, *b = &there;
    fv_received got;
    fv_evict evict[2];
    snprintf(policy, sizeof policy,
             "%spack=quant,bits=4,outliers=0.1;evict=vta,tau=10,layer=1,shallow=rank_by_first_tap",
             before);
    rig_open(&rig, &(rig_options){.dtype = FV_F32});
    prefill(&rig.net, &here, policy, 0);
    cr_assert_eq(rig_send(&rig, &here, MORE, 0, &got, NULL), FV_OK, "%s", fv_last_error());
    there = here;
    there.kv = got.kv;
    there.logits = malloc(97 * sizeof(float));
    cr_assert_eq(evict_init(&evict[0], policy, here.n), FV_OK);
    cr_assert_eq(evict_init(&evict[1], got.policy, got.n), FV_OK);
    size_t bytes = fv_kv_bytes(got.kv, FV_SEG_VISUAL);
    int32_t had[4];
    for (int32_t l = 0; l < 4; l++) had[l] = fv_kv_packed_of(got.kv, l, FV_SEG_VISUAL)->rows.n;
    for (int32_t t = 1; t <= 10; t++) {
        int32_t id = t;
        cr_assert_eq(fv_evict_step(&evict[0], here.kv, t), FV_OK, "%s", fv_last_error());
        cr_assert_eq(fv_evict_step(&evict[1], there.kv, t), FV_OK, "%s", fv_last_error());
        for (int32_t l = 0; l < 4; l++) {
            const fv_kv_packed *at = fv_kv_packed_of(there.kv, l, FV_SEG_VISUAL);
            int32_t rows = at ? at->n_alive : fv_kv_len(there.kv, l, 0, FV_SEG_VISUAL);
            int32_t left = (int32_t)floor(had[l] * cos(acos(-1) / 20 * t) + 1e-9);
            cr_assert_eq(rows, left, "layer %d at %d: %d and not %d", l, t, rows, left);
        }
        cr_assert_eq(tiny_step(&rig.net, &a, 1, &id, 1, t - 1), FV_OK, "%s", fv_last_error());
        cr_assert_eq(tiny_step(&rig.net, &b, 1, &id, 1, t - 1), FV_OK, "%s", fv_last_error());
        cr_assert(same_bits(here.logits, there.logits, 97), "%s, token %d", policy, t);
        cr_assert_leq(fv_kv_bytes(there.kv, FV_SEG_VISUAL), bytes);
        bytes = fv_kv_bytes(there.kv, FV_SEG_VISUAL);
    }
    cr_assert_eq(bytes, 0, "nothing is left");
    free(there.logits);
    fv_received_free(&got);
    tiny_prompt_free(&here);
    rig_close(&rig);
}

Test(quant, annealing_lets_codes_go_in_the_order_of_their_rank) {
    anneal("");
    anneal("lazy=vla,map=given,blocks=1-3;");
    anneal("select=csp,heavy=0.5,recent=0.4,heads=shared;");
}

Test(quant, what_has_no_rank_is_not_read_at_a_part_of_it) {
    static const char *const bad[] = {
        "pack=quant;expand=attention",    "pack=quant;evict=importance",
        "pack=quant;evict=vta,order=ema", "pack=quant;evict=h2o",
        "select=csp;pack=quant",          "prune=pdrop;pack=quant"};
    for (int i = 0; i < 6; i++) {
        fv_policy p;
        fv_plan plan;
        fv_status st = fv_policy_parse(bad[i], &p);
        if (st == FV_OK) st = fv_plan_make(&p, &llava, &plan);
        cr_assert_eq(st, FV_EINVAL, "%s", bad[i]);
    }
}
