/* model/net/vision.c: batches, threads and paths change no bit, and the right hidden states become
 * features. Values are compared with transformers by the engine's goldens. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backends/open.h"
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

Test(vision, listed_hidden_states_stand_side_by_side) {
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

Test(vision, strategy_full_keeps_the_class_row_in_front) {
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
    fv_status st = fv_vision_encode(v, pixels, n, &(fv_vision_out){.capture = &to});
    fv_vision_close(v);
    fv_backend_close(&be);
    return st;
}

Test(vision, a_layer_behind_the_features_shows_what_it_would_if_it_ran) {
    static const int32_t one[] = {1}, all[] = {3};
    static captured behind, inside;
    float pixels[3 * TOWER_PIXELS];
    tiny_tower_pixels(pixels, 3);
    tower t = tiny_tower_make(1, all, false), shorter = t;
    memcpy(shorter.cfg.feature_layer, one, sizeof one);
    cr_assert_eq(capture(&t, pixels, 3, 1, NULL, &inside), FV_OK);
    cr_assert_eq(capture(&shorter, pixels, 3, 1, "plain", &behind), FV_OK);
    cr_assert_eq(memcmp(&inside, &behind, sizeof inside), 0);
    cr_assert_eq(capture(&shorter, pixels + TOWER_PIXELS, 1, 1, NULL, &behind), FV_OK);
    cr_assert_eq(memcmp(behind.q, inside.q + D, D * 4), 0, "an image alone");
    cr_assert_eq(memcmp(behind.k, inside.k + (P + 1) * D, (P + 1) * D * 4), 0);
}

Test(vision, a_layer_that_the_checkpoint_does_not_have_is_refused) {
    static const int32_t all[] = {3};
    static captured out;
    float pixels[3 * TOWER_PIXELS];
    tiny_tower_pixels(pixels, 3);
    tower t = tiny_tower_make(1, all, false);
    cr_assert_eq(capture(&t, pixels, 1, 3, NULL, &out), FV_EUNSUPPORTED);
    cr_assert(strstr(fv_last_error(), "does not have"), "%s", fv_last_error());
}
