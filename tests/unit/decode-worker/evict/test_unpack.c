/* Compressed layers that lose tokens: which tokens are evicted, when the rest is decompressed, the
 * cost, and that another worker gets the same when it resumes the answer. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode-worker/evict/evict.h"
#include "kv/packed.h"
#include "model/net/anneal.h"
#include "tests/support/evict.h"
#include "tests/support/handoff.h"

enum { BEFORE = 5, VISUAL = 70, AFTER = 9, LAYERS = 4, HEADS = 2, WIDTH = 48, TOKENS = 10 };

#define ALL_LAYERS ",layer=1,shallow=rank_by_first_tap"
#define READS ";expand=attention"

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

static void start(tiny_net *net, tiny_prompt *p, const char *policy) {
    tiny_prompt_make(net, p, BEFORE, VISUAL, AFTER, 11, policy);
    ok(tiny_prefill(net, p, 1, 0));
    cr_assert_eq(p->packed.status, FV_OK, "%s", p->packed.text);
}

/* Runs token t of an answer, counted from 1, after a prompt of n tokens. */
static void run_token(tiny_net *net, tiny_prompt *p, fv_evict *e, int32_t n, int32_t t) {
    int32_t id = 13 + t;
    ok(fv_evict_step(e, p->kv, t));
    ok(tiny_step(net, &p, 1, &id, 1, n - p->n + t - 1));
}

/* Tokens that a head of a layer still attends to. */
static int32_t left(const fv_kv *kv, int32_t layer) {
    const fv_kv_packed *p = fv_kv_packed_of(kv, layer, FV_SEG_VISUAL);
    return p ? p->n_alive : fv_kv_len(kv, layer, 0, FV_SEG_VISUAL);
}

/* ---- bytes ------------------------------------------------------------------------------- */

/* The most tokens that take no more memory uncompressed than compressed, from the layout. */
static int32_t break_even(int32_t rank, uint8_t bits, fv_dtype dtype) {
    for (int32_t v = VISUAL; v > 0; v--) {
        fv_packed_shape k = {.n = v,
                             .lowrank.rank = rank,
                             .lowrank.rank2 = rank,
                             .n_kv = HEADS,
                             .d_head = WIDTH / HEADS,
                             .dtype = dtype,
                             .kind = FV_PACKED_K,
                             .lowrank.bits = bits};
        fv_packed_shape w = k;
        w.kind = FV_PACKED_V;
        if ((size_t)(2 * v * WIDTH) * fv_dtype_bytes(dtype) <=
            fv_packed_bytes(&k) + fv_packed_bytes(&w))
            return v;
    }
    return 0;
}

Test(unpack, a_layer_is_decompressed_at_break_even) {
    static const struct {
        int32_t rank;
        const char *bits;
        fv_dtype dtype;
    } cases[] = {{12, "16", FV_F32}, {20, "16", FV_BF16}, {9, "8", FV_F16}, {7, "4", FV_F32}};
    for (int i = 0; i < 4; i++) {
        tiny_net net;
        tiny_prompt p;
        fv_evict e;
        char policy[160];
        snprintf(policy, sizeof policy,
                 "pack=svd,rank_k=%d,rank_v=%d,gain=0,bits=%s;evict=vta,tau=40" ALL_LAYERS,
                 cases[i].rank, cases[i].rank, cases[i].bits);
        tiny_net_open(&net, tiny_shape_default(), cases[i].dtype, NULL, 1);
        start(&net, &p, policy);
        ok(evict_init(&e, policy, 0));
        int32_t small = break_even(cases[i].rank, (uint8_t)atoi(cases[i].bits), cases[i].dtype);
        double formula = (double)cases[i].rank * WIDTH / (WIDTH - cases[i].rank);
        if (i < 2) /* a tile of keys has 16 rows */
            cr_assert(small >= (int32_t)formula && small < formula + 16, "%d, %g", small, formula);
        bool seen[2] = {false, false};
        for (int32_t t = 1; t <= 40; t++) {
            int32_t v = (int32_t)floor(VISUAL * cos(acos(-1) / 80 * t) + 1e-9);
            size_t raw = (size_t)(LAYERS * 2 * WIDTH * v) * fv_dtype_bytes(cases[i].dtype);
            run_token(&net, &p, &e, p.n, t);
            for (int32_t l = 0; l < LAYERS; l++) {
                bool packed = fv_kv_packed_of(p.kv, l, FV_SEG_VISUAL) != NULL;
                cr_assert_eq(left(p.kv, l), v);
                cr_assert_eq(packed, v > small && v > 0, "%d rows, small is %d", v, small);
                seen[packed] = true;
            }
            size_t held = fv_kv_bytes(p.kv, FV_SEG_VISUAL);
            /* Uncompressed tokens are compacted once a quarter of them is idle. */
            cr_assert_leq(held, v > small ? raw : raw + raw / 3, "%d rows", v);
            cr_assert_eq(fv_kv_bytes_held(p.kv), fv_kv_pool_used(net.pool));
            cr_assert_eq(fv_evict_count(p.kv), (uint64_t)(LAYERS * HEADS * (VISUAL - v)));
        }
        cr_assert(seen[0] && seen[1]);
        cr_assert_eq(fv_kv_bytes(p.kv, FV_SEG_VISUAL), 0);
        tiny_prompt_free(&p);
        cr_assert_eq(fv_kv_pool_used(net.pool), 0);
        tiny_net_close(&net);
    }
}

/* In the second policy, the factors of one layer's keys count for the values of the whole block. */
Test(unpack, a_full_pool_does_not_prevent_it) {
    static const char *const policies[] = {
        "pack=svd,rank_k=12,rank_v=12,gain=0;evict=vta,tau=6" ALL_LAYERS,
        "lazy=vla,map=given,blocks=0-3;pack=svd,rank_k=30,rank_v=6,gain=0;"
        "evict=vta,tau=6" ALL_LAYERS,
        "lazy=vla,map=given,blocks=0-3;pack=svd,rank_k=6,rank_v=30,gain=0;"
        "evict=vta,tau=6" ALL_LAYERS};
    for (int i = 0; i < 3; i++) {
        handoff_rig roomy, tight;
        tiny_prompt p, there;
        rig_stream s;
        fv_received got;
        fv_evict e;
        rig_open(&roomy, &(rig_options){.dtype = FV_F32});
        start(&roomy.net, &p, policies[i]);
        ok(rig_send(&roomy, &p, TOKENS, 0, &got, NULL));
        size_t held = fv_kv_bytes_held(got.kv);
        fv_received_free(&got);
        rig_capture(&roomy, &p, TOKENS, &s);
        size_t room = rig_room(&roomy, &s);
        free(s.bytes);
        rig_open(&tight, &(rig_options){.dtype = FV_F32, .pool_bytes = room});
        ok(rig_send(&tight, &p, TOKENS, 0, &got, NULL));
        cr_assert_eq(fv_kv_pool_used(tight.pool), held);
        there = p;
        there.kv = got.kv;
        ok(evict_init(&e, policies[i], 0));
        for (int32_t t = 1; t <= 6; t++) {
            /* Another request takes all remaining memory. */
            size_t left_over = room - fv_kv_pool_used(tight.pool);
            fv_kv *other;
            ok(fv_kv_open(tight.pool, &other));
            ok(fv_kv_reserve_bytes(other, left_over));
            run_token(&tight.net, &there, &e, p.n, t);
            fv_kv_close(other);
        }
        cr_assert_null(fv_kv_packed_of(got.kv, 0, FV_SEG_VISUAL));
        fv_received_free(&got);
        cr_assert_eq(fv_kv_pool_used(tight.pool), 0);
        rig_close(&tight);
        cr_assert_eq(fv_kv_pool_used(roomy.pool), 0);
        tiny_prompt_free(&p);
        rig_close(&roomy);
    }
}

/* ---- tokens that attention reads --------------------------------------------------------- */

static float most_off(const float *a, const float *b, int32_t n) {
    float most = 0;
    for (int32_t i = 0; i < n; i++) most = fmaxf(most, fabsf(a[i] - b[i]));
    return most;
}

/* The same answer with layers that stay compressed to the end: the same mathematics, another order
 * of sums. Keys in blocks, in one block and before rotation. */
Test(unpack, decompressed_tokens_equal_their_factors) {
    static const char *const keys[] = {"block=16", "block=0", "block=1"};
    for (int i = 0; i < 6; i++) {
        tiny_net net;
        tiny_prompt p, stays;
        fv_evict e[2];
        char policy[160];
        snprintf(policy, sizeof policy,
                 "pack=svd,rank_k=12,rank_v=9,gain=0,%s;evict=vta,tau=9" ALL_LAYERS, keys[i % 3]);
        tiny_net_open(&net, tiny_shape_either(i < 3), FV_F32, NULL, 1);
        start(&net, &p, policy);
        start(&net, &stays, policy);
        for (int b = 0; b < 2; b++) ok(evict_init(&e[b], policy, 0));
        for (int32_t l = 0; l < LAYERS; l++)
            fv_kv_packed_of(stays.kv, l, FV_SEG_VISUAL)->n_small = 0;
        int32_t raw = 0;
        for (int32_t t = 1; t <= 9; t++) {
            run_token(&net, &p, &e[0], p.n, t);
            run_token(&net, &stays, &e[1], p.n, t);
            raw += left(p.kv, 3) > 0 && !fv_kv_packed_of(p.kv, 3, FV_SEG_VISUAL);
            cr_assert_eq(left(stays.kv, 3) > 0,
                         fv_kv_packed_of(stays.kv, 3, FV_SEG_VISUAL) != NULL);
            cr_assert_lt(most_off(p.logits, stays.logits, 97), 1e-4f, "%s at %d", policy, t);
        }
        cr_assert_gt(raw, 0, "some steps saw rebuilt rows");
        tiny_prompt_free(&p);
        tiny_prompt_free(&stays);
        tiny_net_close(&net);
    }
}

static void assert_original_tokens(tiny_shape shape) {
    tiny_net net;
    tiny_prompt p, raw;
    fv_evict e[2];
    static const char rest[] = "evict=vta,tau=8" ALL_LAYERS;
    tiny_net_open(&net, shape, FV_F32, NULL, 1);
    start(&net, &p, "pack=svd,rank_k=48,rank_v=48,gain=0;evict=vta,tau=8" ALL_LAYERS);
    start(&net, &raw, rest);
    for (int b = 0; b < 2; b++) ok(evict_init(&e[b], rest, 0));
    for (int32_t t = 1; t <= 8; t++) {
        run_token(&net, &p, &e[0], p.n, t);
        run_token(&net, &raw, &e[1], raw.n, t);
        cr_assert_lt(most_off(p.logits, raw.logits, 97), 2e-3f, "at %d", t);
        for (int32_t l = 0; l < LAYERS; l++) { /* rank 48 of 48 saves nothing */
            int32_t n = left(raw.kv, l);
            cr_assert_null(fv_kv_packed_of(p.kv, l, FV_SEG_VISUAL));
            cr_assert_eq(left(p.kv, l), n);
            if (n)
                cr_assert_arr_eq(fv_kv_positions(p.kv, l, 1, FV_SEG_VISUAL),
                                 fv_kv_positions(raw.kv, l, 1, FV_SEG_VISUAL), (size_t)n * 4,
                                 "best first");
        }
    }
    tiny_prompt_free(&p);
    tiny_prompt_free(&raw);
    tiny_net_close(&net);
}

Test(unpack, full_rank_factors_decompress_to_the_original_tokens) {
    for (int grid = 0; grid < 2; grid++) assert_original_tokens(tiny_shape_either(grid));
}

/* ---- order=ema ----------------------------------------------------------------------- */

Test(unpack, the_least_important_are_evicted_first_by_ema) {
    static const char policy[] = "pack=svd,rank_k=12,rank_v=12,gain=0,block=8" READS
                                 ",alpha=0.1;evict=vta,order=ema,tau=7" ALL_LAYERS;
    tiny_net net;
    tiny_prompt p;
    fv_evict e;
    bool other = false;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    start(&net, &p, policy);
    ok(evict_init(&e, policy, 0));
    for (int32_t t = 1; t <= 7; t++) {
        float was[LAYERS][BEFORE + VISUAL];
        bool packed[LAYERS];
        for (int32_t l = 0; l < LAYERS; l++) {
            const fv_kv_packed *at = fv_kv_packed_of(p.kv, l, FV_SEG_VISUAL);
            packed[l] = at != NULL;
            for (int32_t j = 0; j < BEFORE + VISUAL; j++) was[l][j] = -1;
            for (int32_t j = 0; at && j < at->rows.n; j++) was[l][at->pos[j]] = at->importance[j];
        }
        ok(fv_evict_step(&e, p.kv, t));
        int32_t v = (int32_t)floor(VISUAL * cos(acos(-1) / 14 * t) + 1e-9);
        for (int32_t l = 0; l < LAYERS; l++) {
            const fv_kv_packed *at = fv_kv_packed_of(p.kv, l, FV_SEG_VISUAL);
            cr_assert_eq(left(p.kv, l), v);
            if (!packed[l] || !at) continue;
            float least = INFINITY;
            int32_t above = 0;
            for (int32_t a = 0; a < at->rows.n_anchor; a++)
                for (int32_t j = at->first[a] + 1; j < at->first[a + 1]; j++)
                    cr_assert_leq(at->importance[j], at->importance[j - 1], "ranked in a block");
            for (int32_t j = 0; j < v; j++) {
                cr_assert_eq(was[l][at->pos[j]], at->importance[j], "what is known goes along");
                least = fminf(least, at->importance[j]);
                other |= t > 1 && at->rank[j] != j;
            }
            for (int32_t j = 0; j < BEFORE + VISUAL; j++) above += was[l][j] > least;
            cr_assert_lt(above, v);
        }
        int32_t id = 13 + t;
        tiny_prompt *one = &p;
        ok(tiny_step(&net, &one, 1, &id, 1, t - 1));
        cr_assert_eq(fv_kv_bytes_held(p.kv), fv_kv_pool_used(net.pool));
    }
    cr_assert(other);
    cr_assert_eq(fv_evict_count(p.kv), (uint64_t)(LAYERS * HEADS * VISUAL));
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

static fv_status plan(const char *policy, fv_plan *out) {
    fv_policy p;
    fv_plan_shape shape = {.n_layer = LAYERS,
                           .n_kv = HEADS,
                           .d_head = 24,
                           .bytes_value = 4,
                           .n_visual = VISUAL,
                           .n_text = 9};
    ok(fv_policy_parse(policy, &p));
    return fv_plan_make(&p, &shape, out);
}

Test(unpack, an_order_without_importance_is_refused_with_what_to_add) {
    fv_plan p;
    cr_assert_eq(plan("evict=vta,order=ema", &p), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "expand=attention"), "%s", fv_last_error());
    cr_assert_eq(plan("pack=svd;expand=full;evict=vta,order=ema", &p), FV_EINVAL);
    ok(plan("pack=svd,rank_k=8,rank_v=8,gain=0;expand=attention;evict=vta,order=ema,layer=1", &p));
    cr_assert(p.evict.by_importance);
    ok(plan("evict=vta,layer=1", &p));
    cr_assert(!p.evict.by_importance);
}

/* ---- resuming an answer, and the report ---------------------------------------------- */

/* Continues the answer here, and on another worker that has prefilled prompt and answer. */
Test(unpack, a_resumed_answer_continues_with_the_same_bits) {
    static const char *const policies[] = {
        "pack=svd,rank_k=12,rank_v=12,gain=0;evict=vta,tau=7" ALL_LAYERS,
        "pack=svd,rank_k=12,rank_v=12,gain=0,bits=8" READS ";evict=vta,tau=9,layer=2",
        "pack=svd,rank_k=9,rank_v=12,gain=0,block=8" READS
        ",parts=both;evict=vta,order=ema,tau=8" ALL_LAYERS,
        "pack=svd,rank_k=20,rank_v=20,gain=0" READS ";evict=importance,keep=0.6",
        "pack=svd,rank_k=20,rank_v=20,gain=0;evict=importance,keep=0.4",
        "lazy=vla,map=given,blocks=1-3;pack=svd,rank_k=12,rank_v=12,gain=0" READS
        ";evict=vta,order=ema,tau=8" ALL_LAYERS,
        "lazy=vla,map=given,blocks=1-3;pack=svd,rank_k=16,rank_v=16,gain=0;"
        "evict=importance,keep=0.2",
        "pack=svd,rank_k=9,rank_v=9,gain=0;evict=importance,keep=0",
        "pack=quant,bits=4,outliers=0.1;evict=vta,tau=8" ALL_LAYERS,
        "lazy=vla,map=given,blocks=1-3;pack=quant,outliers=0.02;evict=vta,tau=9,layer=2",
        "pack=minicache,start=0,gamma=0.2;evict=vta,tau=8" ALL_LAYERS,
        "pack=minicache,start=2,block=16;evict=vta,tau=9,layer=2",
    };
    for (int i = 0; i < 12; i++)
        for (int32_t n = 1; n <= 7; n += 3) {
            handoff_rig rig;
            tiny_prompt p, q, there;
            fv_evict here, far;
            fv_received got;
            int32_t more[TOKENS];
            rig_open(&rig, &(rig_options){.dtype = FV_BF16});
            start(&rig.net, &p, policies[i]);
            ok(evict_init(&here, policies[i], 0));
            ok(evict_init(&far, policies[i], 0));
            for (int32_t t = 1; t <= n; t++) {
                more[t - 1] = 13 + t;
                run_token(&rig.net, &p, &here, p.n, t);
            }
            tiny_prompt_again(&rig.net, &q, &p, policies[i], more, n);
            ok(tiny_prefill(&rig.net, &q, 1, 9));
            cr_assert(same_bits(p.logits, q.logits, 97), "%s after %d", policies[i], n);
            cr_assert(same_store(p.kv, q.kv), "%s after %d", policies[i], n);
            ok(rig_send(&rig, &q, TOKENS, 1, &got, NULL));
            float logits[97];
            there = p;
            there.kv = got.kv;
            there.logits = logits;
            for (int32_t t = n + 1; t <= TOKENS; t++) {
                run_token(&rig.net, &p, &here, p.n, t);
                run_token(&rig.net, &there, &far, p.n, t);
                cr_assert(same_bits(p.logits, there.logits, 97), "%s at %d", policies[i], t);
                cr_assert_eq(fv_evict_count(p.kv), fv_evict_count(got.kv));
                cr_assert_eq(fv_kv_bytes(p.kv, FV_SEG_VISUAL), fv_kv_bytes(got.kv, FV_SEG_VISUAL));
            }
            cr_assert_eq(fv_kv_pool_used(rig.pool), fv_kv_bytes_held(got.kv));
            fv_received_free(&got);
            tiny_prompt_free(&p);
            tiny_prompt_free(&q);
            rig_close(&rig);
        }
}

Test(unpack, evicted_tokens_are_counted_even_when_none_is_left) {
    static const struct {
        const char *policy;
        int32_t layers, stay;
    } cases[] = {
        {"pack=svd,rank_k=9,rank_v=9,gain=0;evict=importance,keep=0", 4, 0},
        {"pack=svd,rank_k=20,rank_v=20,gain=0;evict=importance,keep=0.3", 4, 21},
        {"prune=vtw,layer=2;pack=svd,rank_k=9,rank_v=9,gain=0;evict=importance,keep=0.5", 2, 35},
        {"lazy=vla,map=given,blocks=1-3;pack=svd,rank_k=9,rank_v=9,gain=0;evict=importance,keep=0",
         4, 0},
    };
    for (int i = 0; i < 4; i++) {
        handoff_rig rig;
        tiny_prompt p, there;
        fv_evict e;
        fv_received got;
        rig_open(&rig, &(rig_options){.dtype = FV_F32});
        start(&rig.net, &p, cases[i].policy);
        ok(rig_send(&rig, &p, TOKENS, 0, &got, NULL));
        there = p;
        there.kv = got.kv;
        ok(evict_init(&e, got.policy, got.n));
        for (int32_t t = 1; t <= 2; t++) {
            run_token(&rig.net, &there, &e, p.n, t);
            cr_assert_eq(fv_evict_count(got.kv),
                         (uint64_t)(cases[i].layers * HEADS * (VISUAL - cases[i].stay)), "%s",
                         cases[i].policy);
            for (int32_t j = 0; j < 97; j++) cr_assert(isfinite(there.logits[j]));
        }
        if (cases[i].stay == 0) cr_assert_eq(fv_kv_bytes(got.kv, FV_SEG_VISUAL), 0);
        fv_received_free(&got);
        tiny_prompt_free(&p);
        cr_assert_eq(fv_kv_pool_used(rig.pool), 0);
        rig_close(&rig);
    }
}
