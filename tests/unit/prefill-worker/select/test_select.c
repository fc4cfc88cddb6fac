/* Common properties of select methods that keep a fixed number of tokens: the planned and the
 * held number, refusals, and random subsets. test_methods.c compares each method's choice
 * with NumPy. */
#include <criterion/criterion.h>
#include <string.h>

#include "common/subset.h"
#include "tests/support/handoff.h"

enum { LAYERS = 4, KV_HEADS = 2, VISUAL = 70, ROWS = 84 };

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

static fv_status make(const char *policy, int32_t n_visual, int32_t n_text, fv_plan *plan) {
    fv_policy p;
    fv_plan_shape shape = {.n_layer = LAYERS,
                           .n_kv = KV_HEADS,
                           .d_head = 24,
                           .bytes_value = 4,
                           .n_visual = n_visual,
                           .n_text = n_text};
    ok(fv_policy_parse(policy, &p));
    return fv_plan_make(&p, &shape, plan);
}

/* ---- counts ------------------------------------------------------------------------------ */

static void assert_budget(const char *policy, int32_t heavy, int32_t recent) {
    fv_plan plan;
    ok(make(policy, 2800, 261, &plan));
    cr_assert(plan.select.budget.heavy == heavy && plan.select.budget.recent == recent,
              "%s: %d and %d", policy, plan.select.budget.heavy, plan.select.budget.recent);
    cr_assert_eq(plan.select.count(&plan, 0, 0), heavy + recent);
    cr_assert(plan.exact_counts);
}

Test(select, budgets_are_shares_of_the_prompt_or_numbers) {
    assert_budget("select=h2o", 306, 306);
    assert_budget("preset=paper-h2o", 306, 306);
    assert_budget("select=roco,heavy=0.5", 1530, 306);
    assert_budget("select=knorm", 612, 0);
    assert_budget("select=random,recent=0.3", 612, 918);
    assert_budget("select=snapkv", 306, 306);
    assert_budget("preset=paper-snapkv", 306, 306);
    assert_budget("select=snapkv,window=32,capacity=2048", 2016, 32);
    assert_budget("select=snapkv,window=32", 580, 32);
    assert_budget("select=snapkv,heavy=0.9,recent=0.1,capacity=1000", 694, 306);
    assert_budget("select=snapkv,capacity=1", 0, 1);
    assert_budget("select=h2o,heavy=0,recent=0", 0, 0);
}

Test(select, layers_with_fewer_tokens_keep_what_they_have) {
    fv_plan plan;
    ok(make("select=snapkv,window=32", 70, 14, &plan));
    cr_assert(plan.select.budget.heavy == 0 && plan.select.budget.recent == 16);
    ok(make("prune=vtw,layer=2;select=h2o,heavy=0.3", 70, 14, &plan));
    cr_assert_eq(plan.select.count(&plan, 1, 0), 33);
    cr_assert_eq(plan.select.count(&plan, 2, 0), 14);
}

Test(select, short_prompts_and_whole_budgets_are_exact_and_say_so) {
    static const char *const policies[] = {"select=snapkv,window=32,capacity=2048",
                                           "select=h2o,heavy=0.9", "select=knorm,heavy=1",
                                           "select=random,heavy=0.4,recent=0.6"};
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        fv_plan plan;
        ok(make(policies[i], 70, 14, &plan));
        cr_assert(!plan.select.count && plan.select.window.rows == 0 &&
                  plan.select.budget.heavy == 0);
        cr_assert(strstr(plan.note[FV_STAGE_SELECT], "every token"), "%s", policies[i]);
    }
}

Test(select, a_window_that_does_not_fit_is_refused) {
    fv_plan plan;
    cr_assert_eq(make("select=snapkv,window=32,capacity=20", 70, 14, &plan), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "capacity=20,window=32"));
    cr_assert_eq(make("select=snapkv,kernel=4", 70, 14, &plan), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "odd"));
}

/* ---- held tokens ------------------------------------------------------------------------- */

static void assert_held(const char *policy) {
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, tiny_shape_default(), FV_BF16, NULL, 2);
    tiny_prompt_make(&net, &p, 5, VISUAL, 9, 11, policy);
    ok(tiny_prefill(&net, &p, 1, 20));
    fv_plan_bytes most = fv_plan_count(&p.plan);
    for (int32_t l = 0; l < LAYERS; l++)
        for (int32_t g = 0; g < KV_HEADS; g++)
            cr_assert_eq(fv_kv_len(p.kv, l, g, FV_SEG_VISUAL) + fv_kv_len(p.kv, l, g, FV_SEG_TEXT),
                         p.plan.select.count(&p.plan, l, g), "%s", policy);
    cr_assert_eq(fv_kv_bytes(p.kv, FV_SEG_VISUAL) + fv_kv_bytes(p.kv, FV_SEG_TEXT), most.held);
    cr_assert_leq(fv_kv_bytes(p.kv, FV_SEG_VISUAL), most.visual);
    tiny_prompt_free(&p);
    cr_assert_eq(fv_kv_pool_used(net.pool), 0);
    tiny_net_close(&net);
}

Test(select, stores_hold_what_the_plan_says_to_the_byte) {
    assert_held("select=snapkv,heavy=0.3");
    assert_held("select=h2o");
    assert_held("select=roco,heavy=0,recent=0.2");
    assert_held("select=knorm,heavy=0.6");
    assert_held("select=random");
    assert_held("select=h2o,heavy=0,recent=0");
    assert_held("prune=vtw,layer=2;select=random,heavy=0.3");
}

/* 14 text tokens and 70 of an image: with 8 chosen and the last 8, the only image tokens are among
 * those. */
Test(select, lookm_keeps_all_text_and_stays_within_its_bound) {
    static const struct {
        const char *policy;
        int32_t visual;
    } cases[] = {{"select=lookm", 2}, /* 8 chosen, 6 of them text ahead of the last */
                 {"select=lookm,heavy=0.3", 19},
                 {"select=lookm,heavy=0.05,recent=0.2,merge=weighted", 7}};
    for (int i = 0; i < 3; i++) {
        tiny_net net;
        tiny_prompt p;
        tiny_net_open(&net, tiny_shape_default(), FV_BF16, NULL, 2);
        tiny_prompt_make(&net, &p, 5, VISUAL, 9, 11, cases[i].policy);
        ok(tiny_prefill(&net, &p, 1, 20));
        fv_plan_bytes most = fv_plan_count(&p.plan);
        cr_assert_not(p.plan.exact_counts);
        for (int32_t l = 0; l < LAYERS; l++)
            for (int32_t g = 0; g < KV_HEADS; g++) {
                int32_t n = fv_kv_len(p.kv, l, g, FV_SEG_VISUAL);
                cr_assert_eq(fv_kv_len(p.kv, l, g, FV_SEG_TEXT), 14);
                cr_assert_eq(n, cases[i].visual, "%s: %d", cases[i].policy, n);
                cr_assert_leq(n + 14, p.plan.select.count(&p.plan, l, g));
            }
        cr_assert_leq(fv_kv_bytes(p.kv, FV_SEG_VISUAL) + fv_kv_bytes(p.kv, FV_SEG_TEXT), most.held);
        cr_assert_leq(fv_kv_bytes(p.kv, FV_SEG_VISUAL), most.visual);
        tiny_prompt_free(&p);
        tiny_net_close(&net);
    }
}

/* Merging changes the tokens that are kept, and only those; without it they are unchanged. */
Test(select, lookms_merging_changes_some_kept_tokens) {
    tiny_net net;
    tiny_prompt p[2];
    static const char *const policies[] = {"select=lookm,heavy=0.3,merge=none",
                                           "select=lookm,heavy=0.3"};
    int32_t changed = 0, same = 0;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    for (int i = 0; i < 2; i++) tiny_prompt_make(&net, &p[i], 5, VISUAL, 9, 11, policies[i]);
    ok(tiny_prefill(&net, p, 2, 0));
    for (int s = 0; s < FV_N_SEG; s++) {
        int32_t n = fv_kv_len(p[0].kv, 2, 1, (fv_kv_segment)s);
        cr_assert_eq(n, fv_kv_len(p[1].kv, 2, 1, (fv_kv_segment)s));
        for (int32_t j = 0; j < n; j++) {
            void *a, *b;
            fv_kv_contiguous(p[0].kv, 2, 1, (fv_kv_segment)s, true, j, n, &a);
            fv_kv_contiguous(p[1].kv, 2, 1, (fv_kv_segment)s, true, j, n, &b);
            cr_assert_eq(fv_kv_positions(p[0].kv, 2, 1, (fv_kv_segment)s)[j],
                         fv_kv_positions(p[1].kv, 2, 1, (fv_kv_segment)s)[j]);
            if (memcmp(a, b, 24 * sizeof(float)) == 0)
                same++;
            else
                changed++;
        }
    }
    cr_assert(changed > 0 && same > 0);
    for (int i = 0; i < 2; i++) tiny_prompt_free(&p[i]);
    tiny_net_close(&net);
}

/* ---- random ----------------------------------------------------------------------------- */

Test(select, random_heads_hold_subsets_of_their_own_that_follow_the_seed) {
    tiny_net net;
    tiny_prompt p[3];
    static const char *const policies[] = {"select=random,seed=4", "select=random,seed=4",
                                           "select=random,seed=5"};
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    for (int i = 0; i < 3; i++) tiny_prompt_make(&net, &p[i], 5, VISUAL, 9, 11, policies[i]);
    ok(tiny_prefill(&net, p, 3, 0));
    cr_assert(same_store(p[0].kv, p[1].kv));
    cr_assert_not(same_store(p[0].kv, p[2].kv));
    for (int32_t i = 1; i < LAYERS * KV_HEADS; i++) {
        int32_t n = fv_kv_len(p[0].kv, i / 2, i % 2, FV_SEG_VISUAL);
        bool same =
            n == fv_kv_len(p[0].kv, 0, 0, FV_SEG_VISUAL) &&
            memcmp(fv_kv_positions(p[0].kv, i / 2, i % 2, FV_SEG_VISUAL),
                   fv_kv_positions(p[0].kv, 0, 0, FV_SEG_VISUAL), (size_t)n * sizeof(int32_t)) == 0;
        cr_assert_not(same, "head %d", i);
    }
    for (int i = 0; i < 3; i++) tiny_prompt_free(&p[i]);
    tiny_net_close(&net);
}

Test(select, subsets_are_ascending_and_uniform) {
    int32_t times[10] = {0}, kept[10];
    for (uint64_t seed = 0; seed < 10000; seed++) {
        fv_subset(seed, 10, 3, kept);
        cr_assert(kept[0] < kept[1] && kept[1] < kept[2] && kept[0] >= 0 && kept[2] < 10);
        for (int k = 0; k < 3; k++) times[kept[k]]++;
    }
    for (int i = 0; i < 10; i++) /* 3000 in the mean, with a spread of 46 */
        cr_assert(times[i] > 2750 && times[i] < 3250, "%d came %d times", i, times[i]);
    fv_subset(7, 10, 10, kept);
    for (int i = 0; i < 10; i++) cr_assert_eq(kept[i], i);
    fv_subset(7, 0, 0, kept);
}
