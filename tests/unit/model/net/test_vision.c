/* The vision tower: batches, threads and paths change no bit, and the right hidden states become
 * features. Values are compared with transformers by the engine's goldens. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backends/open.h"
#include "model/net/vision_internal.h"
#include "tests/support/tiny_tower.h"

enum { D = TOWER_D, P = TOWER_P, SIDE = TOWER_SIDE, TEXT = TOWER_TEXT, MAX_ROWS = 3 * (P + 1) };
typedef tiny_tower tower;

typedef struct result {
    float features[MAX_ROWS * D * 3], embeds[MAX_ROWS * TEXT];
} result;

static void encode(const tower *t, const float *pixels, int32_t n, const char *isa, int32_t threads,
                   result *out) {
    fv_backend be;
    fv_vision *v;
    fv_backend_options opt = {.n_threads = threads, .isa = isa};
    int32_t rows = n * fv_vision_tokens(&t->cfg);
    cr_assert_eq(fv_backend_open(&be, "cpu", &opt), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_vision_open(&be, &t->cfg, &t->w, &t->p, &v), FV_OK);
    fv_vision_out to = {
        .features = fv_tensor_of(out->features, FV_F32, rows, fv_vision_feature_width(&t->cfg)),
        .embeds = fv_tensor_of(out->embeds, FV_F32, rows, TEXT)};
    cr_assert_eq(fv_vision_encode(v, pixels, n, &to), FV_OK);
    fv_vision_close(v);
    fv_backend_close(&be);
}

Test(vision, an_image_in_a_batch_gives_the_same_bits_as_alone) {
    static const int32_t feature[] = {2};
    static result batch, alone;
    float pixels[3 * 3 * SIDE * SIDE];
    tower t = tiny_tower_make(1, feature, false);
    tiny_tower_pixels(pixels, 3);
    encode(&t, pixels, 3, NULL, 2, &batch);
    for (int i = 0; i < 3; i++) {
        encode(&t, pixels + i * 3 * SIDE * SIDE, 1, "plain", 1, &alone);
        cr_assert_eq(memcmp(alone.embeds, batch.embeds + i * P * TEXT, P * TEXT * 4), 0);
        cr_assert_eq(memcmp(alone.features, batch.features + i * P * D, P * D * 4), 0);
    }
}

Test(vision, listed_hidden_states_are_concatenated) {
    static const int32_t both[] = {3, 0}, last[] = {3}, first[] = {0};
    static result ab, a, b;
    float pixels[3 * 3 * SIDE * SIDE];
    tiny_tower_pixels(pixels, 3);
    /* make_tower always draws into the same store, so all three share the tower's weights. */
    tower t = tiny_tower_make(2, both, false), ta = tiny_tower_make(1, last, false), tb = ta;
    memcpy(tb.cfg.feature_layer, first, sizeof first);
    encode(&t, pixels, 1, NULL, 1, &ab);
    encode(&ta, pixels, 1, NULL, 1, &a);
    encode(&tb, pixels, 1, NULL, 1, &b);
    for (int r = 0; r < P; r++) {
        cr_assert_eq(memcmp(ab.features + r * 2 * D, a.features + r * D, D * 4), 0);
        cr_assert_eq(memcmp(ab.features + r * 2 * D + D, b.features + r * D, D * 4), 0);
    }
}

Test(vision, strategy_full_keeps_the_class_token_in_front) {
    static const int32_t feature[] = {1};
    static result without, with;
    float pixels[3 * 3 * SIDE * SIDE];
    tiny_tower_pixels(pixels, 3);
    tower t = tiny_tower_make(1, feature, false), full = t;
    full.cfg.keep_cls = true;
    cr_assert_eq(fv_vision_tokens(&full.cfg), P + 1);
    encode(&t, pixels, 1, NULL, 1, &without);
    encode(&full, pixels, 1, NULL, 1, &with);
    cr_assert_eq(memcmp(with.features + D, without.features, P * D * 4), 0);
    cr_assert_eq(memcmp(with.embeds + TEXT, without.embeds, P * TEXT * 4), 0);
}

/* ---- captures ------------------------------------------------------------------------ */

typedef struct captured {
    float q[3 * D], k[3 * (P + 1) * D];
} captured;

static fv_status capture(const tower *t, const float *pixels, int32_t n, int32_t layer,
                         const char *isa, captured *out) {
    fv_backend be;
    fv_vision *v;
    fv_backend_options opt = {.n_threads = 2, .isa = isa};
    fv_vision_capture to = {.layer = layer, .q = out->q, .k = out->k};
    cr_assert_eq(fv_backend_open(&be, "cpu", &opt), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_vision_open(&be, &t->cfg, &t->w, &t->p, &v), FV_OK);
    fv_status st = fv_vision_encode(v, pixels, n, &(fv_vision_out){.n_capture = 1, .capture = &to});
    fv_vision_close(v);
    fv_backend_close(&be);
    return st;
}

Test(vision, a_layer_after_the_features_can_be_captured) {
    static const int32_t one[] = {1}, all[] = {3};
    static captured after, inside;
    float pixels[3 * TOWER_PIXELS];
    tiny_tower_pixels(pixels, 3);
    tower t = tiny_tower_make(1, all, false), shorter = t;
    memcpy(shorter.cfg.feature_layer, one, sizeof one);
    cr_assert_eq(capture(&t, pixels, 3, 1, NULL, &inside), FV_OK);
    cr_assert_eq(capture(&shorter, pixels, 3, 1, "plain", &after), FV_OK);
    cr_assert_eq(memcmp(&inside, &after, sizeof inside), 0);
    cr_assert_eq(capture(&shorter, pixels + TOWER_PIXELS, 1, 1, NULL, &after), FV_OK);
    cr_assert_eq(memcmp(after.q, inside.q + D, D * 4), 0, "an image alone");
    cr_assert_eq(memcmp(after.k, inside.k + (P + 1) * D, (P + 1) * D * 4), 0);
}

Test(vision, two_layers_captured_at_once_are_what_each_is_alone) {
    static const int32_t one[] = {1};
    static captured alone[2], both[2];
    float pixels[3 * TOWER_PIXELS];
    fv_backend be;
    fv_vision *v;
    tiny_tower_pixels(pixels, 3);
    tower t = tiny_tower_make(1, one, false);
    for (int l = 0; l < 2; l++) cr_assert_eq(capture(&t, pixels, 3, l, "plain", &alone[l]), FV_OK);
    fv_vision_capture to[2] = {{1, both[1].q, both[1].k}, {0, both[0].q, both[0].k}};
    cr_assert_eq(fv_backend_open(&be, "cpu", &(fv_backend_options){.n_threads = 1}), FV_OK);
    cr_assert_eq(fv_vision_open(&be, &t.cfg, &t.w, &t.p, &v), FV_OK);
    cr_assert_eq(fv_vision_encode(v, pixels, 3, &(fv_vision_out){.n_capture = 2, .capture = to}),
                 FV_OK);
    cr_assert_eq(memcmp(both, alone, sizeof both), 0);
    fv_vision_close(v);
    fv_backend_close(&be);
}

Test(vision, a_layer_that_the_checkpoint_does_not_have_is_refused) {
    static const int32_t all[] = {3};
    static captured out;
    float pixels[3 * TOWER_PIXELS];
    tiny_tower_pixels(pixels, 3);
    tower t = tiny_tower_make(1, all, false);
    cr_assert_eq(capture(&t, pixels, 1, 3, NULL, &out), FV_EUNSUPPORTED);
    cr_assert(strstr(fv_last_error(), "checkpoint lacks"), "%s", fv_last_error());
}

/* ---- towers of other families ------------------------------------------------------------------ */

/* A tower like SigLIP's and Idefics3's: no class token and no first norm, a patch bias, a last
 * norm. */
static tower without_class(int32_t merge) {
    static const int32_t last[] = {3};
    static float bias[D], norm[2][D], fc[TEXT * D * P], newline[TEXT];
    tower t = tiny_tower_make(1, last, false);
    for (int i = 0; i < D; i++) bias[i] = 0.1f * (float)(i % 7), norm[0][i] = 1, norm[1][i] = 0.2f;
    for (int i = 0; i < TEXT * D * P; i++) fc[i] = (float)((i * 29) % 83) / 400 - 0.1f;
    for (int i = 0; i < TEXT; i++) newline[i] = 100 + (float)i;
    t.cfg.class_token = t.cfg.pre_norm = false;
    t.cfg.patch_bias = t.cfg.post_norm = true;
    t.cfg.merge = merge;
    t.w.patch_bias = fv_tensor_of(bias, FV_F32, 1, D);
    t.w.post_norm = fv_tensor_of(norm[0], FV_F32, 1, D);
    t.w.post_norm_bias = fv_tensor_of(norm[1], FV_F32, 1, D);
    t.p.newline = fv_tensor_of(newline, FV_F32, 1, TEXT);
    if (merge > 1) {
        t.cfg.connector = FV_CONNECTOR_LINEAR;
        t.p.fc1 = fv_tensor_of(fc, FV_F32, TEXT, D * merge * merge);
        t.p.fc1_bias = (fv_tensor){0};
    }
    return t;
}

Test(vision, a_tile_among_many_gives_the_same_bits_as_alone_in_every_kind_of_tower) {
    enum { N = 11 }; /* more than go through the tower at once */
    static float pixels[N * TOWER_PIXELS];
    static struct { float features[N * P * D], embeds[N * P * TEXT]; } all, one;
    tiny_tower_pixels(pixels, N);
    for (int32_t merge = 1; merge <= 3; merge += 2) {
        tower t = without_class(merge);
        fv_backend be;
        fv_vision *v;
        int32_t each = fv_vision_tokens(&t.cfg), width = fv_vision_feature_width(&t.cfg);
        cr_assert_eq(each, merge == 1 ? P : 1);
        cr_assert_eq(fv_backend_open(&be, "cpu", &(fv_backend_options){.n_threads = 2}), FV_OK);
        cr_assert_eq(fv_vision_open(&be, &t.cfg, &t.w, &t.p, &v), FV_OK);
        fv_vision_out to = {.features = fv_tensor_of(all.features, FV_F32, N * each, width),
                            .embeds = fv_tensor_of(all.embeds, FV_F32, N * each, TEXT)};
        cr_assert_eq(fv_vision_encode(v, pixels, N, &to), FV_OK);
        for (int32_t i = 0; i < N; i++) {
            fv_vision_out alone = {.features = fv_tensor_of(one.features, FV_F32, each, width),
                                   .embeds = fv_tensor_of(one.embeds, FV_F32, each, TEXT)};
            cr_assert_eq(fv_vision_encode(v, pixels + i * TOWER_PIXELS, 1, &alone), FV_OK);
            cr_assert_eq(memcmp(one.features, all.features + i * each * width,
                                sizeof(float) * (size_t)(each * width)),
                         0);
            cr_assert_eq(memcmp(one.embeds, all.embeds + i * each * TEXT,
                                sizeof(float) * (size_t)(each * TEXT)),
                         0);
        }
        fv_vision_close(v);
        fv_backend_close(&be);
    }
}

Test(vision, merged_features_are_those_of_the_patches_side_by_side) {
    static result plain, merged;
    float pixels[3 * TOWER_PIXELS];
    tiny_tower_pixels(pixels, 1);
    tower t = without_class(1), u = without_class(3);
    encode(&t, pixels, 1, NULL, 1, &plain);
    encode(&u, pixels, 1, NULL, 1, &merged);
    cr_assert_eq(memcmp(plain.features, merged.features, sizeof(float) * P * D), 0);
    double sum = 0;
    for (int k = 0; k < P * D; k++)
        sum += (double)((const float *)u.p.fc1.data)[k] * (double)merged.features[k];
    cr_assert_float_eq(merged.embeds[0], sum, 1e-4, "one linear layer");
}

Test(vision, a_tower_without_class_token_has_no_class_attention) {
    static captured out;
    float pixels[3 * TOWER_PIXELS];
    tiny_tower_pixels(pixels, 1);
    tower t = without_class(1);
    cr_assert_eq(capture(&t, pixels, 1, 1, NULL, &out), FV_EUNSUPPORTED);
    cr_assert(strstr(fv_last_error(), "class token"), "%s", fv_last_error());
}

/* short_of: coordinates that rounding puts before their own boundary, as PyTorch 2.15 prints. */
Test(vision, positions_are_bucketed_as_pytorch_does) {
    static const struct {
        int32_t n, short_of[14];
    } want[] = {{7, {-1}},
                {16, {-1}},
                {26, {-1}},
                {27, {-1}},
                {32, {-1}},
                {64, {-1}},
                {19, {12, -1}},
                {25, {5, 9, 10, 11, 12, 13, 15, 18, 20, 23, -1}},
                {29, {3, 6, 24, -1}},
                {31, {17, 21, 25, 29, -1}},
                {38, {12, -1}}};
    for (size_t k = 0; k < sizeof want / sizeof *want; k++)
        for (int32_t i = 0, s = 0; i < want[k].n; i++) {
            bool less = want[k].short_of[s] == i;
            cr_assert_eq(fv_vision_bucket(want[k].n, i), i - less, "%d of %d", i, want[k].n);
            s += less;
        }
}

/* ---- images from tiles ------------------------------------------------------------------------- */

/* Token t of tile i is 100 i + t in each column. */
static void assemble(const fv_layout *l, float *tiles, float *rows, fv_status want) {
    fv_backend be;
    fv_vision *v;
    tower t = without_class(1);
    for (int32_t i = 0; i < l->n_tile * P; i++)
        for (int k = 0; k < TEXT; k++) tiles[i * TEXT + k] = (float)(100 * (i / P) + i % P);
    cr_assert_eq(fv_backend_open(&be, "cpu", &(fv_backend_options){.n_threads = 1}), FV_OK);
    cr_assert_eq(fv_vision_open(&be, &t.cfg, &t.w, &t.p, &v), FV_OK);
    cr_assert_eq(fv_vision_assemble(v, l, fv_tensor_of(tiles, FV_F32, l->n_tile * P, TEXT),
                                    fv_tensor_of(rows, FV_F32, l->n_visual, TEXT)),
                 want, "%s", fv_last_error());
    fv_vision_close(v);
    fv_backend_close(&be);
}

Test(vision, an_image_is_its_tiles_side_by_side_with_newlines) {
    static float tiles[5 * P * TEXT], rows[64 * TEXT];
    /* Tile 0 whole; of tiles 1..4, 6 x 6 tokens, the middle 2 rows and all but the outer columns. */
    fv_layout l = {.n_tile = 5, .n_span = 2, .n_visual = P + 1 + 2 * 5};
    l.span[0] = (fv_layout_span){.n = P + 1,
                                 .t = 1,
                                 .h = 3,
                                 .w = 3,
                                 .cols = 1,
                                 .rows = 1,
                                 .crop_w = 3,
                                 .crop_h = 3,
                                 .newline_end = true};
    l.span[1] = (fv_layout_span){.n = 10,
                                 .t = 1,
                                 .h = 2,
                                 .w = 5,
                                 .tile = 1,
                                 .cols = 2,
                                 .rows = 2,
                                 .crop_x = 1,
                                 .crop_y = 2,
                                 .crop_w = 4,
                                 .crop_h = 2,
                                 .newline_column = true};
    static const float want[] = {0,   1,   2,   3,   4,    5,   6,   7,   8,   1000,
                                 107, 108, 206, 207, 1000, 301, 302, 400, 401, 1000};
    assemble(&l, tiles, rows, FV_OK);
    for (int32_t i = 0; i < l.n_visual; i++)
        cr_assert_eq(rows[i * TEXT + 3], want[i] == 1000 ? 103 : want[i], "%d: %g", i,
                     (double)rows[i * TEXT + 3]);
    l.span[1].crop_x = 3;
    assemble(&l, tiles, rows, FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "reads beyond"), "%s", fv_last_error());
}

/* torch.nn.functional.interpolate on 3 x 6 tokens of tiles beside each other. */
Test(vision, scaled_tokens_are_those_of_pytorch) {
    static float tiles[2 * P * TEXT], rows[64 * TEXT];
    fv_layout l = {.n_tile = 2, .n_span = 1, .n_visual = 2 * 5};
    l.span[0] = (fv_layout_span){.n = 10,
                                 .t = 1,
                                 .h = 2,
                                 .w = 5,
                                 .cols = 2,
                                 .rows = 1,
                                 .crop_w = 6,
                                 .crop_h = 3,
                                 .newline_column = true};
    static const float want[] = {1.0f, 2.5f, 101.0f, 102.5f, 5.5f, 7.0f, 105.5f, 107.0f};
    assemble(&l, tiles, rows, FV_OK);
    for (int32_t i = 0; i < l.n_visual; i++)
        cr_assert_float_eq(rows[i * TEXT], i % 5 == 4 ? 100 : want[i - i / 5], 1e-5, "%d: %g", i,
                           (double)rows[i * TEXT]);
}
