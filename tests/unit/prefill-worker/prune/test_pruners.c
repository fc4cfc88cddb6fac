/* Plans of pdrop, sparsevlm and fitprune: how many tokens each layer runs. test_methods.c compares
 * what they choose with NumPy. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "policy/plan/plan.h"
#include "prefill-worker/prefill/scorers.h"
#include "prefill-worker/prune/clusters.h"
#include "prefill-worker/prune/prune.h"

static fv_plan plan;

/* The images are equal. */
static fv_status make(const char *policy, int32_t n_layer, int32_t n_visual, int32_t n_image) {
    fv_policy p;
    fv_token_span image[4];
    cr_assert_leq(n_image, 4);
    for (int32_t i = 0, n = n_image ? n_visual / n_image : 0; i < n_image; i++)
        image[i] = (fv_token_span){.first = i * n, .n = n, .image = i};
    fv_plan_shape shape = {.n_layer = n_layer,
                           .n_kv = 2,
                           .d_head = 8,
                           .bytes_value = 4,
                           .n_visual = n_visual,
                           .n_text = 40,
                           .n_span = n_image,
                           .span = image};
    FV_TRY(fv_policy_parse(policy, &p));
    return fv_plan_make(&p, &shape, &plan);
}

static void ok(const char *policy, int32_t n_layer, int32_t n_visual, int32_t n_image) {
    cr_assert_eq(make(policy, n_layer, n_visual, n_image), FV_OK, "%s", fv_last_error());
    fv_plan_bytes bytes = fv_plan_count(&plan);
    size_t rows = 0;
    for (int32_t l = 0; l < n_layer; l++) rows += (size_t)(plan.visual[l] + 40);
    cr_assert_eq(bytes.held, rows * 2 * 2 * 8 * 4);
    cr_assert(plan.exact_counts);
}

static void refuses(const char *policy, const char *words) {
    cr_assert_eq(make(policy, 32, 576, 1), FV_EINVAL, "%s", policy);
    cr_assert(strstr(fv_last_error(), words), "%s: %s", policy, fv_last_error());
}

Test(pruners, pdrop_halves_what_each_image_has_after_every_quarter) {
    static const int32_t want[] = {576, 288, 144, 72};
    ok("prune=pdrop", 32, 576, 1);
    for (int32_t l = 0; l < 32; l++) cr_assert_eq(plan.visual[l], want[l / 8]);
    cr_assert(plan.prune.renumbers && plan.prune.n_edit == 3 && plan.prune.edit[0].lookahead);
    ok("prune=pdrop", 12, 2 * 145, 2);
    cr_assert_eq(plan.visual[2], 290);
    cr_assert_eq(plan.visual[3], 2 * 72, "of each picture, rounded down");
    cr_assert_eq(plan.visual[11], 2 * 18);
    ok("prune=pdrop,ratio=0", 32, 1, 1);
    cr_assert(plan.visual[8] == 0 && plan.prune.n_edit == 1);
    ok("prune=pdrop,ratio=1", 32, 576, 1);
    cr_assert(!plan.prune.renumbers && plan.note[FV_STAGE_PRUNE][0]);
    refuses("prune=pdrop,second=9,third=8", "must ascend");
    refuses("prune=pdrop;lazy=vla", "rotated differently");
    refuses("prune=pdrop;pack=svd", "original positions");
}

Test(pruners, sparsevlm_has_the_authors_numbers) {
    static const struct {
        const char *policy;
        int32_t rows[3];
    } c[] = {{"prune=sparsevlm", {309, 204, 113}}, /* with 9, 4 and 3 that are merged */
             {"prune=sparsevlm,tokens=64", {82, 32, 18}},
             {"prune=sparsevlm,version=v2", {300, 200, 118}},
             {"prune=sparsevlm,version=v2,tokens=128", {238, 108, 60}},
             {"prune=sparsevlm,version=v2,tokens=96", {246, 54, 28}},
             {"prune=sparsevlm,version=v2,tokens=64", {66, 34, 20}}};
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        ok(c[i].policy, 32, 576, 1);
        for (int32_t l = 0; l < 32; l++)
            cr_assert_eq(plan.visual[l], l < 3 ? 576 : c[i].rows[(l >= 7) + (l >= 16)],
                         "%s, layer %d: %d", c[i].policy, l, plan.visual[l]);
        cr_assert_eq(plan.prune.renumbers, i < 2);
        cr_assert(plan.capture[2] & plan.capture[6] & plan.capture[15] & FV_CAPTURE_SCORERS);
    }
    ok("prune=sparsevlm,version=v2", 12, 144, 1);
    cr_assert(plan.visual[1] == 144 && plan.visual[2] == 75 && plan.visual[7] == 29);
    ok("prune=sparsevlm,version=v2", 32, 1, 1);
    cr_assert_eq(plan.visual[3], 0, "one fewer than there are");
    cr_assert_eq(plan.prune.n_edit, 1);
    ok("prune=sparsevlm", 32, 1, 1);
    cr_assert_eq(plan.prune.n_edit, 0, "one row would be merged into itself");
    refuses("prune=sparsevlm,first=7", "must ascend");
    refuses("prune=sparsevlm;select=csp", "prompt order");
    refuses("prune=sparsevlm;evict=vta", "no rank");
}

Test(pruners, fitprune_follows_its_schedule) {
    static const int32_t first[] = {14, 33, 89, 36}; /* of the one for 60 % */
    ok("prune=fitprune", 32, 576, 1);
    for (int32_t l = 0; l < 4; l++) cr_assert_eq(plan.visual[l] - plan.visual[l + 1], first[l]);
    cr_assert_eq(plan.visual[31], 576 - 449);
    cr_assert_eq(plan.capture[0], FV_CAPTURE_HEAD_MAX);
    cr_assert_eq(plan.capture[31], 0, "after the last layer there is nobody");
    cr_assert_eq(plan.capture[24], 0, "where none leaves nothing is asked");
    ok("prune=fitprune,target=90", 32, 576, 1);
    cr_assert(plan.visual[1] == 576 - 262 && plan.visual[31] == 576 - 539);
    ok("prune=fitprune", 16, 2 * 576, 2);
    cr_assert_eq(plan.visual[1], 2 * (576 - 14 - 33), "two of 32 layers are one of 16");
    ok("prune=fitprune,target=given,schedule=288", 4, 100, 1);
    cr_assert(plan.visual[1] == 100 && plan.visual[2] == 50 && plan.visual[3] == 50);
    ok("prune=fitprune,target=given,schedule=0/0", 4, 100, 1);
    cr_assert(plan.prune.n_edit == 0 && plan.note[FV_STAGE_PRUNE][0]);
    refuses("prune=fitprune,target=given", "go together");
    refuses("prune=fitprune,target=given,schedule=published", "go together");
    refuses("prune=fitprune,schedule=3", "go together");
    refuses("prune=fitprune,target=given,schedule=3/x", "write numbers");
    refuses("prune=fitprune,target=given,schedule=3/", "write numbers");
    refuses("prune=fitprune,target=given,schedule=577", "write numbers");
    refuses("prune=fitprune,target=given,schedule=300/300", "more than 576");
}

/* The schedule fitted to the checkpoint, layer by layer; for other targets, and where the request
 * asks for it, the published one, mapped to the depth. */
Test(pruners, fitprune_takes_what_was_fitted_before_what_is_published) {
    static const fv_schedule fitted[] = {{.target = 50, .leave = {0, 288, 0, 0}},
                                         {.target = 60, .leave = {144, 0, 144, 288}}};
    fv_plan_shape shape = {.n_layer = 4,
                           .n_kv = 2,
                           .d_head = 8,
                           .bytes_value = 4,
                           .n_visual = 100,
                           .n_text = 40,
                           .n_fitted = 2,
                           .fitted = fitted};
    static const struct {
        const char *policy;
        int32_t visual[4];
        const char *chose;
    } list[] = {
        {"prune=fitprune", {100, 75, 75, 50}, "the checkpoint's calibration"},
        {"prune=fitprune,target=50", {100, 100, 50, 50}, "the checkpoint's calibration"},
        {"prune=fitprune,schedule=published", {100, 48, 39, 23}, ""},
        {"prune=fitprune,target=90", {100, 8, 8, 7}, "LLaVA-1.5, as the checkpoint has none"},
        {"preset=paper-fitprune", {100, 48, 39, 23}, ""}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        fv_policy p;
        cr_assert_eq(fv_policy_parse(list[i].policy, &p), FV_OK, "%s", fv_last_error());
        cr_assert_eq(fv_plan_make(&p, &shape, &plan), FV_OK, "%s", fv_last_error());
        for (int32_t l = 0; l < 4; l++)
            cr_assert_eq(plan.visual[l], list[i].visual[l], "%s, layer %d: %d", list[i].policy, l,
                         plan.visual[l]);
        cr_assert(list[i].chose[0] ? strstr(plan.prune.chose, list[i].chose) != NULL
                                   : !plan.prune.chose[0],
                  "%s: %s", list[i].policy, plan.prune.chose);
    }
    shape.n_fitted = 0;
    shape.uncalibrated = "it is of other weights";
    fv_policy p;
    cr_assert_eq(fv_policy_parse("prune=fitprune", &p), FV_OK);
    cr_assert_eq(fv_plan_make(&p, &shape, &plan), FV_OK);
    cr_assert(strstr(plan.prune.chose, "of other weights"), "%s", plan.prune.chose);
}

/* ---- choices ---------------------------------------------------------------------------- */

Test(pruners, pdrop_chooses_within_each_image) {
    static const float attention[] = {9, 8, 7, 1, 2, 3};
    static const int32_t pos[] = {1, 2, 3, 4, 5, 6};
    static const fv_token_span image[] = {{.first = 1, .n = 3}, {.first = 4, .n = 3, .image = 1}};
    int32_t kept[4], n_kept;
    fv_prune_context ctx = {.n_visual = 6,
                            .pos = pos,
                            .keep = 4,
                            .share = 0.67,
                            .n_span = 2,
                            .span = image,
                            .attention = attention};
    cr_assert_eq(fv_prune_method_of(FV_METHOD_PRUNE_pdrop)->keep(&ctx, NULL, kept, &n_kept), FV_OK);
    cr_assert_eq(memcmp(kept, (int32_t[]){0, 1, 4, 5}, sizeof kept), 0);
}

/* Each image keeps a share of its original tokens, also in later steps and where one has none left;
 * the plan counts as the method does. */
Test(pruners, pdrop_keeps_a_share_of_images_that_differ) {
    static const fv_token_span image[] = {{.first = 1, .n = 7},
                                          {.first = 8, .n = 0, .image = 1},
                                          {.first = 10, .n = 4, .image = 2},
                                          {.first = 14, .n = 1, .image = 3}};
    static const int32_t pos[] = {1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14};
    static const float attention[] = {9, 8, 7, 6, 5, 4, 3, 1, 2, 3, 4, 0};
    fv_plan_shape shape = {.n_layer = 4,
                           .n_kv = 2,
                           .d_head = 8,
                           .bytes_value = 4,
                           .n_visual = 12,
                           .n_text = 40,
                           .n_span = 4,
                           .span = image};
    fv_policy p;
    int32_t first[5], kept[3], left[5], n_kept;
    float now[5];
    cr_assert_eq(fv_policy_parse("prune=pdrop", &p), FV_OK);
    cr_assert_eq(fv_plan_make(&p, &shape, &plan), FV_OK, "%s", fv_last_error());
    cr_assert(plan.prune.n_edit == 3 && plan.prune.edit[0].keep == 3 + 0 + 2 + 0 &&
              plan.prune.edit[1].keep == 1 + 1);
    fv_prune_context ctx = {.n_visual = 12,
                            .pos = pos,
                            .keep = plan.prune.edit[0].keep,
                            .share = plan.prune.edit[0].share,
                            .n_span = 4,
                            .span = image,
                            .attention = attention};
    cr_assert_eq(fv_prune_method_of(FV_METHOD_PRUNE_pdrop)->keep(&ctx, NULL, first, &n_kept),
                 FV_OK);
    cr_assert_eq(memcmp(first, (int32_t[]){0, 1, 2, 9, 10}, sizeof first), 0);
    for (int i = 0; i < 5; i++) {
        left[i] = pos[first[i]];
        now[i] = attention[first[i]];
    }
    ctx.n_visual = 5;
    ctx.pos = left;
    ctx.attention = now;
    ctx.keep = plan.prune.edit[1].keep;
    ctx.share = plan.prune.edit[1].share;
    cr_assert_eq(fv_prune_method_of(FV_METHOD_PRUNE_pdrop)->keep(&ctx, NULL, kept, &n_kept), FV_OK);
    cr_assert_eq(memcmp(kept, (int32_t[]){0, 4}, 2 * sizeof *kept), 0);
}

Test(pruners, text_tokens_of_more_than_the_mean_are_scorers) {
    static const float dot[] = {5, 0, 0, 5, 0, 0}; /* 2 visual tokens, 3 text tokens */
    uint8_t scorer[3];
    double m[3];
    cr_assert_eq(fv_scorers_choose(dot, 2, 3, m, scorer), 1);
    cr_assert(scorer[0] == 1 && scorer[1] == 0 && scorer[2] == 0);
    static const float flat[] = {1, 1, 1};
    cr_assert_eq(fv_scorers_choose(flat, 1, 3, m, scorer), 3, "where none stands out all are");
    cr_assert_eq(fv_scorers_choose(flat, 1, 1, m, scorer), 1);
}

/* Two clusters and a token between them, nearer to the second. */
Test(pruners, clusters_form_around_the_densest) {
    static const float x[] = {0, 0.1f, 0.2f, 6, 10, 10.1f, 10.3f};
    int32_t cluster[7], centre[2];
    fv_arena arena = {0};
    cr_assert_eq(fv_clusters(x, 7, 1, 2, &arena, cluster, centre), FV_OK);
    cr_assert(cluster[0] == cluster[1] && cluster[1] == cluster[2]);
    cr_assert(cluster[3] == cluster[4] && cluster[4] == cluster[6]);
    cr_assert_neq(cluster[0], cluster[4]);
    cr_assert_eq(cluster[centre[0]], 0);
    cr_assert_eq(fv_clusters(x, 1, 1, 1, &arena, cluster, centre), FV_OK);
    cr_assert(cluster[0] == 0 && centre[0] == 0);
    fv_arena_fini(&arena);
}

/* Each frequency goes by the distance in its own coordinate. */
Test(pruners, rotation_alone_scores_each_coordinate_by_its_frequencies) {
    static const fv_rope_pos at[] = {{2, 2, 3}, {4, 9, 5}, {12, 12, 12}};
    static const fv_rope_config cfg = {.theta = 10000, .section = {1, 1, 2}};
    fv_rope rope;
    double got[3];
    fv_rope_init(&rope, &cfg, 8);
    fv_scorers_rope(&rope, at, 3, got);
    for (int j = 0; j < 3; j++) {
        double t = 12 - at[j].t, h = 12 - at[j].h, w = 12 - at[j].w;
        double want = 2 / sqrt(8) * (cos(t) + cos(h * 0.1) + cos(w * 0.01) + cos(w * 0.001));
        cr_assert_float_eq(got[j], want, 1e-6);
    }
}
