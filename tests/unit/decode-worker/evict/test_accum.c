/* Eviction by accumulated attention: evict=h2o, scissorhands and tova. test_methods.c compares
 * which tokens are evicted with NumPy; here: how many, what becomes of their memory, and that
 * chunking, neighbours, the wire and a resumed answer change no bit. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "decode-worker/evict/evict.h"
#include "model/net/accum.h"
#include "tests/support/evict.h"
#include "tests/support/handoff.h"
#include "tests/support/planned.h"

enum { LAYERS = 4, KV_HEADS = 2, GROUP = 2, VISUAL = 70, ROWS = 84, TOKENS = 9 };

static const char *const policies[] = {
    "evict=h2o",
    "evict=h2o,heavy=0.7,recent=0.1,normalise=seen",
    "evict=scissorhands,keep=0.4,drop=0.1,recent=4",
    "evict=tova,keep=0.3",
    "prune=fastv,layer=2,keep=0.5;evict=h2o,heavy=0.3",
    "prune=vtw,layer=2;evict=tova",
    "select=h2o,heavy=0.4;evict=h2o,heavy=0.2",
    "select=csp,heavy=0.5,recent=0.1,dup=official;evict=scissorhands,keep=0.3",
    "prune=visipruner,filter=1,l2=0.05,kv_shallow=drop;evict=h2o,heavy=0.2",
};
enum { N_POLICY = sizeof policies / sizeof policies[0] };

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

static fv_plan planned(const char *policy, int32_t n_text) {
    fv_plan_shape shape = {
        .n_layer = LAYERS, .n_kv = KV_HEADS, .n_visual = VISUAL, .n_text = n_text};
    return plan_of(policy, shape);
}

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

static void init(fv_evict *e, const tiny_prompt *p, int32_t n_prompt) {
    char text[FV_POLICY_TEXT_MAX];
    fv_policy_print(&p->plan.policy, text);
    ok(evict_init(e, text, n_prompt));
}

/* Runs token t of an answer, counted from 1. */
static void run_token(tiny_net *net, tiny_prompt *p, fv_evict *e, int32_t n_prompt, int32_t t) {
    int32_t id = 13 + t;
    ok(fv_evict_step(e, p->kv, t));
    ok(tiny_step(net, &p, 1, &id, 1, n_prompt - p->n + t - 1));
}

static int32_t rows_of(const fv_kv *kv, int32_t layer, int32_t head) {
    return fv_kv_len(kv, layer, head, FV_SEG_VISUAL) + fv_kv_len(kv, layer, head, FV_SEG_TEXT);
}

static bool same_accums(const fv_kv *a, const fv_kv *b) {
    bool same = fv_accum_kind_of(a) == fv_accum_kind_of(b);
    for (int32_t i = 0; i < LAYERS * KV_HEADS * FV_N_SEG && same; i++) {
        int32_t l = i / (KV_HEADS * FV_N_SEG), g = i / FV_N_SEG % KV_HEADS;
        fv_kv_segment seg = (fv_kv_segment)(i % FV_N_SEG);
        size_t n = (size_t)fv_kv_len(a, l, g, seg) * GROUP;
        same =
            fv_kv_len(a, l, g, seg) == fv_kv_len(b, l, g, seg) &&
            (n == 0 || same_bits(fv_accum_values(a, l, g, seg), fv_accum_values(b, l, g, seg), n));
    }
    return same;
}

/* ---- the plan --------------------------------------------------------------------------- */

Test(accum, budgets_are_shares_of_the_prompt) {
    fv_accum_rule h2o = planned("evict=h2o", 30).evict.accum,
                  tova = planned("evict=tova", 30).evict.accum;
    fv_accum_rule cut = planned("evict=scissorhands", 30).evict.accum;
    cr_assert(h2o.kind == FV_ACCUM_SUM && h2o.most == 20 && h2o.left == 20 && h2o.recent == 10);
    cr_assert(tova.kind == FV_ACCUM_LAST && tova.most == 20 && tova.recent == 0 && tova.shared);
    cr_assert(cut.kind == FV_ACCUM_LOW && cut.most == 50 && cut.left == 25 && cut.recent == 10);
    cr_assert_eq(planned("evict=scissorhands,keep=0.1", 30).evict.accum.recent, 5);
    cr_assert_eq(planned("evict=scissorhands,window=7", 30).evict.accum_tokens, 7);
}

Test(accum, a_budget_of_the_whole_prompt_evicts_nothing_and_says_so) {
    static const char *const whole[] = {"evict=h2o,heavy=0.9", "evict=scissorhands,keep=1",
                                        "evict=tova,keep=1"};
    tiny_net net;
    tiny_prompt p, exact;
    for (int i = 0; i < 3; i++) {
        fv_evict e, none = {0};
        start(&net, &p, whole[i], 20);
        tiny_prompt_make(&net, &exact, 5, VISUAL, 9, 11, "");
        ok(tiny_prefill(&net, &exact, 1, 0));
        cr_assert(strstr(p.plan.note[FV_STAGE_EVICT], "every token is kept"));
        init(&e, &p, p.n);
        for (int32_t t = 1; t <= TOKENS; t++) {
            run_token(&net, &p, &e, p.n, t);
            run_token(&net, &exact, &none, p.n, t);
            cr_assert(same_bits(p.logits, exact.logits, 97), "%s at %d", whole[i], t);
        }
        cr_assert(same_store(p.kv, exact.kv));
        cr_assert_eq(fv_evict_count(p.kv), 0);
        tiny_prompt_free(&exact);
        finish(&net, &p);
    }
}

/* ---- number of evicted tokens ------------------------------------------------------------ */

Test(accum, each_head_evicts_one_token_per_step) {
    static const char *const one[] = {"evict=h2o,heavy=0.2", "evict=tova,keep=0.3"};
    for (int i = 0; i < 2; i++) {
        tiny_net net;
        tiny_prompt p;
        fv_evict e;
        start(&net, &p, one[i], 0);
        init(&e, &p, p.n);
        for (int32_t t = 1; t <= TOKENS; t++) {
            uint64_t before = fv_evict_count(p.kv);
            int32_t most = p.plan.evict.accum.most;
            run_token(&net, &p, &e, p.n, t);
            for (int32_t l = 0; l < LAYERS; l++)
                for (int32_t g = 0; g < KV_HEADS; g++)
                    cr_assert_eq(rows_of(p.kv, l, g), most + 1, "%s at %d", one[i], t);
            uint64_t each = (uint64_t)(t == 1 ? ROWS - most : 1);
            cr_assert_eq(fv_evict_count(p.kv) - before, each * LAYERS * KV_HEADS);
        }
        finish(&net, &p);
    }
}

Test(accum, scissorhands_evicts_many_at_a_time) {
    tiny_net net;
    tiny_prompt p;
    fv_evict e;
    int32_t cuts = 0, rows = ROWS;
    start(&net, &p, "evict=scissorhands,keep=0.5,drop=0.1", 0);
    init(&e, &p, p.n);
    cr_assert(p.plan.evict.accum.most == 42 && p.plan.evict.accum.left == 38);
    for (int32_t t = 1; t <= 12; t++) {
        if (rows > 42) rows = 38, cuts++;
        rows++;
        run_token(&net, &p, &e, p.n, t);
        for (int32_t l = 0; l < LAYERS; l++) cr_assert_eq(rows_of(p.kv, l, t % KV_HEADS), rows);
    }
    cr_assert_eq(cuts, 3);
    finish(&net, &p);
}

/* Checks the report before the first token and after each. */
Test(accum, the_preset_of_scissorhands_holds_half_of_the_prompt) {
    tiny_net net;
    tiny_prompt p;
    fv_evict e;
    start(&net, &p, "preset=paper-scissorhands", 0);
    init(&e, &p, p.n);
    for (int32_t t = 1; t <= TOKENS; t++) {
        run_token(&net, &p, &e, p.n, t);
        for (int32_t l = 0; l < LAYERS; l++) cr_assert_eq(rows_of(p.kv, l, 0), ROWS / 2 + 1);
    }
    finish(&net, &p);
}

Test(accum, recent_tokens_and_positions_are_kept) {
    tiny_net net;
    tiny_prompt p;
    fv_evict e;
    start(&net, &p, "evict=h2o,heavy=0.1,recent=0.2", 0);
    init(&e, &p, p.n);
    for (int32_t t = 1; t <= TOKENS; t++) run_token(&net, &p, &e, p.n, t);
    for (int32_t l = 0; l < LAYERS; l++)
        for (int32_t g = 0; g < KV_HEADS; g++) {
            bool there[ROWS + TOKENS] = {false};
            for (int seg = 0; seg < FV_N_SEG; seg++)
                for (int32_t j = 0; j < fv_kv_len(p.kv, l, g, (fv_kv_segment)seg); j++) {
                    int32_t pos = fv_kv_positions(p.kv, l, g, (fv_kv_segment)seg)[j];
                    cr_assert(pos >= 0 && pos < ROWS + TOKENS && !there[pos]);
                    cr_assert(pos >= ROWS || p.seg[pos] == seg);
                    there[pos] = true;
                }
            for (int32_t q = ROWS + TOKENS - 17; q < ROWS + TOKENS; q++) cr_assert(there[q]);
        }
    finish(&net, &p);
}

Test(accum, a_budget_of_zero_is_valid) {
    tiny_net net;
    tiny_prompt p;
    fv_evict e;
    start(&net, &p, "evict=h2o,heavy=0,recent=0", 0);
    init(&e, &p, p.n);
    for (int32_t t = 1; t <= 3; t++) run_token(&net, &p, &e, p.n, t);
    cr_assert(rows_of(p.kv, 0, 0) == 1 && fv_kv_bytes(p.kv, FV_SEG_VISUAL) == 0);
    finish(&net, &p);
}

/* ---- memory ----------------------------------------------------------------------------- */

/* Resident bytes are those of the tokens, except the idle ends of slabs; pages are those that the
 * tokens need, and the pool has the rest. */
Test(accum, memory_of_evicted_tokens_returns_to_the_pool) {
    static const char *const policy = "evict=h2o,heavy=0.2";
    size_t row = 2 * 24 * sizeof(float), page = FV_KV_BLOCK * row;
    tiny_net net;
    tiny_prompt p;
    fv_evict e;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 2);
    tiny_prompt_make(&net, &p, 90, VISUAL, 40, 11, policy);
    ok(tiny_prefill(&net, &p, 1, 0));
    for (int32_t l = 0; l < LAYERS; l++) ok(fv_kv_reserve(p.kv, l, 300)); /* as for generation */
    size_t before = fv_kv_pool_used(net.pool);
    init(&e, &p, p.n);
    for (int32_t t = 1; t <= 40; t++) {
        size_t text = 0, visual = 0, pages = 0;
        run_token(&net, &p, &e, p.n, t);
        for (int32_t l = 0; l < LAYERS; l++)
            for (int32_t g = 0; g < KV_HEADS; g++) {
                text += (size_t)fv_kv_len(p.kv, l, g, FV_SEG_TEXT) * row;
                visual += (size_t)fv_kv_len(p.kv, l, g, FV_SEG_VISUAL) * row;
                pages +=
                    (size_t)(p.plan.evict.accum.most + 1 + FV_KV_BLOCK - 1) / FV_KV_BLOCK * page;
            }
        cr_assert_eq(fv_kv_bytes(p.kv, FV_SEG_TEXT), text, "at %d", t);
        size_t extents = fv_kv_bytes(p.kv, FV_SEG_VISUAL);
        cr_assert(visual <= extents && 3 * extents <= 4 * visual, "%zu of %zu at %d", visual,
                  extents, t);
        cr_assert_eq(fv_kv_bytes_held(p.kv), extents + pages);
        cr_assert_eq(fv_kv_pool_used(net.pool), extents + pages);
    }
    cr_assert_lt(2 * fv_kv_pool_used(net.pool), before);
    finish(&net, &p);
}

/* ---- sums continue ---------------------------------------------------------------------- */

/* If nothing is evicted, the sums of prompt and answer are those of a longer prompt. */
Test(accum, tokens_add_to_the_sums_of_the_prompt_bit_for_bit) {
    static const char *const sums[] = {"evict=h2o", "evict=scissorhands", "evict=tova"};
    for (int i = 0; i < 3; i++)
        for (int32_t cut = 1; cut <= 4; cut += 3) {
            tiny_net net;
            tiny_prompt p, longer, *one = &p;
            start(&net, &p, sums[i], 13);
            tiny_prompt_make(&net, &longer, 5, VISUAL, 9 + 4, 11, sums[i]);
            memcpy(longer.ids, p.ids, (size_t)p.n * sizeof *p.ids);
            memcpy(longer.embeds, p.embeds,
                   (size_t)VISUAL * (size_t)net.cfg.d_model * sizeof(float));
            for (int32_t t = 0; t < 4; t += cut)
                ok(tiny_step(&net, &one, 1, longer.ids + p.n + t, cut, t));
            ok(tiny_prefill(&net, &longer, 1, 9));
            cr_assert(same_store(p.kv, longer.kv));
            cr_assert(same_bits(p.logits, longer.logits, 97));
            cr_assert(same_accums(p.kv, longer.kv), "%s by %d", sums[i], cut);
            tiny_prompt_free(&longer);
            finish(&net, &p);
        }
}

/* A question's tokens are one turn, in chunks of any size. */
Test(accum, how_a_question_is_cut_changes_no_bit) {
    for (int i = 0; i < N_POLICY; i++) {
        tiny_net net;
        tiny_prompt p, q;
        fv_evict here, there;
        fv_model_runner *runner;
        float logits[2][97];
        start(&net, &p, policies[i], 0);
        tiny_prompt_make(&net, &q, 5, VISUAL, 9, 11, policies[i]);
        ok(tiny_prefill(&net, &q, 1, 0));
        init(&here, &p, p.n);
        init(&there, &q, q.n);
        ok(fv_model_runner_open(net.dec, &runner));
        static const int32_t ids[] = {3, 1, 4, 1, 5, 9, 2};
        ok(fv_evict_step(&here, p.kv, 1));
        ok(fv_evict_step(&there, q.kv, 1));
        fv_step_seq whole = {.kv = p.kv, .n = 7, .ids = ids, .pos = p.n};
        ok(fv_model_runner_run(runner, &whole, 1, logits[0]));
        for (int32_t at = 0, n; at < 7; at += n) {
            n = at == 0 ? 4 : at == 4 ? 1 : 2;
            fv_step_seq part = {
                .kv = q.kv, .n = n, .ids = ids + at, .pos = q.n + at, .partial = at + n < 7};
            ok(fv_model_runner_run(runner, &part, 1, logits[1]));
        }
        cr_assert(same_bits(logits[0], logits[1], 97), "%s", policies[i]);
        cr_assert(same_store(p.kv, q.kv) && same_accums(p.kv, q.kv), "%s", policies[i]);
        fv_model_runner_close(runner);
        tiny_prompt_free(&q);
        finish(&net, &p);
    }
}

/* ---- neighbours ------------------------------------------------------------------------- */

Test(accum, neighbours_in_a_batch_change_no_bit) {
    tiny_net net;
    tiny_prompt p[N_POLICY], alone, *all[N_POLICY];
    fv_evict e[N_POLICY], single;
    static float logits[N_POLICY][TOKENS][97];
    tiny_net_open(&net, tiny_shape_default(), FV_BF16, NULL, 2);
    for (int i = 0; i < N_POLICY; i++) tiny_prompt_make(&net, &p[i], 5, VISUAL, 9, 11, policies[i]);
    ok(tiny_prefill(&net, p, N_POLICY, 50));
    for (int i = 0; i < N_POLICY; i++) init(&e[i], all[i] = &p[i], p[i].n);
    for (int32_t t = 1; t <= TOKENS; t++) {
        int32_t id = 13 + t;
        for (int i = 0; i < N_POLICY; i++) ok(fv_evict_step(&e[i], p[i].kv, t));
        ok(tiny_step(&net, all, N_POLICY, &id, 1, t - 1));
        for (int i = 0; i < N_POLICY; i++)
            memcpy(logits[i][t - 1], p[i].logits, sizeof logits[i][t - 1]);
    }
    for (int i = 0; i < N_POLICY; i++) {
        tiny_prompt_make(&net, &alone, 5, VISUAL, 9, 11, policies[i]);
        ok(tiny_prefill(&net, &alone, 1, 0));
        init(&single, &alone, alone.n);
        for (int32_t t = 1; t <= TOKENS; t++) {
            run_token(&net, &alone, &single, alone.n, t);
            cr_assert(same_bits(alone.logits, logits[i][t - 1], 97), "%s at %d", policies[i], t);
        }
        cr_assert(same_store(alone.kv, p[i].kv) && same_accums(alone.kv, p[i].kv));
        tiny_prompt_free(&alone);
    }
    for (int i = 0; i < N_POLICY; i++) tiny_prompt_free(&p[i]);
    tiny_net_close(&net);
}

/* ---- from one worker to the other --------------------------------------------------------- */

Test(accum, sums_arrive_and_eviction_continues_there) {
    for (int i = 0; i < N_POLICY; i++) {
        handoff_rig rig;
        tiny_prompt p, there;
        fv_received got;
        fv_evict here, far;
        rig_open(&rig, &(rig_options){.dtype = FV_BF16, .frame_max = 500});
        tiny_prompt_make(&rig.net, &p, 5, VISUAL, 9, 11, policies[i]);
        ok(tiny_prefill(&rig.net, &p, 1, 0));
        ok(rig_send(&rig, &p, TOKENS, 1, &got, NULL));
        cr_assert(same_store(p.kv, got.kv) && same_accums(p.kv, got.kv), "%s", policies[i]);
        tiny_prompt_make(&rig.net, &there, 5, VISUAL, 9, 11, policies[i]);
        there.kv = got.kv;
        init(&here, &p, p.n);
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

/* ---- resuming an answer ------------------------------------------------------------------- */

/* The prompt p followed by n tokens of its answer. */
static void with_answer(const tiny_net *net, const tiny_prompt *p, int32_t n, const char *policy,
                        tiny_prompt *out) {
    tiny_prompt_make(net, out, 5, VISUAL, p->n - 5 - VISUAL + n, 11, policy);
    memcpy(out->ids, p->ids, (size_t)p->n * sizeof *p->ids);
    memcpy(out->embeds, p->embeds, (size_t)VISUAL * (size_t)net->cfg.d_model * sizeof(float));
    for (int32_t t = 1; t <= n; t++) out->ids[p->n + t - 1] = 13 + t;
    fv_plan_shape shape = out->plan.shape;
    fv_policy asked = out->plan.policy;
    out->n_answer = shape.n_answer = n;
    ok(fv_plan_make(&asked, &shape, &out->plan));
}

/* After a prompt of n_prompt tokens and n tokens the answer is resumed, and continues. */
static void take_up(const char *policy, int32_t n_prompt, int32_t n) {
    handoff_rig rig;
    tiny_prompt p, again;
    fv_received got;
    fv_evict e, far;
    rig_open(&rig, &(rig_options){.dtype = FV_F32});
    tiny_prompt_make(&rig.net, &p, 5, VISUAL, n_prompt - 5 - VISUAL, 11, policy);
    ok(tiny_prefill(&rig.net, &p, 1, 0));
    init(&e, &p, p.n);
    for (int32_t t = 1; t <= n; t++) run_token(&rig.net, &p, &e, p.n, t);
    with_answer(&rig.net, &p, n, policy, &again);
    ok(tiny_prefill(&rig.net, &again, 1, 16));
    cr_assert(same_bits(p.logits, again.logits, 97), "'%s' after %d, %d", policy, n_prompt, n);
    cr_assert(same_store(p.kv, again.kv) && same_accums(p.kv, again.kv), "'%s' after %d, %d",
              policy, n_prompt, n);
    ok(rig_send(&rig, &again, TOKENS, 0, &got, NULL));
    fv_kv *sent = again.kv;
    again.kv = got.kv;
    ok(evict_init(&far, got.policy, got.n - n));
    for (int32_t t = n + 1; t <= n + 3; t++) {
        run_token(&rig.net, &p, &e, p.n, t);
        run_token(&rig.net, &again, &far, p.n, t);
        cr_assert(same_bits(p.logits, again.logits, 97), "'%s' at %d", policy, t);
    }
    again.kv = sent;
    fv_received_free(&got);
    tiny_prompt_free(&again);
    tiny_prompt_free(&p);
    rig_close(&rig);
}

Test(accum, a_resumed_answer_continues_with_the_same_bits) {
    for (int i = 0; i < N_POLICY; i++)
        for (int32_t n = 1; n <= TOKENS; n += 4) take_up(policies[i], ROWS, n);
}

/* A third prints with as many digits as a double holds; the decode worker uses the printed
 * value. */
Test(accum, both_workers_round_a_third_alike) {
    for (int32_t n_prompt = 150; n_prompt <= 165; n_prompt++)
        take_up("evict=h2o,heavy=0.33333333333333331", n_prompt, 2);
}

/* ---- the KV ----------------------------------------------------------------------------- */

Test(accum, holes_are_filled_from_the_end_and_sums_move_too) {
    static const int32_t pos[8] = {0, 1, 2, 3, 4, 5, 6, 7}, left[4] = {4, 1, 7, 3};
    fv_kv_shape shape = {.n_layer = 1, .n_kv = 1, .d_head = 4, .dtype = FV_F32};
    fv_kv_pool *pool;
    fv_kv *kv;
    ok(fv_kv_pool_open(fv_device_host(), &shape, 0, &pool));
    ok(fv_kv_open(pool, &kv));
    fv_accum_init(kv, FV_ACCUM_SUM, 3);
    ok(fv_kv_reserve(kv, 0, 8));
    ok(fv_kv_append(kv, 0, FV_SEG_TEXT, pos, 8));
    for (int32_t j = 0; j < 8; j++) {
        void *k;
        for (int q = 0; q < 3; q++) {
            cr_assert_eq(fv_accum_values(kv, 0, 0, FV_SEG_TEXT)[3 * j + q], 0);
            fv_accum_values(kv, 0, 0, FV_SEG_TEXT)[3 * j + q] = (float)(10 * j + q);
        }
        for (int value = 0; value < 2; value++) {
            fv_kv_contiguous(kv, 0, 0, FV_SEG_TEXT, value, j, 8, &k);
            for (int d = 0; d < 4; d++) ((float *)k)[d] = (float)(100 * j + d + 10 * value);
        }
    }
    ok(fv_kv_remove(kv, 0, 0, FV_SEG_TEXT, (int32_t[]){0, 2, 5, 6}, 4));
    cr_assert_eq(fv_kv_len(kv, 0, 0, FV_SEG_TEXT), 4);
    for (int32_t j = 0; j < 4; j++) {
        void *k, *v;
        int32_t was = left[j];
        fv_kv_contiguous(kv, 0, 0, FV_SEG_TEXT, false, j, 4, &k);
        fv_kv_contiguous(kv, 0, 0, FV_SEG_TEXT, true, j, 4, &v);
        cr_assert_eq(fv_kv_positions(kv, 0, 0, FV_SEG_TEXT)[j], was);
        cr_assert(((float *)k)[1] == (float)(100 * was + 1));
        cr_assert(((float *)v)[3] == (float)(100 * was + 13));
        cr_assert(fv_accum_values(kv, 0, 0, FV_SEG_TEXT)[3 * j + 2] == (float)(10 * was + 2));
    }
    fv_kv_close(kv);
    fv_kv_pool_close(pool);
}
