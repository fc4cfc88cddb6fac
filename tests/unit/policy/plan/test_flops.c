/* policy/plan/flops.c against counts by hand; docs/papers.py compares with published figures. */
#include <criterion/criterion.h>

#include "policy/plan/flops.h"
#include "tests/support/planned.h"

/* Width 6, two query heads and one KV head of 4, FFN of 10, 20 words. */
static const fv_plan_shape shape = {
    .n_layer = 2, .n_kv = 1, .d_head = 4, .bytes_value = 2, .n_visual = 5, .n_text = 3};
static const fv_flops_net net = {.d_model = 6, .d_ffn = 10, .n_head = 2, .vocab = 20};

/* Multiply-adds of a layer of n tokens: q and o are 6 x 8, k and v 6 x 4, three of 6 x 10. */
enum { PROJECTED = 2 * 48 + 2 * 24, FFN = 3 * 60 };
static double layer(double n, double pairs) { return n * (PROJECTED + FFN) + 2 * 8 * pairs; }

Test(flops, of_exact_are_those_of_a_transformer_by_each_rule) {
    fv_plan plan;
    cr_assert_eq(try_plan("", shape, &plan), FV_OK);
    cr_assert_eq(fv_plan_flops(&plan, &net, FV_FLOPS_EXECUTED), 2 * (2 * layer(8, 36) + 6 * 20));
    cr_assert_eq(fv_plan_flops(&plan, &net, FV_FLOPS_SQUARE), 2 * (2 * layer(8, 64) + 8 * 6 * 20));
    cr_assert_eq(fv_plan_flops(&plan, &net, FV_FLOPS_VISUAL), 2 * layer(5, 25));
}

Test(flops, pruned_tokens_cost_nothing_in_later_layers) {
    fv_plan plan;
    cr_assert_eq(try_plan("prune=random,layer=1,keep=0.4", shape, &plan), FV_OK);
    cr_assert_eq(fv_plan_flops(&plan, &net, FV_FLOPS_EXECUTED),
                 2 * (layer(8, 36) + layer(5, 15) + 6 * 20));
}

Test(flops, lazy_layers_project_no_queries_and_keys_of_what_they_reuse) {
    enum { Q_AND_K = 48 + 24 };
    fv_plan plan;
    double exact = 2 * (2 * layer(8, 36) + 6 * 20);
    cr_assert_eq(try_plan("lazy=gla,map=given,blocks=0-1", shape, &plan), FV_OK, "%s",
                 fv_last_error());
    cr_assert_eq(fv_plan_flops(&plan, &net, FV_FLOPS_EXECUTED), exact - 2 * 8 * Q_AND_K);
    cr_assert_eq(try_plan("lazy=vla,map=given,blocks=0-1", shape, &plan), FV_OK);
    cr_assert_eq(fv_plan_flops(&plan, &net, FV_FLOPS_EXECUTED), exact - 2 * 5 * Q_AND_K);
}

Test(flops, gates_and_recurrent_layers_count_per_token_that_runs) {
    fv_plan plan;
    fv_flops_net other = net;
    other.gated = true; /* 6 x 8 more */
    other.recurrent = 1000;
    cr_assert_eq(try_plan("prune=random,layer=1,keep=0.4", shape, &plan), FV_OK);
    cr_assert_eq(fv_plan_flops(&plan, &other, FV_FLOPS_EXECUTED),
                 2 * (layer(8, 36) + layer(5, 15) + 13 * (48 + 1000) + 6 * 20));
}

Test(flops, layers_that_share_keys_run_for_the_last_token) {
    fv_plan plan;
    fv_flops_net other = net;
    other.n_sharer = 3; /* each attends to the 8 tokens, 2 x 8 numbers for each */
    other.sharers = 500;
    cr_assert_eq(try_plan("", shape, &plan), FV_OK);
    cr_assert_eq(fv_plan_flops(&plan, &other, FV_FLOPS_EXECUTED) -
                     fv_plan_flops(&plan, &net, FV_FLOPS_EXECUTED),
                 2 * (500 + 3 * 2 * 8 * 8));
    cr_assert_eq(fv_plan_flops(&plan, &other, FV_FLOPS_VISUAL),
                 fv_plan_flops(&plan, &net, FV_FLOPS_VISUAL));
}

Test(flops, layers_may_have_projections_of_their_own) {
    static const fv_flops_heads heads[] = {{4, 4, 4}, {8, 4, 0}}; /* columns */
    fv_plan plan;
    fv_flops_net other = net;
    other.heads_of = heads;
    cr_assert_eq(try_plan("", shape, &plan), FV_OK);
    cr_assert_eq(
        fv_plan_flops(&plan, &other, FV_FLOPS_EXECUTED),
        2 * (2 * layer(8, 36) - 8 * 6 * (2 * 4 + 4) + 6 * 20),
        "queries and outputs of layer 0 are half as wide, and layer 1 has no values' matrix");
}
