/* The selection rules of prune methods. test_methods.c compares what they keep of a whole prompt
 * with NumPy; tests/parity/methods/grid.py also lists choices among more tokens. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prefill-worker/prune/prune.h"
#include "tests/support/rendered.h"

enum { ROWS_MAX = 2048, TEXT_MAX = 8 * ROWS_MAX };

/* ---- the highest ----------------------------------------------------------------------- */

static void keeps(const float *score, int32_t n, int32_t keep, const char *want) {
    int32_t kept[16];
    char got[64] = "";
    fv_top(score, n, keep, kept);
    for (int32_t k = 0; k < keep; k++) snprintf(got + strlen(got), 8, "%d ", kept[k]);
    cr_assert_str_eq(got, want, "%d of %d: %s", keep, n, got);
}

Test(prune, the_highest_scores_stay_in_their_order) {
    static const float score[] = {0.1f, 0.5f, -2, 0.5f, 7, 0.05f};
    keeps(score, 6, 0, "");
    keeps(score, 6, 1, "4 ");
    keeps(score, 6, 3, "1 3 4 ");
    keeps(score, 6, 5, "0 1 3 4 5 ");
    keeps(score, 6, 6, "0 1 2 3 4 5 ");
    keeps(NULL, 0, 0, "");
}

Test(prune, among_equals_the_lower_index_stays) {
    static const float score[] = {1, 2, 2, 2, 0.0f, -0.0f};
    keeps(score, 6, 2, "1 2 ");
    keeps(score, 6, 5, "0 1 2 3 4 ");
    keeps((float[]){-0.0f, 0.0f}, 2, 1, "0 ");
}

/* When images of one size swap places, the choice swaps with them. */
Test(prune, what_stays_of_an_image_goes_with_it) {
    enum { N = 12, KEEP = 9 };
    float score[2 * N], swapped[2 * N];
    int32_t kept[KEEP], kept_swapped[KEEP], first = 0;
    for (int32_t i = 0; i < 2 * N; i++) score[i] = sinf((float)(i * i + 1));
    for (int32_t i = 0; i < 2 * N; i++) swapped[i] = score[(i + N) % (2 * N)];
    fv_top(score, 2 * N, KEEP, kept);
    fv_top(swapped, 2 * N, KEEP, kept_swapped);
    while (kept[first] < N) first++;
    cr_assert(first > 0 && first < KEEP && first != KEEP - first);
    for (int32_t k = 0; k < KEEP; k++)
        cr_assert_eq(kept_swapped[k], (kept[(k + first) % KEEP] + N) % (2 * N));
}

Test(prune, a_nan_is_lower_than_any_number) {
    static const float score[] = {NAN, -INFINITY, 3, -NAN, INFINITY};
    keeps(score, 5, 3, "1 2 4 ");
    keeps(score, 5, 4, "0 1 2 4 ");
    keeps((float[]){NAN, NAN}, 2, 2, "0 1 ");
}

Test(prune, heads_count_alike_and_text_columns_do_not_count) {
    static const float p[] = {0.5f, 0.25f, 0.25f, 0, 0.75f, 0.25f};
    float mean[2];
    fv_prune_head_mean(p, 2, 3, 2, mean);
    cr_assert_eq(mean[0], 0.25f);
    cr_assert_eq(mean[1], 0.5f);
}

/* ---- goldens --------------------------------------------------------------------------- */

/* The plan's number and the method's choice. */
static int32_t choose(const char *policy, int32_t n_visual, int32_t n_image, int32_t *kept) {
    fv_policy p;
    fv_plan plan;
    cr_assert_eq(fv_policy_parse(policy, &p), FV_OK, "%s", fv_last_error());
    int32_t pos[ROWS_MAX], each = n_image ? n_visual / n_image : 0, side = 0;
    fv_token_span image[ROWS_MAX];
    while ((side + 1) * (side + 1) <= each) side++;
    for (int32_t i = 0; i < n_visual; i++) pos[i] = 2 + i;
    for (int32_t i = 0; i < n_image; i++)
        image[i] = (fv_token_span){.first = 2 + i * each,
                                   .n = each,
                                   .image = i,
                                   .t = 1,
                                   .h = side,
                                   .w = side,
                                   .ahead = each - side * side};
    fv_plan_shape shape = {.n_layer = 8,
                           .n_kv = 1,
                           .n_visual = n_visual,
                           .n_text = 3,
                           .n_span = n_image,
                           .span = image};
    cr_assert_eq(fv_plan_make(&p, &shape, &plan), FV_OK, "%s", fv_last_error());
    fv_prune_context ctx = {.params = &plan.params[FV_STAGE_PRUNE],
                            .layer = 4,
                            .n_visual = n_visual,
                            .pos = pos,
                            .keep = plan.visual[4],
                            .n_span = n_image,
                            .span = image};
    int32_t n_kept = -1;
    const fv_prune_method *method = fv_prune_method_of(p.stage[FV_STAGE_PRUNE].method->id);
    cr_assert_eq(method->keep(&ctx, NULL, kept, &n_kept), FV_OK);
    cr_assert_eq(n_kept, ctx.keep);
    return n_kept;
}

Test(prune, grid_spreads_tokens_as_the_reference_does) {
    json_t *root = rendered_read("grid");
    const json_t *choices = rendered_at(root, "choices");
    for (size_t i = 0; i < json_array_size(choices); i++) {
        const json_t *c = json_array_get(choices, i);
        int32_t kept[ROWS_MAX], n_image = rendered_int(c, "images");
        char policy[64], got[TEXT_MAX];
        snprintf(policy, sizeof policy, "prune=grid,layer=4,keep=%s", rendered_text(c, "keep"));
        int32_t n = choose(policy, n_image * rendered_int(c, "rows"), n_image, kept);
        rendered_spans(kept, n, got, sizeof got);
        cr_assert_str_eq(got, rendered_text(c, "stay"), "%d images, %s", n_image, policy);
    }
    json_decref(root);
}
