/* model/net/vision.c: what a batch, a thread or a path must not change, and which hidden states
 * become features. Values are held against transformers by the engine's goldens. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "model/net/vision.h"

enum { D = 20, M = 36, LAYERS = 3, P = 9, SIDE = 12, TEXT = 14, MAX_ROWS = 3 * (P + 1) };

static float store[40000];
static fv_vision_layer layers[LAYERS];

static fv_tensor take(float **at, int32_t rows, int32_t cols) {
    fv_tensor t = fv_tensor_of(*at, FV_F32, rows, cols);
    for (int32_t i = 0; i < rows * cols; i++) {
        uint32_t x = (uint32_t)(*at - store + 1) * 2654435761u;
        x ^= x >> 15;
        *(*at)++ = (float)(x * 2246822519u >> 8) / 16777216.0f - 0.5f;
    }
    return t;
}

typedef struct tower {
    fv_model_config cfg;
    fv_vision_weights w;
    fv_projector_weights p;
} tower;

static tower make_tower(int32_t n_feature, const int32_t *feature, bool keep_cls) {
    tower t = {.cfg = {.has_vision = true,
                       .vision = {.d_model = D,
                                  .d_ffn = M,
                                  .n_layer = LAYERS,
                                  .n_head = 2,
                                  .d_head = D / 2,
                                  .image = SIDE,
                                  .patch = 4,
                                  .ln_eps = 1e-5f,
                                  .act = FV_ACT_QUICK_GELU},
                       .text = {.d_model = TEXT},
                       .n_feature_layer = n_feature,
                       .keep_cls = keep_cls,
                       .projector_act = FV_ACT_GELU}};
    float *at = store;
    memcpy(t.cfg.feature_layer, feature, (size_t)n_feature * sizeof *feature);
    t.w = (fv_vision_weights){.cls = take(&at, 1, D),
                              .patch = take(&at, D, 48),
                              .position = take(&at, P + 1, D),
                              .pre_norm = take(&at, 1, D),
                              .pre_norm_bias = take(&at, 1, D),
                              .layer = layers};
    for (int l = 0; l < LAYERS; l++)
        layers[l] = (fv_vision_layer){.norm1 = take(&at, 1, D),
                                      .norm1_bias = take(&at, 1, D),
                                      .norm2 = take(&at, 1, D),
                                      .norm2_bias = take(&at, 1, D),
                                      .q = take(&at, D, D),
                                      .k = take(&at, D, D),
                                      .v = take(&at, D, D),
                                      .o = take(&at, D, D),
                                      .q_bias = take(&at, 1, D),
                                      .k_bias = take(&at, 1, D),
                                      .v_bias = take(&at, 1, D),
                                      .o_bias = take(&at, 1, D),
                                      .fc1 = take(&at, M, D),
                                      .fc1_bias = take(&at, 1, M),
                                      .fc2 = take(&at, D, M),
                                      .fc2_bias = take(&at, 1, D)};
    t.p = (fv_projector_weights){.fc1 = take(&at, TEXT, D * n_feature),
                                 .fc1_bias = take(&at, 1, TEXT),
                                 .fc2 = take(&at, TEXT, TEXT),
                                 .fc2_bias = take(&at, 1, TEXT)};
    cr_assert_lt(at - store, 40000);
    return t;
}

typedef struct result {
    float features[MAX_ROWS * D * 3], embeds[MAX_ROWS * TEXT];
} result;

static void encode(const tower *t, const float *pixels, int32_t n, const char *isa, int32_t threads,
                   result *out) {
    fv_backend be;
    fv_vision *v;
    fv_backend_options opt = {.n_threads = threads, .isa = isa};
    int32_t rows = n * fv_model_visual_tokens(&t->cfg);
    cr_assert_eq(fv_backend_open(&be, "cpu", &opt), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_vision_open(&be, &t->cfg, &t->w, &t->p, &v), FV_OK);
    cr_assert_eq(fv_vision_encode(
                     v, pixels, n,
                     fv_tensor_of(out->features, FV_F32, rows, fv_vision_feature_width(&t->cfg)),
                     fv_tensor_of(out->embeds, FV_F32, rows, TEXT)),
                 FV_OK);
    fv_vision_close(v);
    fv_backend_close(&be);
}

static void make_pixels(float *pixels) {
    for (int i = 0; i < 3 * 3 * SIDE * SIDE; i++) pixels[i] = (float)((i * 37) % 101) / 50 - 1;
}

Test(vision, an_image_in_a_batch_gives_the_same_bits_as_alone) {
    static const int32_t feature[] = {2};
    static result batch, alone;
    float pixels[3 * 3 * SIDE * SIDE];
    tower t = make_tower(1, feature, false);
    make_pixels(pixels);
    encode(&t, pixels, 3, NULL, 2, &batch);
    for (int i = 0; i < 3; i++) {
        encode(&t, pixels + i * 3 * SIDE * SIDE, 1, "plain", 1, &alone);
        cr_assert_eq(memcmp(alone.embeds, batch.embeds + i * P * TEXT, P * TEXT * 4), 0);
        cr_assert_eq(memcmp(alone.features, batch.features + i * P * D, P * D * 4), 0);
    }
}

Test(vision, listed_hidden_states_stand_side_by_side) {
    static const int32_t both[] = {3, 0}, last[] = {3}, first[] = {0};
    static result ab, a, b;
    float pixels[3 * 3 * SIDE * SIDE];
    make_pixels(pixels);
    /* make_tower always draws into the same store, so all three share the tower's weights. */
    tower t = make_tower(2, both, false), ta = make_tower(1, last, false), tb = ta;
    memcpy(tb.cfg.feature_layer, first, sizeof first);
    encode(&t, pixels, 1, NULL, 1, &ab);
    encode(&ta, pixels, 1, NULL, 1, &a);
    encode(&tb, pixels, 1, NULL, 1, &b);
    for (int r = 0; r < P; r++) {
        cr_assert_eq(memcmp(ab.features + r * 2 * D, a.features + r * D, D * 4), 0);
        cr_assert_eq(memcmp(ab.features + r * 2 * D + D, b.features + r * D, D * 4), 0);
    }
}

Test(vision, strategy_full_keeps_the_class_row_in_front) {
    static const int32_t feature[] = {1};
    static result without, with;
    float pixels[3 * 3 * SIDE * SIDE];
    make_pixels(pixels);
    tower t = make_tower(1, feature, false), full = t;
    full.cfg.keep_cls = true;
    cr_assert_eq(fv_model_visual_tokens(&full.cfg), P + 1);
    encode(&t, pixels, 1, NULL, 1, &without);
    encode(&full, pixels, 1, NULL, 1, &with);
    cr_assert_eq(memcmp(with.features + D, without.features, P * D * 4), 0);
    cr_assert_eq(memcmp(with.embeds + TEXT, without.embeds, P * TEXT * 4), 0);
}
