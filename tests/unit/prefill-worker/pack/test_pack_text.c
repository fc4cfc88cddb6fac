/* pack=svd,compress_text=keys: keys of the prompt's text tokens as factors, their values
 * uncompressed. The plan, the KV after prefill, the wire, and decoding. */
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
#include "tests/support/stream.h"

enum { BEFORE = 60, VISUAL = 40, AFTER = 70, TEXT = BEFORE + AFTER, LAYERS = 4, MORE = 12 };

#define TEXT_KEYS ",compress_text=keys,rank_text="
/* Full rank: text keys only (40 image tokens are too few), and image tokens as well. */
#define WHOLE "pack=svd,rank_k=48,rank_v=48,gain=0.6" TEXT_KEYS "48"
#define BOTH "pack=svd,rank_k=48,rank_v=48,gain=0,block=16" TEXT_KEYS "48"
#define LOW "pack=svd,rank_k=9,rank_v=9,gain=0,block=16" TEXT_KEYS "12"

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

/* ---- the plan ---------------------------------------------------------------------------- */

static const fv_plan_shape llava = {
    .n_layer = 32, .n_kv = 32, .n_visual = 576, .n_text = 4000, .d_head = 128, .bytes_value = 2};

Test(pack_text, the_plan_counts_keys_as_factors_and_values_as_tokens) {
    const uint64_t width = 4096, keys = 64ull * (4000 + width) * 2, values = 4000 * width * 2;
    fv_plan off = plan_of("pack=svd", llava), on = plan_of("pack=svd,compress_text=keys", llava);
    cr_assert_eq(off.pack.text_keys.rank, 0);
    cr_assert_eq(on.pack.text_keys.rank, 64);
    cr_assert_eq(fv_plan_count(&on).held, fv_plan_count(&on).visual + 32 * (keys + values));
    cr_assert_eq(fv_plan_count(&on).visual, fv_plan_count(&off).visual);
    cr_assert_eq(fv_plan_count(&on).raw, fv_plan_count(&off).raw);
    cr_assert_eq(fv_plan_count(&off).held, fv_plan_count(&off).visual + 32 * 2 * values);
}

Test(pack_text, text_alone_is_packed_where_that_is_worth_it_and_else_says_so) {
    fv_plan_shape text = llava;
    text.n_visual = 0;
    fv_plan plan = plan_of("pack=svd,compress_text=keys;expand=attention", text);
    cr_assert(!plan.pack.any && fv_plan_packs_any(&plan));
    cr_assert(!plan.note[FV_STAGE_PACK][0]);
    cr_assert(strstr(plan.note[FV_STAGE_EXPAND], "no layer is packed"));
    text.n_text = 60; /* C = 0.98 */
    plan = plan_of("pack=svd,compress_text=keys", text);
    cr_assert(!fv_plan_packs_any(&plan) && strstr(plan.note[FV_STAGE_PACK], "to be smaller"));
    cr_assert_eq(fv_plan_count(&plan).held, fv_plan_count(&plan).raw);
    plan = plan_of("pack=svd", text);
    cr_assert(strstr(plan.note[FV_STAGE_PACK], "no image"));
}

/* The router knows the bytes of a text, not its number of tokens. */
Test(pack_text, a_bound_on_tokens_is_a_bound_on_bytes) {
    fv_plan_shape shape = llava;
    shape.n_text = 200;
    shape.text_bound = true;
    fv_plan most = plan_of("pack=svd,compress_text=keys", shape);
    shape.text_bound = false;
    for (shape.n_text = 0; shape.n_text <= 200; shape.n_text++) {
        fv_plan plan = plan_of("pack=svd,compress_text=keys", shape);
        cr_assert_leq(fv_plan_count(&plan).held, fv_plan_count(&most).held, "%d", shape.n_text);
    }
}

/* ---- the KV after prefill ---------------------------------------------------------------- */

static void start(tiny_net *net, tiny_prompt *p, int32_t visual, const char *policy,
                  int32_t chunk) {
    tiny_prompt_make(net, p, BEFORE, visual, AFTER, 11, policy);
    ok(tiny_prefill(net, p, 1, chunk));
    cr_assert_eq(p->packed.status, FV_OK, "%s", p->packed.text);
}

Test(pack_text, keys_are_factors_and_values_keep_every_bit) {
    static const char *const policies[] = {
        WHOLE, BOTH, WHOLE ",block=0", WHOLE ",block=1", LOW, WHOLE ",energy=0.7", WHOLE ",bits=8"};
    tiny_net net;
    tiny_prompt raw, p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    start(&net, &raw, VISUAL, "", 0);
    for (int i = 0; i < 7; i++) {
        start(&net, &p, VISUAL, policies[i], i % 2 ? 7 : 0);
        cr_assert(same_bits(raw.logits, p.logits, 97), "the first token comes from the rows");
        for (int32_t l = 0; l < LAYERS; l++) {
            const fv_kv_packed *at = fv_kv_packed_of(p.kv, l, FV_SEG_TEXT);
            cr_assert(at && at->rows.n == TEXT && at->source_layer == l, "%s", policies[i]);
            cr_assert_eq(fv_kv_len(p.kv, l, 1, FV_SEG_TEXT), 0);
            cr_assert_eq(packed_error(raw.kv, at, l, FV_PACKED_V, &net.cfg.rope), 0);
            double err = packed_error(raw.kv, at, l, FV_PACKED_K, &net.cfg.rope);
            double said = (double)p.packed.layer[l].error_text;
            cr_assert_eq(p.packed.layer[l].rank_text, at->part[FV_PACKED_K].shape.lowrank.rank);
            cr_assert_float_eq(err, said, i == 6 ? 0.02 : 1e-3, "%s, layer %d: %g and not %g",
                               policies[i], l, err, said);
            if (i < 4) cr_assert_lt(err, 1e-4);
            if (i == 4) cr_assert(err > 0.01 && err < 1);
            if (i == 5) cr_assert(err * err <= 0.3 + 1e-6 && p.packed.layer[l].rank_text < 48);
        }
        tiny_prompt_free(&p);
    }
    tiny_prompt_free(&raw);
    tiny_net_close(&net);
}

static const char *const many[] = {
    LOW,
    LOW ",bits=4",
    "pack=svd,rank_k=9,rank_v=9,gain=0,energy=0.8" TEXT_KEYS "48",
    LOW ",first=packed;expand=attention",
    "pack=svd,gain=1.2" TEXT_KEYS "16",
    "pack=svd,gain=1.2,first=packed,bits=8" TEXT_KEYS "16",
    "prune=visipruner,shallow=2,kv_shallow=drop;" LOW,
    "lazy=vla,map=given,blocks=1-3;" LOW,
    "lazy=gla,map=given,blocks=0-1/2-3;" LOW ",first=packed",
    "select=csp,heads=shared,heavy=0.3,recent=0.1;" LOW,
    "select=csp,heads=shared,heavy=0.3,recent=0.1,bias=0;" LOW ",first=packed",
    "select=random,heads=shared,heavy=0.5;lazy=vla,map=given,blocks=1-3;" LOW,
    LOW ";expand=attention;evict=vta,tau=5,order=ema,layer=1,shallow=rank_by_first_tap",
};
enum { MANY = sizeof many / sizeof many[0] };

/* Tells whether a policy's bytes are exact: no number depends on data. */
static bool is_known(int i) { return i != 2 && i != 6 && (i < 9 || i > 11); }

Test(pack_text, bytes_are_those_of_the_plan_in_the_pool_on_the_wire_and_where_they_arrive,
     .timeout = 240) {
    static const fv_dtype dtypes[] = {FV_F32, FV_BF16, FV_F16};
    for (int i = 0; i < 3 * MANY; i++) {
        const char *policy = many[i / 3];
        handoff_rig rig;
        tiny_prompt p;
        fv_received got;
        rig_open(&rig, &(rig_options){.dtype = dtypes[i % 3]});
        start(&rig.net, &p, i % 2 ? VISUAL : 0, policy, 0);
        cr_assert_not_null(fv_kv_packed_of(p.kv, 2, FV_SEG_TEXT), "%s", policy);
        fv_plan_bytes plan = fv_plan_count(&p.plan);
        size_t visual = fv_kv_bytes(p.kv, FV_SEG_VISUAL), text = fv_kv_bytes(p.kv, FV_SEG_TEXT);
        cr_assert_leq(visual + text, plan.held, "%s", policy);
        if (is_known(i / 3)) cr_assert_eq(visual + text, plan.held, "%s", policy);
        cr_assert_eq(fv_kv_bytes_held(p.kv), fv_kv_pool_used(rig.net.pool));
        ok(rig_send(&rig, &p, MORE, 0, &got, NULL));
        cr_assert(same_store(p.kv, got.kv), "%s", policy);
        cr_assert_eq(fv_kv_bytes(got.kv, FV_SEG_VISUAL), visual);
        cr_assert_eq(fv_kv_bytes(got.kv, FV_SEG_TEXT), text);
        cr_assert_eq(fv_kv_bytes_held(got.kv), fv_kv_pool_used(rig.pool));
        fv_received_free(&got);
        cr_assert_eq(fv_kv_pool_used(rig.pool), 0);
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

Test(pack_text, factors_of_full_rank_answer_as_exact_does, .timeout = 240) {
    static const char *const policies[][2] = {
        {"", WHOLE},
        {"", BOTH},
        {"", BOTH ",block=1,first=packed"},
        {"lazy=gla,map=given,blocks=1-2", "lazy=gla,map=given,blocks=1-2;" BOTH},
        {"lazy=vla,map=given,blocks=1-2", "lazy=vla,map=given,blocks=1-2;" BOTH}};
    static const tiny_shape shapes[] = {
        {.n_layer = 4, .n_head = 4, .n_kv = 2, .d_head = 24, .d_ffn = 70, .vocab = 97},
        {.n_layer = 3, .n_head = 6, .n_kv = 1, .d_head = 16, .d_ffn = 50, .vocab = 97},
        {.n_layer = 3, .n_head = 3, .n_kv = 3, .d_head = 16, .d_ffn = 50, .vocab = 97}};
    for (int i = 0; i < 15; i++) {
        tiny_net net;
        tiny_prompt raw, p, *both[2] = {&raw, &p};
        tiny_net_open(&net, shapes[i / 5], FV_F32, NULL, 1);
        start(&net, &raw, VISUAL, policies[i % 5][0], 0);
        start(&net, &p, VISUAL, policies[i % 5][1], 0);
        for (int step = 0; step < 4; step++) {
            int32_t id = 20 + step;
            ok(tiny_step(&net, both, 2, &id, 1, step));
            float off = most_off(raw.logits, p.logits, 97);
            cr_assert_lt(off, 2e-3f, "%s, step %d: %g", policies[i % 5][1], step, (double)off);
        }
        tiny_prompt_free(&raw);
        tiny_prompt_free(&p);
        tiny_net_close(&net);
    }
}

Test(pack_text, a_low_rank_changes_the_answer) {
    tiny_net net;
    tiny_prompt raw, p, *both[2] = {&raw, &p};
    int32_t id = 5;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    start(&net, &raw, VISUAL, "pack=svd,rank_k=48,rank_v=48,gain=0", 0);
    start(&net, &p, VISUAL, "pack=svd,rank_k=48,rank_v=48,gain=0" TEXT_KEYS "4", 0);
    ok(tiny_step(&net, both, 2, &id, 1, 0));
    cr_assert_gt(most_off(raw.logits, p.logits, 97), 1e-4f);
    tiny_prompt_free(&raw);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

/* Batched, in chunks, after a hand-off, and as a resumed answer. */
Test(pack_text, an_answer_has_the_same_bits_wherever_it_runs, .timeout = 240) {
    static const int32_t more[] = {14, 15, 16};
    for (int i = 0; i < MANY; i++) {
        handoff_rig rig;
        tiny_prompt p, oob[3], again, there, *one;
        fv_evict e[2];
        fv_received got;
        float logits[97];
        int32_t visual = i % 2 ? VISUAL : VISUAL - 9;
        rig_open(&rig, &(rig_options){.dtype = FV_BF16});
        start(&rig.net, &p, visual, many[i], 0);
        tiny_prompt_make(&rig.net, &oob[0], 3, 20, 9, 5, "prune=vtw,layer=1");
        tiny_prompt_make(&rig.net, &oob[1], BEFORE, visual, AFTER, 11, many[i]);
        tiny_prompt_make(&rig.net, &oob[2], 40, 30, 50, 6, "pack=svd,rank_k=7,gain=0");
        ok(tiny_prefill(&rig.net, oob, 3, 16));
        cr_assert(same_store(p.kv, oob[1].kv), "%s", many[i]);
        cr_assert(same_bits(p.logits, oob[1].logits, 97), "%s", many[i]);
        ok(rig_send(&rig, &p, MORE, 1, &got, NULL));
        there = p;
        there.kv = got.kv;
        there.logits = logits;
        for (int b = 0; b < 2; b++) ok(evict_init(&e[b], many[i], p.n));
        tiny_prompt *all[3] = {&oob[0], &there, &oob[2]};
        for (int32_t t = 1; t <= 3; t++) {
            ok(fv_evict_step(&e[0], p.kv, t));
            ok(fv_evict_step(&e[1], got.kv, t));
            one = &p;
            ok(tiny_step(&rig.net, &one, 1, &more[t - 1], 1, t - 1));
            ok(tiny_step(&rig.net, all, 3, &more[t - 1], 1, t - 1));
            cr_assert(same_bits(p.logits, logits, 97), "%s at %d", many[i], t);
        }
        tiny_prompt_again(&rig.net, &again, &p, many[i], more, 3);
        ok(tiny_prefill(&rig.net, &again, 1, 7));
        cr_assert(same_bits(p.logits, again.logits, 97), "%s", many[i]);
        cr_assert(same_store(p.kv, again.kv), "%s", many[i]);
        fv_received_free(&got);
        tiny_prompt_free(&p);
        tiny_prompt_free(&again);
        for (int b = 0; b < 3; b++) tiny_prompt_free(&oob[b]);
        rig_close(&rig);
    }
}

/* ---- refusals ------------------------------------------------------------------------ */

static fv_status deliver(handoff_rig *rig, const rig_stream *s) {
    fv_received got = {0};
    fv_status st = rig_deliver(rig->receiver, &s->hello, s->bytes, s->n, 1000, &got);
    fv_received_free(&got);
    return st;
}

/* Delivers a stream with a change in the PACK of the first layer's text and correct checksums. */
static fv_status deliver_changed(handoff_rig *rig, const rig_stream *s, size_t at, uint32_t x) {
    rig_stream copy = *s;
    uint32_t type, length;
    copy.bytes = malloc(s->n);
    memcpy(copy.bytes, s->bytes, s->n);
    uint8_t *p = copy.bytes;
    for (;; p += FV_SECTION_HEADER + length) {
        memcpy(&type, p + 4, 4);
        memcpy(&length, p + 40, 4);
        if (type == FV_SECTION_PACKED) break;
    }
    memcpy(p + FV_SECTION_HEADER + at, &x, 4);
    rig_put_right(copy.bytes, copy.n, s->hello.compat.hash);
    fv_status st = deliver(rig, &copy);
    free(copy.bytes);
    return st;
}

Test(pack_text, sections_that_lie_about_text_are_refused) {
    enum { N_AT = 0, SOURCE_LAYER_AT = 8, FLAGS_AT = 12, K_AT = 16, V_AT = 32, FIRST_AT = 52 };
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    rig_open(&rig, &(rig_options){.dtype = FV_F16});
    start(&rig.net, &p, 0, LOW, 0);
    size_t anchors = (size_t)fv_kv_packed_of(p.kv, 0, FV_SEG_TEXT)->rows.n_anchor;
    size_t pos_at = FIRST_AT + 4 * (2 * anchors + 1);
    const struct {
        size_t at;
        uint32_t x;
    } lies[] = {{N_AT, TEXT - 1}, {N_AT, TEXT + 1},     {SOURCE_LAYER_AT, 1},
                {FLAGS_AT, 3},    {FLAGS_AT, 5},        {FLAGS_AT, 9},
                {K_AT, 0},        {K_AT, 13},           {K_AT + 8, 7},
                {V_AT, 4},        {V_AT + 8, 8},        {pos_at, 1},
                {pos_at + 4, 9},  {pos_at, UINT32_MAX}, {pos_at + 4, TEXT}};
    rig_capture(&rig, &p, MORE, &s);
    cr_assert_eq(deliver_changed(&rig, &s, pos_at, 0), FV_OK, "as it was");
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        fv_refusal why = fv_refusal_of(deliver_changed(&rig, &s, lies[i].at, lies[i].x));
        cr_assert(why == FV_REFUSED_MALFORMED || why == FV_REFUSED_OVER_BUDGET, "%zu at %zu: %s", i,
                  lies[i].at, fv_refusal_name(why));
        cr_assert_eq(fv_kv_pool_used(rig.pool), 0);
    }
    free(s.bytes);
    tiny_prompt_free(&p);
    rig_close(&rig);
}

Test(pack_text, non_finite_tokens_end_their_request) {
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    tiny_prompt_make(&net, &p, BEFORE, VISUAL, AFTER, 11,
                     "pack=svd,rank_k=1,rank_v=1,gain=0.9" TEXT_KEYS "9");
    p.embeds[40] = NAN;
    ok(tiny_prefill(&net, &p, 1, 0));
    cr_assert_eq(p.packed.status, FV_EINVAL);
    cr_assert(strstr(p.packed.text, "of layer"), "%s", p.packed.text);
    tiny_prompt_free(&p);
    cr_assert_eq(fv_kv_pool_used(net.pool), 0);
    tiny_net_close(&net);
}
