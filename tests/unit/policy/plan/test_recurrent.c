/* policy/plan/recurrent.c: what a model with recurrent layers runs, refuses and holds. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/planned.h"

static const fv_plan_shape nine_b = {.n_layer = 8,
                                     .n_kv = 4,
                                     .d_head = 256,
                                     .bytes_value = 2,
                                     .n_visual = 256,
                                     .n_text = 40,
                                     .state_bytes = 52690944};

Test(recurrent, its_state_is_counted_apart_whatever_the_policy) {
    fv_plan plan;
    cr_assert_eq(try_plan("", nine_b, &plan), FV_OK);
    cr_assert_eq(fv_plan_count(&plan).state, nine_b.state_bytes);
    cr_assert_eq(fv_plan_count(&plan).held, UINT64_C(2) * 256 * 2 * 8 * 4 * 296);
    cr_assert_eq(try_plan("prune=vtw,layer=1;evict=tova", nine_b, &plan), FV_OK, "%s",
                 fv_last_error());
    cr_assert_eq(fv_plan_count(&plan).state, nine_b.state_bytes);
}

Test(recurrent, methods_rank_behind_the_first_layer_with_attention) {
    fv_plan plan;
    cr_assert_eq(try_plan("preset=paper-fastv", nine_b, &plan), FV_OK, "%s", fv_last_error());
    cr_assert(plan.prune.n_edit == 1 && plan.prune.edit[0].layer >= 1);
    static const char *const run[] = {"prune=random",    "prune=fastv,layer=1", "prune=pvtp",
                                      "prune=sparsevlm", "prune=fitprune",      "prune=visipruner",
                                      "lazy=vla",        "select=csp",          "select=snapkv",
                                      "pack=svd,gain=0", "pack=quant",          "evict=h2o",
                                      "evict=vta",       "preset=quality",      "preset=long"};
    for (size_t i = 0; i < sizeof run / sizeof *run; i++)
        cr_assert_eq(try_plan(run[i], nine_b, &plan), FV_OK, "%s: %s", run[i], fv_last_error());
}

Test(recurrent, what_its_state_cannot_undo_is_refused_with_the_nearest) {
    static const char *const wrong[][2] = {
        {"prune=fastv,layer=1,mode=mask", "whose state holds masked tokens too: use mode=drop"},
        {"prune=pdrop", "use prune=pvtp"},
        {"pack=svd,gain=0,first=packed", "use first=raw"},
        {"pack=quant,first=packed", "use first=raw"}};
    fv_plan plan;
    fv_plan_shape other = nine_b;
    other.state_bytes = 0;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_assert_eq(try_plan(wrong[i][0], nine_b, &plan), FV_EINVAL, "%s", wrong[i][0]);
        cr_assert(strstr(fv_last_error(), wrong[i][1]), "%s", fv_last_error());
        cr_assert_eq(try_plan(wrong[i][0], other, &plan), FV_OK, "%s", fv_last_error());
    }
}
