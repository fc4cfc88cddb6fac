/* A tower for tests. */
#include "tests/support/tiny_tower.h"

#include <assert.h>
#include <string.h>

enum {
    D = TOWER_D,
    M = TOWER_M,
    LAYERS = TOWER_LAYERS,
    P = TOWER_P,
    SIDE = TOWER_SIDE,
    TEXT = TOWER_TEXT
};

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

tiny_tower tiny_tower_make(int32_t n_feature, const int32_t *feature, bool keep_cls) {
    tiny_tower t = {.cfg = {.d_model = D,
                            .d_ffn = M,
                            .n_layer = LAYERS,
                            .n_head = 2,
                            .d_head = D / 2,
                            .image = SIDE,
                            .patch = 4,
                            .ln_eps = 1e-5f,
                            .act = FV_ACT_QUICK_GELU,
                            .class_token = true,
                            .pre_norm = true,
                            .merge = 1,
                            .n_feature_layer = n_feature,
                            .keep_cls = keep_cls,
                            .projector_act = FV_ACT_GELU,
                            .d_text = TEXT}};
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
    assert(at - store < 40000);
    return t;
}

void tiny_tower_pixels(float *pixels, int32_t n) {
    for (int32_t i = 0; i < n * TOWER_PIXELS; i++) pixels[i] = (float)((i * 37) % 101) / 50 - 1;
}
