/* condense: its methods against NumPy, and images through a tower. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backends/open.h"
#include "kv/kv.h"
#include "layout/layout.h"
#include "policy/plan/plan.h"
#include "prefill-worker/condense/condense.h"
#include "prefill-worker/condense/prumerge.h"
#include "prefill-worker/prompt/prompt.h"
#include "tests/support/rendered.h"
#include "tests/support/tiny_tower.h"

enum { P = TOWER_P, TEXT = TOWER_TEXT, N = 3, ROWS_MAX = 100 };

static fv_choice condense_of(const char *policy) {
    fv_policy p;
    cr_assert_eq(fv_policy_parse(policy, &p), FV_OK, "%s", fv_last_error());
    return p.stage[FV_STAGE_CONDENSE];
}

/* ---- the methods ------------------------------------------------------------------------ */

static float *drawn(uint64_t *state, fv_arena *arena, int32_t n) {
    float *x;
    cr_assert_eq(FV_ARENA_NEW(arena, n, x), FV_OK);
    rendered_uniform(state, x, (size_t)n);
    return x;
}

/* Adds the fields of images of several tiles, if the case has them. */
static void add_tiles(const json_t *g, uint64_t *state, fv_condense_context *ctx) {
    const json_t *tile = json_object_get(g, "tile"), *by = json_object_get(g, "shown_by");
    int32_t *at, *shown;
    ctx->n_tile = 1;
    if (!tile) return;
    ctx->n_whole = (int32_t)json_array_size(by);
    cr_assert_eq((int32_t)json_array_size(tile), ctx->n);
    cr_assert_eq(FV_ARENA_NEW(ctx->arena, ctx->n, at), FV_OK);
    cr_assert_eq(FV_ARENA_NEW(ctx->arena, ctx->n_whole, shown), FV_OK);
    for (int32_t i = 0; i < ctx->n; i++) {
        at[i] = (int32_t)json_integer_value(json_array_get(tile, (size_t)i));
        if (at[i] >= ctx->n_tile) ctx->n_tile = at[i] + 1;
    }
    for (int32_t i = 0; i < ctx->n_whole; i++)
        shown[i] = (int32_t)json_integer_value(json_array_get(by, (size_t)i));
    ctx->tile = at;
    ctx->shown_by = shown;
    ctx->first_score = drawn(state, ctx->arena, ctx->n_whole);
}

static void check_image(const json_t *g) {
    fv_arena arena = {0};
    fv_condensed got;
    const char *policy = rendered_text(g, "policy");
    fv_choice choice = condense_of(policy);
    fv_params params;
    fv_choice_params(&choice, 32, &params);
    const fv_condense_method *method = fv_condense_method_of(choice.method->id);
    uint64_t state = (uint64_t)rendered_int(g, "seed");
    int32_t n = rendered_int(g, "n"), d = rendered_int(g, "d"), width = rendered_int(g, "width");
    float *q = drawn(&state, &arena, d), *key = drawn(&state, &arena, (n + 1) * d), score[ROWS_MAX];
    for (int32_t i = 0; i < d; i++) q[i] *= (float)rendered_int(g, "sharp");
    cr_assert_eq(fv_condense_score(q, key, n + 1, d, rendered_int(g, "n_head"), &arena, score),
                 FV_OK);
    fv_condense_context ctx = {.params = &params,
                               .n = n,
                               .width = width,
                               .feature = drawn(&state, &arena, n * width),
                               .score = score + 1,
                               .d_key = d,
                               .key = key + d,
                               .arena = &arena};
    add_tiles(g, &state, &ctx);
    cr_assert_eq(method->run(&ctx, &got), FV_OK);
    const json_t *source = rendered_at(g, "source");
    cr_assert_eq(got.n, (int32_t)json_array_size(source), "%s on %d rows", policy, n);
    for (int32_t i = 0; i < got.n; i++)
        cr_assert_eq(got.source[i], (int32_t)json_integer_value(json_array_get(source, (size_t)i)),
                     "%s on %d rows: row %d", policy, n, i);
    if (got.n > 0)
        cr_assert_lt(rendered_off(got.feature, rendered_at(g, "feature")), 1e-5, "%s", policy);
    fv_arena_fini(&arena);
}

static void check_method(const char *name) {
    json_t *root = rendered_read(name);
    const json_t *images = rendered_at(root, "pictures");
    cr_assert_gt(json_array_size(images), 0);
    for (size_t i = 0; i < json_array_size(images); i++) check_image(json_array_get(images, i));
    json_decref(root);
}

Test(condense, hired_chooses_what_numpy_chooses) { check_method("hired"); }
Test(condense, prumerge_merges_what_numpy_merges) { check_method("prumerge"); }
Test(condense, prumerge_plus_merges_what_numpy_merges) { check_method("prumerge_plus"); }

Test(condense, outliers_are_beyond_the_fences_of_the_quartiles) {
    static const float flat[] = {1, 1, 1, 1, 1}, one[] = {1, 2, 3, 4, 100}, few[] = {5, 6};
    int32_t n;
    cr_assert_eq(fv_prumerge_outliers(flat, 5, &n), FV_OK);
    cr_assert_eq(n, 0);
    cr_assert_eq(fv_prumerge_outliers(one, 5, &n), FV_OK);
    cr_assert_eq(n, 1, "above 4 + 1.5 * 2");
    cr_assert_eq(fv_prumerge_outliers(few, 2, &n), FV_OK);
    cr_assert_eq(n, 0);
    cr_assert_eq(fv_prumerge_outliers(few, 0, &n), FV_OK);
    cr_assert_eq(n, 0);
}

/* ---- images through a tower ------------------------------------------------------------ */

typedef struct rows {
    int32_t n, each[N], source[N * (P + 2)];
    float embeds[N * (P + 2) * TEXT];
} rows;

static fv_layout layout_of(const fv_layout_config *c, int32_t w, int32_t h) {
    fv_layout l;
    cr_assert_eq(fv_layout_image(c, w, h, 1, &l), FV_OK, "%s", fv_last_error());
    return l;
}

static fv_layout one_tile(bool cls) {
    return layout_of(&(fv_layout_config){.family = FV_LAYOUT_LLAVA,
                                         .tile = TOWER_SIDE,
                                         .patch = 4,
                                         .merge = 1,
                                         .tower_class = true,
                                         .class_token = cls},
                     TOWER_SIDE, TOWER_SIDE);
}

/* Adds an image's tokens to `out`. */
static void run_image(const tiny_tower *t, const char *policy, const fv_layout *l,
                      const float *pixels, const char *isa, rows *out) {
    fv_backend be;
    fv_vision *v;
    fv_arena arena = {0};
    fv_condensed_image got;
    fv_choice choice = condense_of(policy);
    fv_backend_options opt = {.n_threads = 2, .isa = isa};
    cr_assert_eq(fv_backend_open(&be, "cpu", &opt), FV_OK);
    cr_assert_eq(fv_vision_open(&be, &t->cfg, &t->w, &t->p, &v), FV_OK);
    cr_assert_eq(fv_condense_run(v, &t->cfg, &choice, l, pixels, be.device, &arena, &got), FV_OK,
                 "%s", fv_last_error());
    memcpy(out->source + out->n, got.source, (size_t)got.n * sizeof *got.source);
    if (got.n)
        memcpy(out->embeds + out->n * TEXT, got.embeds.data, (size_t)got.n * TEXT * sizeof(float));
    out->n += got.n;
    fv_buf_free(&got.embeds);
    fv_vision_close(v);
    fv_arena_fini(&arena);
    fv_backend_close(&be);
}

/* n images of one tile, one after another; sources count through all. */
static void run(const tiny_tower *t, const char *policy, const float *pixels, int32_t n,
                const char *isa, rows *out) {
    fv_layout l = one_tile(t->cfg.keep_cls);
    out->n = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t first = out->n;
        run_image(t, policy, &l, pixels + i * TOWER_PIXELS, isa, out);
        out->each[i] = out->n - first;
        for (int32_t r = first; r < out->n; r++)
            if (out->source[r] >= 0) out->source[r] += i * l.n_visual;
    }
}

static void encode(const tiny_tower *t, const float *pixels, int32_t n, float *embeds) {
    fv_backend be;
    fv_vision *v;
    int32_t n_row = n * fv_vision_tokens(&t->cfg);
    fv_vision_out out = {.embeds = fv_tensor_of(embeds, FV_F32, n_row, TEXT)};
    cr_assert_eq(fv_backend_open(&be, "cpu", &(fv_backend_options){.n_threads = 1}), FV_OK);
    cr_assert_eq(fv_vision_open(&be, &t->cfg, &t->w, &t->p, &v), FV_OK);
    cr_assert_eq(fv_vision_encode(v, pixels, n, &out), FV_OK);
    fv_vision_close(v);
    fv_backend_close(&be);
}

/* Settings that keep every token unchanged, and settings that only choose: kept tokens have the
 * bits of `exact`. */
Test(condense, tokens_that_are_only_chosen_keep_their_bits) {
    static const char *const policies[] = {"condense=hired,keep=1", "condense=hired,keep=0.5",
                                           "condense=prumerge,keep=1,neighbours=0",
                                           "condense=prumerge_plus,keep=1,neighbours=0"};
    static const int32_t two[] = {2};
    static float exact[N * (P + 1) * TEXT], pixels[N * TOWER_PIXELS];
    static rows got;
    tiny_tower_pixels(pixels, N);
    for (int cls = 0; cls < 2; cls++) {
        tiny_tower t = tiny_tower_make(1, two, cls);
        encode(&t, pixels, N, exact);
        for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
            run(&t, policies[i], pixels, N, "plain", &got);
            cr_assert_eq(got.n, i == 1 ? N * ((P + cls) / 2) : N * (P + cls));
            for (int32_t r = 0; r < got.n; r++)
                cr_assert_eq(memcmp(got.embeds + r * TEXT, exact + got.source[r] * TEXT, TEXT * 4),
                             0, "%s, row %d", policies[i], r);
        }
    }
}

Test(condense, an_image_gives_the_same_tokens_on_every_cpu_path) {
    static const char *const policies[] = {"condense=hired,keep=0.4", "condense=prumerge",
                                           "condense=prumerge_plus,neighbours=2"};
    static const int32_t two[] = {2};
    static float pixels[N * TOWER_PIXELS];
    static rows fast, plain;
    tiny_tower_pixels(pixels, N);
    tiny_tower t = tiny_tower_make(1, two, false);
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        run(&t, policies[i], pixels, N, NULL, &fast);
        run(&t, policies[i], pixels, N, "plain", &plain);
        cr_assert_eq(fast.n, plain.n);
        cr_assert_eq(memcmp(fast.source, plain.source, (size_t)plain.n * sizeof *plain.source), 0);
        cr_assert_eq(memcmp(fast.embeds, plain.embeds, (size_t)plain.n * TEXT * 4), 0);
    }
}

/* ---- images of several tiles ------------------------------------------------------------- */

/* LLaVA-NeXT's tiles of the tiny tower: 3 x 3 tokens each. */
static const fv_layout_config tiles = {.family = FV_LAYOUT_LLAVA_NEXT,
                                       .tile = TOWER_SIDE,
                                       .patch = 4,
                                       .merge = 1,
                                       .tower_class = true,
                                       .n_pinpoint = 3,
                                       .pinpoint = {{24, 12}, {12, 24}, {24, 24}}};

/* Tokens of the tile that shows the whole image, of the upper or left tile, and of the other one. */
static void count_tiles(const fv_layout *l, const rows *r, int32_t n[3]) {
    const fv_layout_span *m = &l->span[1];
    for (int32_t i = 0; i < r->n; i++) {
        int32_t at = r->source[i] - P;
        cr_assert(i == 0 || r->source[i] > r->source[i - 1]);
        if (at >= 0) cr_assert_lt(at % m->w, m->w - 1, "newlines do not stay");
        n[at < 0 ? 0 : m->cols == 2 ? 1 + (at % m->w >= 3) : 1 + (at / m->w >= 3)]++;
    }
}

/* The first of two tiles shows the middles of 3 of the whole image's 3 x 3 patches, the second those of
 * 6. */
Test(condense, tiles_share_what_the_whole_image_leaves) {
    static const struct {
        const char *policy;
        int32_t w, h, n[3];
    } c[] = {
        {"condense=hired,keep=0.5,whole=0", 24, 12, {0, 4, 8}}, /* 13 of 27 */
        {"condense=hired,keep=0.5,whole=0", 12, 24, {0, 4, 8}}, /* upright */
        {"condense=hired,keep=0.5,whole=1", 24, 12, {9, 0, 0}}, /* no more than it has */
        {"condense=hired,keep=0.9,whole=0", 24, 12, {0, 8, 9}}, /* 24: 8 and 16 */
        {"condense=hired,keep=0.5,whole=0",
         24,
         4,
         {0, 2, 3}}, /* 15 tokens: one row is no padding */
        {"condense=hired,keep=0", 24, 12, {0}},
    };
    static const int32_t two[] = {2};
    static float pixels[N * TOWER_PIXELS];
    tiny_tower_pixels(pixels, N);
    tiny_tower t = tiny_tower_make(1, two, false);
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        static rows got;
        int32_t n[3] = {0};
        fv_layout l = layout_of(&tiles, c[i].w, c[i].h);
        cr_assert_eq(l.n_tile, N);
        got.n = 0;
        run_image(&t, c[i].policy, &l, pixels, NULL, &got);
        count_tiles(&l, &got, n);
        for (int k = 0; k < 3; k++)
            cr_assert_eq(n[k], c[i].n[k], "%s, %d x %d: tile %d keeps %d", c[i].policy, c[i].w,
                         c[i].h, k, n[k]);
    }
}

Test(condense, tokens_of_tiles_keep_the_bits_of_exact) {
    static const int32_t two[] = {2};
    static float pixels[N * TOWER_PIXELS], of_tiles[N * P * TEXT], exact[N * (P + 2) * TEXT],
        newline[TEXT];
    static rows got;
    fv_backend be;
    fv_vision *v;
    fv_layout l = layout_of(&tiles, 12, 20);
    tiny_tower_pixels(pixels, N);
    tiny_tower t = tiny_tower_make(1, two, false);
    t.p.newline = fv_tensor_of(newline, FV_F32, 1, TEXT);
    encode(&t, pixels, N, of_tiles);
    cr_assert_eq(fv_backend_open(&be, "cpu", &(fv_backend_options){.n_threads = 1}), FV_OK);
    cr_assert_eq(fv_vision_open(&be, &t.cfg, &t.w, &t.p, &v), FV_OK);
    cr_assert_eq(fv_vision_assemble(v, &l, fv_tensor_of(of_tiles, FV_F32, N * P, TEXT),
                                    fv_tensor_of(exact, FV_F32, l.n_visual, TEXT)),
                 FV_OK, "%s", fv_last_error());
    run_image(&t, "condense=hired,keep=0.6", &l, pixels, NULL, &got);
    cr_assert_gt(got.n, P / 2);
    for (int32_t r = 0; r < got.n; r++)
        cr_assert_eq(memcmp(got.embeds + r * TEXT, exact + got.source[r] * TEXT, TEXT * 4), 0,
                     "token %d", r);
    fv_vision_close(v);
    fv_backend_close(&be);
}

Test(condense, a_plan_for_tiles_bounds_their_tokens_and_refuses_methods_of_one_tile) {
    static const fv_token_span image[] = {{.first = 1, .n = 9}, {.first = 10, .n = 21}};
    fv_plan_shape shape = {.n_layer = 4,
                           .n_kv = 2,
                           .d_head = 8,
                           .bytes_value = 4,
                           .n_visual = 30,
                           .n_text = 10,
                           .n_span = 2,
                           .span = image,
                           .tiled = true};
    fv_policy p;
    fv_plan plan;
    cr_assert_eq(fv_policy_parse("condense=hired,keep=0.5", &p), FV_OK);
    cr_assert_eq(fv_plan_make(&p, &shape, &plan), FV_OK, "%s", fv_last_error());
    cr_assert(plan.condense.acts && plan.shape.n_visual == 15 && !plan.exact_counts);
    cr_assert_eq(fv_policy_parse("condense=prumerge", &p), FV_OK);
    cr_assert_eq(fv_plan_make(&p, &shape, &plan), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "an image of one tile"), "%s", fv_last_error());
}

/* ---- the prompt and the plan -------------------------------------------------------------- */

Test(condense, images_of_a_prompt_lose_tokens_and_text_stays) {
    int32_t each[] = {1, 0, 3}; /* of each span */
    fv_prompt p = {.n = 14, .n_visual = 9, .n_text = 5, .n_image = 3, .n_span = 3};
    const char *layout = "tvvvtvvvvvvttt"; /* no text between the second and third image */
    p.ids = malloc(14 * sizeof *p.ids);
    p.seg = malloc(14);
    p.span = malloc(3 * sizeof *p.span);
    for (int32_t i = 0; i < 3; i++)
        p.span[i] = (fv_token_span){
            .first = (int32_t[]){1, 5, 8}[i], .n = 3, .image = i, .t = 1, .h = 1, .w = 3};
    for (int32_t i = 0; i < 14; i++) {
        p.ids[i] = i;
        p.seg[i] = layout[i] == 'v' ? FV_SEG_VISUAL : FV_SEG_TEXT;
    }
    cr_assert_eq(fv_prompt_condense(&p, each, 8), FV_EINVAL, "nine rows");
    cr_assert_eq(fv_prompt_condense(&p, NULL, 9), FV_OK);
    static const int32_t left[] = {0, 1, 4, 8, 9, 10, 11, 12, 13};
    cr_assert(p.n == 9 && p.n_visual == 4 && p.n_text == 5);
    cr_assert_eq(memcmp(p.ids, left, sizeof left), 0);
    for (int32_t i = 0; i < 3; i++) {
        cr_assert_eq(p.span[i].first, ((int32_t[]){1, 3, 3})[i], "%d", i);
        cr_assert_eq(p.span[i].n, each[i]);
        cr_assert_eq(p.span[i].w, 3, "the grid is the tower's");
    }
    fv_prompt_free(&p);
}

static fv_status try_plan(const char *policy, int32_t encoded, int32_t visual, fv_plan *plan) {
    fv_policy p;
    const fv_token_span image[] = {
        {.first = 1, .n = visual / 2, .encoded = encoded / 2},
        {.first = 2 + visual, .n = visual - visual / 2, .encoded = encoded / 2, .image = 1}};
    fv_plan_shape shape = {.n_layer = 4,
                           .n_kv = 2,
                           .d_head = 8,
                           .bytes_value = 4,
                           .n_visual = visual,
                           .n_encoded = encoded,
                           .n_text = 10,
                           .n_span = 2,
                           .span = image};
    cr_assert_eq(fv_policy_parse(policy, &p), FV_OK, "%s", fv_last_error());
    return fv_plan_make(&p, &shape, plan);
}

static void plan_of(const char *policy, int32_t encoded, int32_t visual, fv_plan *plan) {
    cr_assert_eq(try_plan(policy, encoded, visual, plan), FV_OK, "%s", fv_last_error());
}

Test(condense, the_plan_bounds_what_images_come_to_until_it_is_known) {
    static const struct {
        const char *policy;
        int32_t most; /* of 2 images of 576 rows */
        bool exact;
    } c[] = {{"condense=hired", 2 * 115, true},
             {"condense=hired,keep=0", 0, true},
             {"condense=prumerge", 2 * (144 + 1), false},
             {"condense=prumerge,keep=0.1", 2 * (57 + 1), true},
             {"condense=prumerge,keep=1", 2 * 576, true},
             {"condense=prumerge_plus", 2 * 576, false}};
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        fv_plan bound, known;
        size_t row = 2 * 8 * 4 * 4 * 2;
        plan_of(c[i].policy, 0, 2 * 576, &bound);
        cr_assert(bound.condense.acts && bound.shape.n_encoded == 2 * 576, "%s", c[i].policy);
        cr_assert_eq(bound.shape.n_visual, c[i].most, "%s: %d", c[i].policy, bound.shape.n_visual);
        cr_assert_eq(bound.exact_counts, c[i].exact, "%s", c[i].policy);
        cr_assert_eq(fv_plan_count(&bound).raw, row * (2 * 576 + 10));
        cr_assert_eq(fv_plan_count(&bound).held, row * (size_t)(c[i].most + 10));
        int32_t came = c[i].exact ? c[i].most : c[i].most / 2;
        plan_of(c[i].policy, 2 * 576, came, &known);
        cr_assert(known.condense.acts && known.exact_counts && known.visual[3] == came);
        cr_assert_eq(fv_plan_count(&known).raw, row * (2 * 576 + 10));
        cr_assert_eq(fv_plan_count(&known).held, row * (size_t)(came + 10));
    }
}

Test(condense, a_method_that_keeps_other_than_its_plan_says_is_named) {
    static const struct {
        const char *policy;
        int32_t came;
    } wrong[] = {{"condense=hired", 229}, {"condense=hired", 231}, {"condense=prumerge", 291}};
    for (int i = 0; i < 3; i++) {
        fv_plan plan;
        cr_assert_eq(try_plan(wrong[i].policy, 2 * 576, wrong[i].came, &plan), FV_EFATAL);
        cr_assert(strstr(fv_last_error(), wrong[i].policy), "%s", fv_last_error());
    }
}

Test(condense, a_method_that_keeps_everything_says_so) {
    static const char *const policies[] = {"condense=hired,keep=1",
                                           "condense=prumerge,keep=1,neighbours=0",
                                           "condense=prumerge_plus,keep=1,neighbours=0"};
    for (int i = 0; i < 3; i++) {
        fv_plan plan;
        plan_of(policies[i], 0, 2 * 576, &plan);
        cr_assert_not(plan.condense.acts);
        cr_assert(strstr(plan.note[FV_STAGE_CONDENSE], "every visual token is kept"));
        cr_assert_eq(plan.visual[0], 2 * 576);
    }
}

Test(condense, later_stages_count_what_is_left) {
    fv_plan plan;
    plan_of("condense=hired,keep=0.5;prune=fastv,layer=2,keep=0.5", 0, 2 * 100, &plan);
    cr_assert(plan.visual[1] == 100 && plan.visual[2] == 50);
    plan_of("condense=hired,keep=0;prune=fastv,layer=2,keep=0.5", 200, 0, &plan);
    cr_assert(strstr(plan.note[FV_STAGE_PRUNE], "no visual token is left"), "%s",
              plan.note[FV_STAGE_PRUNE]);
}
