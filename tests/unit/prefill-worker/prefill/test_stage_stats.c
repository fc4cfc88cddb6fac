/* prefill-worker/prefill/stage_stats.c: statistics of stages against the KV after prefill. */
#include <criterion/criterion.h>
#include <string.h>

#include "prefill-worker/prefill/stage_stats.h"
#include "tests/support/tiny_net.h"

enum { N = 4, KV = 2, VISUAL = 12, TEXT = 14 }; /* the default tiny net has 4 layers of 2 heads */

static fv_stage_stats account(const char *policy, int32_t ran[N]) {
    tiny_net net;
    tiny_prompt p;
    fv_stage_stats a;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 2);
    tiny_prompt_make(&net, &p, 5, VISUAL, 9, 11, policy);
    p.visual_tokens = ran;
    cr_assert_eq(tiny_prefill(&net, &p, 1, 7), FV_OK, "%s", fv_last_error());
    fv_stage_stats_take(&p.plan, ran, p.kv, &a);
    uint64_t rows = 0; /* that the store holds */
    for (int32_t l = 0; l < N; l++)
        for (int32_t g = 0; g < KV; g++)
            for (int s = 0; s < FV_N_SEG; s++)
                rows += (uint64_t)fv_kv_len(p.kv, l, g, (fv_kv_segment)s);
    if (a.stage[FV_STAGE_SELECT].n_layer) cr_assert_eq(a.stage[FV_STAGE_SELECT].entries_out, rows);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
    return a;
}

static void is(const fv_stage_stats *a, fv_stage s, uint64_t in, uint64_t out, int32_t n_layer) {
    cr_assert_eq(a->stage[s].entries_in, in);
    cr_assert_eq(a->stage[s].entries_out, out);
    cr_assert_eq(a->stage[s].n_layer, n_layer);
}

Test(stage_stats, exact_has_nothing_to_tell) {
    int32_t ran[N];
    fv_stage_stats a = account("", ran);
    for (int s = 0; s < FV_N_STAGE; s++) is(&a, (fv_stage)s, 0, 0, 0);
    for (int32_t l = 0; l < N; l++) cr_assert_eq(ran[l], VISUAL);
}

Test(stage_stats, prune_reports_image_tokens_and_select_what_is_left) {
    int32_t ran[N];
    fv_stage_stats a =
        account("prune=vtw,layer=3;select=streaming,sink=2,recent=0.25,full_heads=0.5", ran);
    for (int32_t l = 0; l < N; l++) cr_assert_eq(ran[l], l < 3 ? VISUAL : 0);
    is(&a, FV_STAGE_PRUNE, N * KV * VISUAL, 3 * KV * VISUAL, 1);
    /* Half of the heads keep all tokens; the others 2 and the last floor(0.25 * 26) = 6, all of them
     * text. */
    is(&a, FV_STAGE_SELECT, KV * (3 * (VISUAL + TEXT) + TEXT), 3 * (VISUAL + TEXT + 8) + TEXT + 8,
       N);
}

Test(stage_stats, lazy_tells_in_how_many_layers_keys_are_borrowed) {
    int32_t ran[N];
    fv_stage_stats a = account("lazy=vla,map=given,blocks=1-3", ran);
    is(&a, FV_STAGE_LAZY, N * KV * VISUAL, N * KV * VISUAL, 2);
}

Test(stage_stats, a_stage_that_the_plan_left_out_is_not_there) {
    int32_t ran[N];
    fv_stage_stats a = account("prune=random,keep=1", ran);
    is(&a, FV_STAGE_PRUNE, N * KV * VISUAL, N * KV * VISUAL, 0);
}
