/* Tables of compressed layers, which list their tokens: charged to the pool, within the plan's
 * bound, and taken from the memory that a request was granted. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "decode-worker/evict/evict.h"
#include "kv/packed.h"
#include "tests/support/evict.h"
#include "tests/support/handoff.h"

enum { STEPS = 6 };

static void ok(fv_status st, const char *what) {
    cr_assert_eq(st, FV_OK, "%s: %s", what, fv_last_error());
}

static size_t parts(const fv_kv *kv) {
    return fv_kv_bytes(kv, FV_SEG_VISUAL) + fv_kv_bytes(kv, FV_SEG_TEXT);
}

/* Asserts that the pool is charged for what the store holds, and that no page has an unexpected idle end. */
static void assert_store(const fv_kv *kv, const fv_kv_pool *pool, const fv_plan_bytes *most,
                         const char *policy) {
    size_t tables = fv_kv_packed_tables(kv);
    cr_assert_eq(fv_kv_bytes_held(kv), fv_kv_pool_used(pool), "%s", policy);
    cr_assert_geq(fv_kv_bytes_held(kv), fv_kv_bytes(kv, FV_SEG_VISUAL) + tables, "%s", policy);
    cr_assert_leq(tables, most->tables, "%s: tables of %zu of %zu bytes", policy, tables,
                  (size_t)most->tables);
    cr_assert_leq(fv_kv_bytes(kv, FV_SEG_VISUAL), most->visual, "%s", policy);
}

static void run_steps(tiny_net *net, fv_kv_pool *pool, tiny_prompt *p, const char *policy) {
    char text[FV_POLICY_TEXT_MAX];
    tiny_prompt *one = p;
    fv_evict evict;
    fv_plan_bytes most = fv_plan_count(&p->plan);
    fv_policy_print(&p->plan.policy, text);
    ok(evict_init(&evict, text, p->n), policy);
    for (int32_t t = 1; t <= STEPS; t++) {
        int32_t id = 13 + t;
        ok(fv_evict_step(&evict, p->kv, t), policy);
        ok(tiny_step(net, &one, 1, &id, 1, t - 1), policy);
        assert_store(p->kv, pool, &most, policy);
    }
}

/* Runs a policy in one process, and after a hand-off to a pool with exactly the granted memory,
 * which is the plan's bound in pages. */
static void assert_policy(const char *layout, const char *policy) {
    handoff_rig roomy, tight;
    tiny_prompt p, there;
    rig_stream s;
    fv_received got;
    rig_open(&roomy, &(rig_options){.dtype = FV_F16});
    tiny_prompt_lay(&roomy.net, &p, layout, 11, policy);
    ok(tiny_prefill(&roomy.net, &p, 1, 0), policy);
    fv_plan_bytes most = fv_plan_count(&p.plan);
    assert_store(p.kv, roomy.net.pool, &most, policy);
    cr_assert_leq(parts(p.kv), most.held, "%s", policy);
    cr_assert_gt(fv_kv_packed_tables(p.kv), 0, "%s packs nothing", policy);

    rig_capture(&roomy, &p, STEPS, &s);
    cr_assert_eq(s.hello.bytes_tables, most.tables);
    size_t room = rig_room(&roomy, &s);
    rig_open(&tight, &(rig_options){.dtype = FV_F16, .pool_bytes = room - 1});
    cr_assert_neq(rig_send(&tight, &p, STEPS, 0, &got, NULL), FV_OK, "%s", policy);
    rig_close(&tight);
    rig_open(&tight, &(rig_options){.dtype = FV_F16, .pool_bytes = room});
    ok(rig_send(&tight, &p, STEPS, 0, &got, NULL), policy);
    cr_assert_eq(fv_kv_packed_tables(got.kv), fv_kv_packed_tables(p.kv), "%s", policy);
    there = p;
    there.kv = got.kv;
    run_steps(&tight.net, tight.pool, &there, policy);
    fv_received_free(&got);
    cr_assert_eq(fv_kv_pool_used(tight.pool), 0);
    rig_close(&tight);

    run_steps(&roomy.net, roomy.net.pool, &p, policy);
    free(s.bytes);
    tiny_prompt_free(&p);
    cr_assert_eq(fv_kv_pool_used(roomy.net.pool), 0, "%s", policy);
    rig_close(&roomy);
}

Test(packed_tables, are_charged_and_within_the_bound_that_a_pool_of_its_size_admits) {
    static const char *const policies[] = {
        "pack=svd,rank_k=12,rank_v=9,gain=0,block=0",
        "pack=svd,rank_k=12,rank_v=9,gain=0,block=1",
        "pack=svd,rank_k=12,rank_v=9,gain=0,block=16",
        "pack=quant",
        "pack=minicache,start=0",
        "lazy=vla,map=given,blocks=0-2;pack=svd,rank_k=12,rank_v=9,gain=0,block=1",
        "lazy=vla,map=given,blocks=0-2;pack=quant",
        "pack=svd,rank_k=12,rank_v=9,gain=0,block=1;evict=vta,tau=6",
        "pack=svd,rank_k=12,rank_v=9,gain=0,block=1;expand=attention",
        "pack=svd,rank_k=12,rank_v=9,gain=0,block=4;expand=attention;evict=importance,keep=0.5",
        "prune=random,layer=2,keep=0.5;pack=svd,rank_k=12,rank_v=9,gain=0,block=1"};
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++)
        assert_policy("t5 v70 t9", policies[i]);
}

/* Any number of blocks, images and tokens. */
Test(packed_tables, are_within_the_bound_of_any_policy) {
    static const char *const layouts[] = {"t5 v70 t9", "t1 v20 t7 v20 t2 v20 t3", "v33 v33 t4"};
    static const char *const prunes[] = {"", "prune=random,layer=1,keep=0.4;",
                                         "prune=random,layer=3,keep=0.7;"};
    static const char *const lazies[] = {"", "lazy=vla,map=given,blocks=1-2;"};
    static const char *const evicts[] = {"", ";evict=vta,tau=5", ";expand=attention"};
    static const int blocks[] = {0, 1, 2, 3, 5, 16, 64};
    uint32_t x = 20240607;
    for (int i = 0; i < 40; i++) {
        char policy[256];
        uint32_t r[6];
        for (int k = 0; k < 6; k++) r[k] = (x = x * 1664525u + 1013904223u) >> 8;
        bool quant = r[4] % 4 == 0;
        int n = snprintf(policy, sizeof policy, "%s%spack=", prunes[r[0] % 3], lazies[r[1] % 2]);
        if (quant)
            snprintf(policy + n, sizeof policy - (size_t)n, "quant,bits=8%s", evicts[r[3] % 2]);
        else
            snprintf(policy + n, sizeof policy - (size_t)n,
                     "svd,rank_k=%u,rank_v=%u,gain=0,block=%d%s", 4 + r[4] % 13, 4 + r[2] % 13,
                     blocks[r[2] % 7], evicts[r[3] % 3]);
        assert_policy(layouts[r[5] % 3], policy);
    }
}
