/* Properties of every preset and every method in the table, with its defaults, on a network of 8
 * layers. A method that depends on others, such as compression, gets them; condense
 * methods, which run before the text model, are not covered here. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode-worker/evict/evict.h"
#include "kv/packed.h"
#include "model/net/accum.h"
#include "tests/support/evict.h"
#include "tests/support/handoff.h"
#include "tests/support/latent.h"
#include "tests/support/policies.h"
#include "tests/support/thorough.h"

enum { VOCAB = 97, STEPS = 2 };
static const char *const layout = "t5 v100 t3 v100 t6";

TestSuite(every_policy, .timeout = 600);

static void ok(fv_status st, const char *policy) {
    cr_assert_eq(st, FV_OK, "%s: %s", policy, fv_last_error());
}

/* ---- the policies ------------------------------------------------------------------------ */

/* Wide enough for factors of rank 64 of 200 tokens to save memory. */
static tiny_shape shape(void) {
    return (tiny_shape){
        .n_layer = 8, .n_head = 4, .n_kv = 2, .d_head = 96, .d_ffn = 40, .vocab = VOCAB};
}

static fv_plan_shape plan_shape(void) {
    static const fv_token_span image[] = {
        {.first = 3, .n = 100, .t = 1, .h = 10, .w = 10},
        {.first = 106, .n = 100, .image = 1, .t = 1, .h = 10, .w = 10}};
    tiny_shape s = shape();
    return (fv_plan_shape){.n_layer = s.n_layer,
                           .n_kv = s.n_kv,
                           .d_head = s.d_head,
                           .bytes_value = 4,
                           .n_visual = 200,
                           .n_text = 14,
                           .n_span = 2,
                           .span = image,
                           .latent_layers = LATENT_LAYERS,
                           .latent_rank = LATENT_RANK};
}

/* Adds stages around a pack method whose layers share bytes, with tokens pruned between these
 * layers. */
static void add_latents(policies *all) {
    static const char *const text[] = {
        "prune=pvtp,layer=1,stride=5;pack=latent,budget=0.1",
        "prune=fastv,layer=3,keep=0.4;pack=latent,budget=0.1;expand=attention,parts=both;"
        "evict=vta,tau=4,shallow=rank_by_first_tap",
        "prune=fastv,layer=3,keep=0.4;pack=latent,budget=0.03;evict=vta,tau=4",
        "prune=pvtp,layer=1,stride=5;pack=latent,budget=0.1;expand=attention;"
        "evict=vta,order=ema,tau=4",
        "prune=fastv,layer=5,keep=0.4;pack=latent,budget=0.1;evict=importance,keep=0.3",
        "prune=visipruner,filter=2,l2=0.3;pack=latent,budget=0.1;evict=vta,tau=6",
        "prune=visipruner,shallow=3,filter=4,kv_shallow=drop;pack=latent,budget=0.1",
        "prune=vtw,layer=5;pack=latent,budget=0.1,first=packed",
        "select=snapkv,heads=shared;pack=latent",
        "pack=latent,budget=0.1,keys=codes",
        "prune=fastv,layer=3,keep=0.4;pack=latent,budget=0.1,keys=codes,residual=auto;"
        "expand=attention;evict=vta,order=ema,tau=4",
        "prune=pvtp,layer=1,stride=5;pack=latent,budget=0.1,keys=codes,first=packed;"
        "evict=vta,tau=4,shallow=rank_by_first_tap",
        "pack=latent,budget=0.1,keys=codes,compress_text=all,recompress=16;"
        "evict=importance,keep=0.3"};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        snprintf(all->text[all->n++], POLICIES_TEXT, "%s", text[i]);
}

static const policies *list(void) {
    static policies all;
    fv_plan_shape on = plan_shape();
    policies_add_presets(&all, false);
    policies_add_methods(&all, &on, false);
    add_latents(&all);
    return &all;
}

/* Logits after the prompt and after each token of an answer. */
typedef struct answer {
    float logits[STEPS + 1][VOCAB];
} answer;

/* ---- one request ------------------------------------------------------------------------- */

typedef struct request {
    tiny_prompt p;
    fv_evict evict;
} request;

static void prefill(tiny_net *net, request *r, const char *in_layout, const char *policy) {
    char text[FV_POLICY_TEXT_MAX];
    tiny_prompt_lay(net, &r->p, in_layout, 11, policy);
    ok(tiny_prefill(net, &r->p, 1, 0), policy);
    fv_policy_print(&r->p.plan.policy, text);
    ok(evict_init(&r->evict, text, r->p.n), policy);
}

/* Runs token t of the answer, counted from 1. */
static void step(tiny_net *net, request *r, int32_t t) {
    tiny_prompt *one = &r->p;
    int32_t id = 13 + t;
    ok(fv_evict_step(&r->evict, r->p.kv, t), "a step");
    ok(tiny_step(net, &one, 1, &id, 1, t - 1), "a step");
}

/* How often a KV head of a layer holds each token of the prompt; positions must be those of its
 * segment, text in order unless tokens are evicted one by one, and text must extend to the last
 * token that ran. */
static void count_rows(const tiny_prompt *p, int32_t layer, int32_t head, int32_t t,
                       int32_t *times) {
    const fv_kv_packed *packed = fv_kv_packed_of(p->kv, layer, FV_SEG_VISUAL);
    memset(times, 0, (size_t)p->n * sizeof *times);
    for (int s = 0; s < FV_N_SEG; s++) {
        int32_t n = fv_kv_len(p->kv, layer, head, (fv_kv_segment)s);
        const int32_t *pos = fv_kv_positions(p->kv, layer, head, (fv_kv_segment)s);
        for (int32_t i = 0; i < n; i++) {
            cr_assert(pos[i] >= 0 && pos[i] < p->n + t);
            if (s == FV_SEG_TEXT && i && !fv_accum_kind_of(p->kv))
                cr_assert_geq(pos[i], pos[i - 1]);
            if (pos[i] >= p->n) continue;
            cr_assert_eq(p->seg[pos[i]], s);
            times[pos[i]]++;
        }
        if (s == FV_SEG_TEXT && t > 0) cr_assert_eq(pos[n - 1], p->n + t - 1);
    }
    for (int32_t a = 0; packed && a < packed->rows.n_anchor; a++)
        for (int32_t j = 0; j < packed->alive[a]; j++) times[packed->pos[packed->first[a] + j]]++;
}

/* Prompt tokens that some KV head does not hold, and those that one holds twice. */
static int32_t missing(const tiny_prompt *p, int32_t t, int32_t *twice) {
    int32_t n = 0, *times = malloc((size_t)p->n * sizeof *times);
    const fv_kv_shape *s = fv_kv_get_shape(p->kv);
    cr_assert(times);
    *twice = 0;
    for (int32_t l = 0; l < s->n_layer; l++)
        for (int32_t g = 0; g < s->n_kv; g++) {
            count_rows(p, l, g, t, times);
            for (int32_t i = 0; i < p->n; i++) {
                n += times[i] == 0;
                *twice += times[i] > 1;
            }
        }
    free(times);
    return n;
}

static bool lets_rows_go(const fv_plan *plan) {
    bool some = plan->select.count || plan->evict.share || plan->evict.accum.kind ||
                plan->evict.keep_packed < 1;
    for (int32_t l = 0; l < plan->shape.n_layer; l++)
        some |= plan->visual[l] < plan->shape.n_visual || plan->prune.drop_visual_kv[l];
    return some;
}

/* ---- the properties ---------------------------------------------------------------------- */

/* Factors whose rank is as low as the energy of their matrix allows. */
static bool ranks_by_energy(const fv_plan *plan) {
    const fv_plan_pack_stage *pack = &plan->pack;
    return pack->any && !pack->coded && !pack->merged && !pack->latent &&
           plan->params[FV_STAGE_PACK].pack_svd.energy > 0;
}

/* The planned bytes, before any token of the answer is there. */
static void assert_bytes(const tiny_prompt *p, const char *policy) {
    fv_plan_bytes most = fv_plan_count(&p->plan);
    size_t visual = fv_kv_bytes(p->kv, FV_SEG_VISUAL);
    size_t held = visual + fv_kv_bytes(p->kv, FV_SEG_TEXT);
    bool lazy = false;
    for (int32_t l = 0; l < p->plan.shape.n_layer; l++) lazy |= p->plan.share.source_layer[l] != l;
    cr_assert_leq(held, most.held, "%s holds %zu of %zu", policy, held, (size_t)most.held);
    cr_assert_leq(visual, most.visual, "%s", policy);
    cr_assert_leq(fv_kv_packed_tables(p->kv), most.tables, "%s", policy);
    if (p->plan.exact_counts && !(lazy && p->plan.select.count) && !ranks_by_energy(&p->plan))
        cr_assert_eq(held, most.held, "%s holds %zu, not %zu", policy, held, (size_t)most.held);
}

/* Tokens are kept or pruned as planned. */
static void assert_rows(const request *after_prompt, int32_t gone, int32_t twice,
                        const char *policy) {
    const fv_plan *plan = &after_prompt->p.plan;
    if (lets_rows_go(plan))
        cr_assert_gt(gone, 0, "%s keeps the rows of exact", policy);
    else if (plan->exact_counts)
        cr_assert_eq(gone, 0, "%s lost rows", policy);
    if (plan->select.dup_max == 0) cr_assert_eq(twice, 0, "%s holds rows twice", policy);
}

/* Asserts the same bits after the hand-off; returns whether any differ from exact's. */
static bool run_both(handoff_rig *rig, request *here, const answer *exact, const char *policy) {
    bool differs = !same_bits(here->p.logits, exact->logits[0], VOCAB);
    request there = {.p = here->p};
    fv_received got;
    ok(rig_send(rig, &here->p, STEPS, 2, &got, NULL), policy);
    cr_assert(same_store(here->p.kv, got.kv), "%s", policy);
    cr_assert_eq(got.next, here->p.n);
    float *logits = there.p.logits = malloc(VOCAB * sizeof *logits);
    cr_assert(logits);
    there.p.kv = got.kv;
    ok(evict_init(&there.evict, got.policy, got.n), policy);
    for (int32_t t = 1; t <= STEPS; t++) {
        step(&rig->net, here, t);
        step(&rig->net, &there, t);
        cr_assert_leq(fv_kv_packed_tables(got.kv), fv_plan_count(&here->p.plan).tables, "%s",
                      policy);
        cr_assert(same_bits(here->p.logits, logits, VOCAB), "%s at %d", policy, t);
        differs |= !same_bits(logits, exact->logits[t], VOCAB);
    }
    cr_assert(same_store(here->p.kv, got.kv), "%s", policy);
    fv_received_free(&got);
    cr_assert_eq(fv_kv_pool_used(rig->pool), 0, "%s", policy);
    free(logits);
    return differs;
}

static void assert_policy(handoff_rig *rig, const char *policy, const answer *exact) {
    request r;
    int32_t twice, more;
    prefill(&rig->net, &r, layout, policy);
    assert_bytes(&r.p, policy);
    int32_t gone = missing(&r.p, 0, &twice);
    bool differs = run_both(rig, &r, exact, policy);
    gone += missing(&r.p, STEPS, &more);
    assert_rows(&r, gone, twice + more, policy);
    cr_assert_eq(differs, plan_acts(&r.p.plan), "%s: the answer %s", policy,
                 differs ? "differs" : "is that of exact");
    tiny_prompt_free(&r.p);
}

static void answer_of(tiny_net *net, const char *in_layout, const char *policy, answer *out) {
    request r;
    prefill(net, &r, in_layout, policy);
    for (int32_t t = 0; t <= STEPS; t++) {
        if (t > 0) step(net, &r, t);
        memcpy(out->logits[t], r.p.logits, sizeof out->logits[t]);
    }
    tiny_prompt_free(&r.p);
}

/* Checks every step-th policy: bytes as planned, positions as in the prompt, the same bits in
 * another process's KV, an answer other than exact's and, where tokens are pruned, other tokens. */
static void assert_policies(tiny_shape on, int32_t step) {
    const policies *all = list();
    answer exact;
    handoff_rig rig;
    rig_open(&rig, &(rig_options){.shape = on, .dtype = FV_F32});
    answer_of(&rig.net, layout, "", &exact);
    for (int32_t i = 0; i < all->n; i += step) assert_policy(&rig, all->text[i], &exact);
    cr_assert_eq(fv_kv_pool_used(rig.net.pool), 0);
    rig_close(&rig);
}

Test(every_policy, holds_what_its_plan_says_and_arrives_and_makes_a_difference) {
    assert_policies(shape(), 1);
}

/* Tokens of images are rotated by their places in two grids. */
Test(every_policy, does_so_with_positions_in_a_grid) {
    tiny_shape on = shape();
    on.section[0] = 12, on.section[1] = on.section[2] = 18;
    assert_policies(on, thorough() ? 1 : 3);
}

/* A batch of all policies, with prompts of different lengths and images. */
Test(every_policy, is_the_same_alone_and_in_a_ragged_batch) {
    static const char *const layouts[] = {"t4 v71 t5", "t1 v30 t2 v30 t9", "t3 v1 t2", "v60 t1"};
    static tiny_prompt batch[POLICIES_MAX];
    tiny_prompt *all[POLICIES_MAX];
    tiny_net net;
    const policies *table = list();
    int32_t n = table->n, id = 5;
    tiny_net_open(&net, shape(), FV_F16, NULL, 2);
    for (int32_t i = 0; i < n; i++) {
        tiny_prompt_lay(&net, &batch[i], layouts[i % 4], (uint64_t)i, table->text[i]);
        all[i] = &batch[i];
    }
    ok(tiny_prefill(&net, batch, n, 37), "all of them");
    for (int32_t i = 0; i < n; i++) {
        tiny_prompt p;
        tiny_prompt_lay(&net, &p, layouts[i % 4], (uint64_t)i, table->text[i]);
        ok(tiny_prefill(&net, &p, 1, 0), table->text[i]);
        cr_assert(same_bits(p.logits, batch[i].logits, VOCAB), "%s", table->text[i]);
        cr_assert(same_store(p.kv, batch[i].kv), "%s", table->text[i]);
        tiny_prompt_free(&p);
    }
    ok(tiny_step(&net, all, n, &id, 1, 0), "all of them");
    for (int32_t i = 0; i < n; i++)
        for (int v = 0; v < VOCAB; v++)
            cr_assert(isfinite(batch[i].logits[v]), "%s", table->text[i]);
    for (int32_t i = 0; i < n; i++) tiny_prompt_free(&batch[i]);
    tiny_net_close(&net);
}

/* A prompt without images: exact's bits wherever the plan has no effect. */
Test(every_policy, is_exact_on_text_where_the_plan_says_so) {
    const policies *table = list();
    answer exact;
    tiny_net net;
    int32_t n = table->n, same = 0;
    tiny_net_open(&net, shape(), FV_F32, NULL, 1);
    answer_of(&net, "t40", "", &exact);
    for (int32_t i = 0; i < n; i++) {
        request r;
        prefill(&net, &r, "t40", table->text[i]);
        bool equal = same_bits(r.p.logits, exact.logits[0], VOCAB);
        for (int32_t t = 1; t <= STEPS; t++) {
            step(&net, &r, t);
            equal &= same_bits(r.p.logits, exact.logits[t], VOCAB);
        }
        if (!plan_acts(&r.p.plan)) cr_assert(equal, "%s", table->text[i]);
        same += !plan_acts(&r.p.plan);
        tiny_prompt_free(&r.p);
    }
    cr_assert_gt(same, n / 2);
    tiny_net_close(&net);
}

/* Two adjacent images are one image of as many tokens, to a method that ranks all image tokens
 * together. */
Test(every_policy, pools_the_tokens_of_images) {
    static const char *const pooled[] = {
        "prune=fastv,layer=2,keep=0.3",
        "prune=pvtp,layer=1,stride=1,first=0.3,ratio=0.1;evict=vta,tau=9",
        "prune=visipruner,filter=1,l2=0.3",
        "select=csp,heavy=0.3,recent=0.2",
        "lazy=vla,map=given,blocks=1-5",
        "pack=svd,rank_k=20,rank_v=20,gain=0;expand=attention;evict=importance"};
    tiny_net net;
    tiny_net_open(&net, shape(), FV_F32, NULL, 1);
    for (size_t i = 0; i < sizeof pooled / sizeof pooled[0]; i++) {
        answer one, two;
        request r;
        answer_of(&net, "t5 v70 t9", pooled[i], &one);
        answer_of(&net, "t5 v35 v35 t9", pooled[i], &two);
        cr_assert_eq(memcmp(&one, &two, sizeof one), 0, "%s", pooled[i]);
        prefill(&net, &r, "t5 v35 v35 t9", pooled[i]);
        cr_assert(r.p.plan.shape.n_span == 2 && plan_acts(&r.p.plan));
        tiny_prompt_free(&r.p);
    }
    tiny_net_close(&net);
}
