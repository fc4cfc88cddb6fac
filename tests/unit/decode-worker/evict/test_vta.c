/* evict=vta: the schedule, the plan, tokens ordered by rank on one side and evicted on the other,
 * and a resumed answer. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode-worker/evict/evict.h"
#include "policy/plan/vta.h"
#include "prefill-worker/prefill/rank.h"
#include "tests/support/evict.h"
#include "tests/support/handoff.h"
#include "tests/support/planned.h"

enum { LAYERS = 4, HEADS = 2, VISUAL = 70, TEXT = 14, TOKENS = 9 };

#define STEPS "prune=pvtp,layer=1,stride=1,first=0.2,ratio=0.3"

/* tau before, at and after TOKENS; which method ranks; which layers; heads of different lengths. */
static const char *const policies[] = {
    STEPS ";evict=vta,tau=6",
    STEPS ";evict=vta,tau=20,beta=linear,shallow=rank_by_first_tap",
    "evict=vta,tau=9,layer=2,shallow=rank_by_first_tap",
    "evict=vta,beta=exponential,sigma=2.5",
    "prune=fastv,layer=2,keep=0.4;evict=vta,tau=7",
    "prune=random,layer=1,keep=0.6;evict=vta,tau=7,layer=3",
    "prune=vtw,layer=2;evict=vta,tau=5,layer=1",
    "lazy=vla,map=given,blocks=1-3;evict=vta,tau=7,layer=1,shallow=rank_by_first_tap",
    "lazy=gla,map=given,blocks=2-3;evict=vta,tau=6,layer=1",
    "prune=fastv,layer=2,keep=0.5;lazy=vla,map=given,blocks=0-3;evict=vta,tau=9",
    "prune=visipruner,filter=1,l2=0.05;evict=vta,tau=7",
    "prune=visipruner,filter=0,l2=0.05;lazy=vla,map=given,blocks=2-3;evict=vta,tau=11,"
    "shallow=rank_by_first_tap",
    "select=streaming,sink=2,recent=0.5,full_heads=0.5;evict=vta,tau=7,layer=1",
    "select=h2o,heavy=0.5;evict=vta,tau=7,layer=1",
};
enum { N_POLICY = sizeof policies / sizeof policies[0], N_WITHOUT_SELECT = N_POLICY - 2 };

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

static fv_plan planned(const char *policy, int32_t n_layer, int32_t n_visual) {
    fv_plan_shape shape = {.n_layer = n_layer, .n_kv = 2, .n_visual = n_visual, .n_text = 9};
    return plan_of(policy, shape);
}

/* ---- the schedule ---------------------------------------------------------------------- */

/* Number of v tokens that are left at step t. */
static int32_t left(const char *policy, int32_t v, int32_t t) {
    fv_plan plan = planned(policy, 32, v);
    return (int32_t)floor(plan.evict.share(&plan, t) * v + 1e-9);
}

Test(vta, the_number_of_tokens_left_is_the_papers) {
    static const int32_t at[] = {1, 2, 10, 25, 40, 49, 50, 51, 1000};
    static const int32_t of_288[] = {287, 287, 273, 203, 88, 9, 0, 0, 0};
    static const int32_t of_576[] = {575, 574, 547, 407, 177, 18, 0, 0, 0};
    for (int i = 0; i < 9; i++) {
        cr_assert_eq(left("evict=vta", 288, at[i]), of_288[i], "t = %d", at[i]);
        cr_assert_eq(left("evict=vta,tau=50", 576, at[i]), of_576[i], "t = %d", at[i]);
    }
    cr_assert_eq(left("evict=vta,beta=linear,tau=50", 100, 7), 86);
    cr_assert_eq(left("evict=vta,beta=linear,tau=1", 100, 1), 0);
    cr_assert_eq(left("evict=vta,beta=exponential,sigma=20", 100, 20), 36);
    cr_assert_eq(left("evict=vta,beta=exponential,sigma=20,tau=1", 100, 93), 0);
}

Test(vta, no_token_returns_and_a_third_is_saved_over_the_answer) {
    static const char *const forms[] = {"evict=vta", "evict=vta,beta=linear",
                                        "evict=vta,beta=exponential"};
    double sum = 0;
    for (int i = 0; i < 3; i++)
        for (int32_t t = 1, had = 576; t < 200; t++) {
            int32_t has = left(forms[i], 576, t);
            cr_assert(has >= 0 && has <= had, "%s at %d", forms[i], t);
            had = has;
        }
    fv_plan plan = planned("evict=vta", 32, 576);
    for (int32_t t = 0; t < 50; t++) sum += plan.evict.share(&plan, t);
    cr_assert_lt(fabs(sum / 50 - 0.6466), 1e-4, "%g", sum / 50);
}

/* ---- the plan -------------------------------------------------------------------------- */

/* rank_from of each span of layers, with their number after an x. */
static void assert_ranked(const char *policy, const char *want) {
    char got[256] = "";
    fv_plan plan = planned(policy, 32, 576);
    for (int32_t l = 0, n; l < 32; l += n) {
        for (n = 1; l + n < 32 && plan.evict.rank_from[l + n] == plan.evict.rank_from[l]; n++) {
        }
        snprintf(got + strlen(got), 16, "%dx%d ", plan.evict.rank_from[l], n);
        if (plan.evict.rank_from[l] >= 0)
            cr_assert(plan.capture[plan.evict.rank_from[l]] & FV_CAPTURE_LAST_ROW);
    }
    cr_assert_str_eq(got, want, "%s: %s", policy, got);
    cr_assert_not_null(plan.evict.share);
    cr_assert_str_empty(plan.note[FV_STAGE_EVICT]);
}

Test(vta, layers_are_ranked_where_their_tokens_were_chosen) {
    assert_ranked("prune=pvtp;evict=vta", "-1x3 2x7 9x7 16x7 23x7 30x1 ");
    assert_ranked("prune=pvtp;evict=vta,shallow=rank_by_first_tap", "2x10 9x7 16x7 23x7 30x1 ");
    assert_ranked("prune=fastv,layer=5;evict=vta", "-1x5 4x27 ");
    assert_ranked("prune=fastv,layer=5,keep=1;evict=vta", "-1x3 2x29 "); /* no pruning */
    assert_ranked("evict=vta", "-1x3 2x29 ");
    assert_ranked("evict=vta,layer=1,shallow=rank_by_first_tap", "0x32 ");
    assert_ranked("prune=random,layer=1;evict=vta", "-1x3 2x29 ");
    assert_ranked("prune=vtw;evict=vta", "-1x3 2x13 -1x16 ");
    assert_ranked("prune=vtw,layer=2;evict=vta,shallow=rank_by_first_tap", "1x2 -1x30 ");
    assert_ranked("preset=paper-st3", "-1x3 2x7 9x7 16x7 23x7 30x1 ");
}

/* VisiPruner may filter after each layer from the 8th on: the first of these ranks, until one
 * filters. */
Test(vta, a_pruner_that_decides_by_data_ranks_from_the_layer_it_first_looks_at) {
    assert_ranked("prune=visipruner;evict=vta", "-1x8 7x24 ");
    assert_ranked("prune=visipruner,filter=15/32;evict=vta,shallow=rank_by_first_tap", "15x32 ");
    assert_ranked("prune=visipruner,kv_shallow=drop;evict=vta,shallow=rank_by_first_tap",
                  "-1x6 7x26 ");
    fv_plan plan = planned("prune=visipruner;evict=vta", 32, 576);
    for (int32_t l = 0; l < 32; l++)
        cr_assert_eq((plan.capture[l] & FV_CAPTURE_LAST_ROW) != 0, l >= 7 && l < 31, "layer %d", l);
}

Test(vta, a_lazy_block_is_annealed_as_its_source_layer_is) {
    static const char first[] = "lazy=vla,map=given,blocks=1-6;evict=vta";
    static const char keeps[] = "lazy=gla,map=given,blocks=0-31;evict=vta";
    assert_ranked(first, "-1x7 2x25 "); /* layers 3..6 hold what layer 1 holds */
    assert_ranked("lazy=vla,map=given,blocks=1-6;evict=vta,shallow=rank_by_first_tap", "2x32 ");
    assert_ranked("prune=pvtp;lazy=vla,map=paper_like;evict=vta", "-1x3 2x7 9x7 16x7 23x7 30x1 ");
    fv_plan plan = planned(keeps, 32, 576);
    cr_assert_null(plan.evict.share);
    cr_assert(strstr(plan.note[FV_STAGE_EVICT], "no ranked layer"));
}

Test(vta, where_nothing_can_be_evicted_the_plan_says_why) {
    fv_plan plan = planned("evict=vta", 32, 0);
    cr_assert(strstr(plan.note[FV_STAGE_EVICT], "no image"));
    cr_assert_null(plan.evict.share);
    plan = planned("prune=vtw,layer=2;evict=vta", 32, 576);
    cr_assert(strstr(plan.note[FV_STAGE_EVICT], "no ranked layer"));
    cr_assert_null(plan.evict.share);
    for (int32_t l = 0; l < 32; l++)
        cr_assert(plan.capture[l] == 0 && plan.evict.rank_from[l] == -1);
}

/* ---- ranked rows ------------------------------------------------------------------------ */

static void start(tiny_net *net, tiny_prompt *p, const char *policy, int32_t chunk) {
    tiny_net_open(net, tiny_shape_default(), FV_F32, NULL, 2);
    tiny_prompt_make(net, p, 5, VISUAL, 9, 11, policy);
    ok(tiny_prefill(net, p, 1, chunk));
}

static void finish(tiny_net *net, tiny_prompt *p) {
    tiny_prompt_free(p);
    cr_assert_eq(fv_kv_pool_used(net->pool), 0);
    tiny_net_close(net);
}

/* Token 0 of a layer ranked by layer r is the one token that prune=fastv keeps after r, tokens 0
 * and 1 are the two that it keeps, and so on. The layers up to r are those of `exact` in both. */
Test(vta, tokens_are_stored_in_attention_order) {
    tiny_net net;
    tiny_prompt p, few;
    start(&net, &p, "evict=vta,layer=2,shallow=rank_by_first_tap", 7);
    for (int32_t n = 1; n < VISUAL; n += 5) {
        char policy[64];
        snprintf(policy, sizeof policy, "prune=fastv,layer=2,keep=%.9f", (n + 1e-6) / VISUAL);
        tiny_prompt_make(&net, &few, 5, VISUAL, 9, 11, policy);
        ok(tiny_prefill(&net, &few, 1, 0));
        for (int32_t l = 0; l < LAYERS; l++)
            for (int32_t g = 0; g < HEADS; g++) {
                const int32_t *pos = fv_kv_positions(p.kv, l, g, FV_SEG_VISUAL);
                const int32_t *kept = fv_kv_positions(few.kv, 3, 0, FV_SEG_VISUAL);
                cr_assert_eq(fv_kv_len(few.kv, 3, 0, FV_SEG_VISUAL), n);
                cr_assert_eq(fv_kv_ranked(p.kv, l, g), VISUAL);
                for (int32_t k = 0; k < n; k++) {
                    bool there = false;
                    for (int32_t j = 0; j < n; j++) there |= pos[j] == kept[k];
                    cr_assert(there, "layer %d: row %d of %d", l, k, n);
                }
            }
        tiny_prompt_free(&few);
    }
    finish(&net, &p);
}

/* Tokens kept by a filter are ranked where they were chosen, and not where the pruner first looked:
 * there the first of them is the one that fastv keeps after that layer, if it stays. */
Test(vta, tokens_kept_by_a_filter_are_ranked_in_its_layer) {
    tiny_net net;
    tiny_prompt p, only;
    start(&net, &p, "prune=visipruner,shallow=0,detect=1,cos=1,l2=0.05;evict=vta", 9);
    int32_t n = fv_kv_len(p.kv, 2, 0, FV_SEG_VISUAL);
    cr_assert(n > 1 && n < VISUAL, "filtered after layer 1: %d rows", n);
    tiny_prompt_make(&net, &only, 5, VISUAL, 9, 11,
                     "prune=visipruner,shallow=0,filter=1,l2=0.05;evict=vta,"
                     "shallow=rank_by_first_tap");
    ok(tiny_prefill(&net, &only, 1, 0));
    cr_assert_eq(fv_kv_ranked(p.kv, 1, 0), 0);
    cr_assert_eq(fv_kv_ranked(only.kv, 1, 0), VISUAL);
    const int32_t *all = fv_kv_positions(only.kv, 1, 0, FV_SEG_VISUAL);
    for (int32_t l = 2; l < LAYERS; l++) {
        const int32_t *pos = fv_kv_positions(p.kv, l, 0, FV_SEG_VISUAL);
        cr_assert_eq(fv_kv_ranked(p.kv, l, 0), n);
        for (int32_t j = 0, at = 0; j < n; j++, at++) { /* in the order of layer 1 */
            while (at < VISUAL && all[at] != pos[j]) at++;
            cr_assert_lt(at, VISUAL, "layer %d row %d", l, j);
        }
    }
    tiny_prompt_free(&only);
    finish(&net, &p);
}

/* Layers reported as final are ordered by then, whatever the groups. */
typedef struct finals {
    const tiny_prompt *p;
    int32_t n, last;
} finals;

static fv_status note_final(void *user, int32_t n_layer) {
    finals *f = user;
    cr_assert_gt(n_layer, f->last);
    for (int32_t l = 0; l < n_layer; l++)
        if (f->p->plan.evict.rank_from[l] >= 0) cr_assert_gt(fv_kv_ranked(f->p->kv, l, 0), 0);
    f->last = n_layer;
    f->n++;
    return FV_OK;
}

Test(vta, groups_chunks_and_neighbours_change_no_order) {
    for (int i = 0; i < N_POLICY; i++)
        for (int32_t group = 0; group <= 2; group++) {
            tiny_net net;
            tiny_prompt whole, cut[3];
            finals f = {.p = &cut[1]};
            start(&net, &whole, policies[i], 0);
            tiny_prompt_make(&net, &cut[0], 2, 30, 3, 5, "prune=vtw,layer=1");
            tiny_prompt_make(&net, &cut[1], 5, VISUAL, 9, 11, policies[i]);
            tiny_prompt_make(&net, &cut[2], 2, 20, 3, 5, policies[(i + 1) % N_POLICY]);
            net.prefill = (fv_prefill_options){.group = group, .final = note_final, .user = &f};
            ok(tiny_prefill(&net, cut, 3, 16));
            cr_assert(same_store(whole.kv, cut[1].kv), "'%s' by %d", policies[i], group);
            cr_assert(same_bits(whole.logits, cut[1].logits, 97));
            if (group == 1) cr_assert_gt(f.n, 0);
            for (int b = 0; b < 3; b++) tiny_prompt_free(&cut[b]);
            finish(&net, &whole);
        }
}

/* Layer 2 uses the keys of layer 1, and their tokens are reordered together, once both have run. */
Test(vta, a_source_layer_waits_for_its_lazy_layers) {
    static const float by_position[4] = {1, 4, 2, 3};
    static const int32_t pos[4] = {0, 1, 2, 3}, order[4] = {1, 3, 2, 0}, from[3] = {-1, 0, 0};
    const float *attention[3] = {by_position};
    fv_kv_shape shape = {.n_layer = 3, .n_kv = 1, .d_head = 4, .dtype = FV_F32};
    fv_kv_pool *pool;
    fv_kv *kv;
    ok(fv_kv_pool_open(fv_device_host(), &shape, 0, &pool));
    ok(fv_kv_open(pool, &kv));
    fv_kv_borrow(kv, 2, 1, false);
    for (int32_t l = 0; l < 2; l++) {
        ok(fv_kv_extent(kv, l, 4));
        ok(fv_kv_append(kv, l, FV_SEG_VISUAL, pos, 4));
    }
    ok(fv_rank_run(from, kv, 2, attention));
    cr_assert_eq(fv_kv_ranked(kv, 1, 0), 0);
    ok(fv_kv_extent(kv, 2, 4));
    ok(fv_kv_append(kv, 2, FV_SEG_VISUAL, pos, 4));
    ok(fv_rank_run(from, kv, 3, attention));
    cr_assert_eq(fv_kv_ranked(kv, 0, 0), 0);
    for (int32_t l = 1; l < 3; l++) {
        cr_assert_eq(fv_kv_ranked(kv, l, 0), 4);
        cr_assert_arr_eq(fv_kv_positions(kv, l, 0, FV_SEG_VISUAL), order, sizeof order);
    }
    fv_kv_close(kv);
    fv_kv_pool_close(pool);
}

/* ---- eviction ---------------------------------------------------------------------------- */

static void init(fv_evict *e, const tiny_prompt *p) {
    char text[FV_POLICY_TEXT_MAX];
    fv_policy_print(&p->plan.policy, text);
    ok(evict_init(e, text, p->n));
}

/* Runs token t of an answer, counted from 1. */
static void run_token(tiny_net *net, tiny_prompt *p, fv_evict *e, int32_t n_prompt, int32_t t) {
    int32_t id = 13 + t;
    ok(fv_evict_step(e, p->kv, t));
    ok(tiny_step(net, &p, 1, &id, 1, n_prompt - p->n + t - 1));
}

Test(vta, visual_tokens_are_evicted_on_schedule_and_text_stays) {
    for (int i = 0; i < N_POLICY; i++) {
        tiny_net net;
        tiny_prompt p;
        fv_evict e;
        int32_t had[LAYERS][HEADS];
        uint64_t gone;
        start(&net, &p, policies[i], 0);
        init(&e, &p);
        for (int32_t l = 0; l < LAYERS; l++)
            for (int32_t g = 0; g < HEADS; g++) had[l][g] = fv_kv_len(p.kv, l, g, FV_SEG_VISUAL);
        for (int32_t t = 1; t <= TOKENS; t++) {
            run_token(&net, &p, &e, p.n, t);
            gone = 0;
            for (int32_t l = 0; l < LAYERS; l++)
                for (int32_t g = 0; g < HEADS; g++) {
                    double share =
                        p.plan.evict.rank_from[l] < 0 ? 1 : p.plan.evict.share(&p.plan, t);
                    int32_t want = (int32_t)floor(share * had[l][g] + 1e-9);
                    cr_assert_eq(fv_kv_len(p.kv, l, g, FV_SEG_VISUAL), want, "'%s' at %d, layer %d",
                                 policies[i], t, l);
                    gone += (uint64_t)(had[l][g] - want);
                }
            cr_assert_eq(fv_evict_count(p.kv), gone);
        }
        cr_assert_gt(gone, 0);
        if (i < N_WITHOUT_SELECT)
            for (int32_t l = 0; l < LAYERS; l++)
                cr_assert_eq(fv_kv_len(p.kv, l, 1, FV_SEG_TEXT), TEXT + TOKENS);
        finish(&net, &p);
    }
}

/* From tau on images are masked, which equals KV whose visual tokens were removed by hand. */
Test(vta, after_tau_attention_is_over_text_alone) {
    tiny_net net;
    tiny_prompt p, text, *other = &text;
    fv_evict e;
    int32_t none[HEADS] = {0}, id = 13 + 4;
    const int32_t *idx[HEADS] = {none, none};
    start(&net, &p, "evict=vta,tau=4,layer=2,shallow=rank_by_first_tap", 0);
    tiny_prompt_make(&net, &text, 5, VISUAL, 9, 11, "");
    ok(tiny_prefill(&net, &text, 1, 0));
    for (int32_t l = 0; l < LAYERS; l++) ok(fv_kv_keep(text.kv, l, FV_SEG_VISUAL, idx, none));
    init(&e, &p);
    size_t held = fv_kv_bytes_held(p.kv);
    run_token(&net, &p, &e, p.n - 3, 4); /* at the position of the first token, without those
                                          * before */
    ok(tiny_step(&net, &other, 1, &id, 1, 0));
    cr_assert(same_bits(p.logits, text.logits, 97));
    cr_assert_eq(fv_kv_bytes(p.kv, FV_SEG_VISUAL), 0);
    cr_assert_lt(fv_kv_bytes_held(p.kv), held);
    tiny_prompt_free(&text);
    finish(&net, &p);
}

/* Before tau, attention equals that on KV whose retained tokens were picked by hand. */
Test(vta, attention_is_as_if_evicted_tokens_had_never_existed) {
    tiny_net net;
    tiny_prompt p, q, *other = &q;
    fv_evict e;
    start(&net, &p, policies[0], 0);
    tiny_prompt_make(&net, &q, 5, VISUAL, 9, 11, policies[0]);
    ok(tiny_prefill(&net, &q, 1, 0));
    init(&e, &p);
    for (int32_t t = 1; t <= TOKENS; t++) {
        int32_t id = 13 + t;
        for (int32_t l = 1; l < LAYERS; l++) {
            int32_t same[VISUAL], n[HEADS];
            const int32_t *idx[HEADS] = {same, same};
            for (int32_t j = 0; j < VISUAL; j++) same[j] = j;
            for (int32_t g = 0; g < HEADS; g++)
                n[g] = (int32_t)floor(fv_kv_ranked(q.kv, l, g) * q.plan.evict.share(&q.plan, t) +
                                      1e-9);
            ok(fv_kv_keep(q.kv, l, FV_SEG_VISUAL, idx, n));
        }
        run_token(&net, &p, &e, p.n, t);
        ok(tiny_step(&net, &other, 1, &id, 1, t - 1));
        cr_assert(same_bits(p.logits, q.logits, 97), "at %d", t);
        cr_assert_geq(fv_kv_bytes(p.kv, FV_SEG_VISUAL), fv_kv_bytes(q.kv, FV_SEG_VISUAL));
        cr_assert_leq(3 * fv_kv_bytes(p.kv, FV_SEG_VISUAL), 4 * fv_kv_bytes(q.kv, FV_SEG_VISUAL));
    }
    tiny_prompt_free(&q);
    finish(&net, &p);
}

/* ---- resuming an answer ------------------------------------------------------------------- */

Test(vta, a_resumed_answer_attends_to_the_same_tokens) {
    for (int i = 0; i < N_WITHOUT_SELECT; i++)
        for (int32_t n = 1; n <= TOKENS; n += 4) {
            tiny_net net;
            tiny_prompt p, again[2];
            fv_evict e;
            start(&net, &p, policies[i], 0);
            init(&e, &p);
            for (int32_t t = 1; t <= n; t++) run_token(&net, &p, &e, p.n, t);
            tiny_prompt_make(&net, &again[0], 5, VISUAL, 9 + n, 11, policies[i]);
            tiny_prompt_make(&net, &again[1], 2, 20, 3, 5, policies[(i + 1) % N_POLICY]);
            memcpy(again[0].ids, p.ids, (size_t)p.n * sizeof *p.ids);
            memcpy(again[0].embeds, p.embeds,
                   (size_t)VISUAL * (size_t)net.cfg.d_model * sizeof(float));
            for (int32_t t = 1; t <= n; t++) again[0].ids[p.n + t - 1] = 13 + t;
            again[0].n_answer = n;
            net.prefill.group = 1;
            ok(tiny_prefill(&net, again, 2, 16));
            cr_assert(same_bits(p.logits, again[0].logits, 97), "'%s' after %d", policies[i], n);
            cr_assert(same_store(p.kv, again[0].kv), "'%s' after %d", policies[i], n);
            cr_assert_eq(fv_evict_count(p.kv), fv_evict_count(again[0].kv));
            for (int b = 0; b < 2; b++) tiny_prompt_free(&again[b]);
            finish(&net, &p);
        }
}

/* ---- from one worker to the other --------------------------------------------------------- */

Test(vta, ranked_tokens_arrive_in_order_and_are_evicted_there) {
    for (int i = 0; i < N_POLICY; i++) {
        handoff_rig rig;
        tiny_prompt p, there;
        fv_received got;
        fv_evict here, far;
        rig_open(&rig, &(rig_options){.dtype = FV_BF16, .frame_max = 500});
        tiny_prompt_make(&rig.net, &p, 5, VISUAL, 9, 11, policies[i]);
        ok(tiny_prefill(&rig.net, &p, 1, 0));
        ok(rig_send(&rig, &p, TOKENS, 1, &got, NULL));
        cr_assert(same_store(p.kv, got.kv), "%s", policies[i]);
        tiny_prompt_make(&rig.net, &there, 5, VISUAL, 9, 11, policies[i]);
        there.kv = got.kv;
        init(&here, &p);
        ok(evict_init(&far, got.policy, got.n));
        for (int32_t t = 1; t <= TOKENS; t++) {
            run_token(&rig.net, &p, &here, p.n, t);
            run_token(&rig.net, &there, &far, p.n, t);
            cr_assert(same_bits(p.logits, there.logits, 97), "'%s' at %d", policies[i], t);
            cr_assert_eq(fv_evict_count(p.kv), fv_evict_count(got.kv));
        }
        there.kv = NULL;
        fv_received_free(&got);
        cr_assert_eq(fv_kv_pool_used(rig.pool), 0);
        tiny_prompt_free(&there);
        tiny_prompt_free(&p);
        rig_close(&rig);
    }
}
