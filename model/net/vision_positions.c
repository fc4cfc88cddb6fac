/* Interpolates a tower's table of positions, a grid of side x side vectors, for the patches of a
 * tile. Weights are in f32, as in transformers.
 *
 *   bilinear  the corners of the tile are those of the grid (Qwen3-VL); or patch j of n is at
 *             x = max(((j + 0.5) / n) side - 0.5, 0) (PaddleOCR-VL), as in
 *             torch.nn.functional.interpolate(align_corners=False)
 *   bicubic   patch j of n is at x = ((j + 0.5) / n) side - 0.5; with k = floor(x), t = x - k and
 *             a = -0.75, positions k - 1 .. k + 2, those beyond the edge being the edge's, weigh
 *                 w(t + 1), u(t), u(1 - t), w(2 - t)
 *                 u(z) = ((a + 2) z - (a + 3)) z^2 + 1;   w(z) = ((a z - 5 a) z + 8 a) z - 4 a
 *             as in torch.nn.functional.grid_sample(padding_mode="border") (GLM) */
#include <math.h>

#include "model/net/vision_internal.h"

enum { TAPS = 4 };

typedef struct sample {
    int32_t n, at[TAPS];
    float weight[TAPS];
} sample;

static sample linear_sample(int32_t i, int32_t n, int32_t side) {
    const float x = (float)i * (float)(side - 1) / (float)(n > 1 ? n - 1 : 1);
    const int32_t k = (int32_t)x;
    const float t = x - (float)k;
    return (sample){2, {k, k + 1 < side ? k + 1 : k}, {1 - t, t}};
}

static sample middle_sample(int32_t i, int32_t n, int32_t side) {
    const float x = fmaxf((float)side / (float)n * ((float)i + 0.5F) - 0.5F, 0);
    const int32_t k = (int32_t)x < side ? (int32_t)x : side - 1;
    const float t = x - (float)k;
    return (sample){2, {k, k + 1 < side ? k + 1 : k}, {1 - t, t}};
}

static float inner(float z) {
    const float a = -0.75F;
    return ((a + 2) * z - (a + 3)) * z * z + 1;
}

static float outer(float z) {
    const float a = -0.75F;
    return ((a * z - 5 * a) * z + 8 * a) * z - 4 * a;
}

static sample cubic_sample(int32_t i, int32_t n, int32_t side) {
    const float from_middle = ((float)i + 0.5F) / (float)n * 2 - 1;
    const float x = ((from_middle + 1) * (float)side - 1) / 2, k = floorf(x), t = x - k;
    sample s = {TAPS, {0}, {outer(t + 1), inner(t), inner(1 - t), outer(2 - t)}};
    for (int32_t j = 0; j < TAPS; j++) {
        const int32_t at = (int32_t)k + j - 1;
        s.at[j] = at < 0 ? 0 : at < side ? at : side - 1;
    }
    return s;
}

/* y [d] = the weighted sum of the grid's vectors: row after row. */
static void mix(const float *grid, int32_t side, size_t d, const sample *down, const sample *across,
                float *y) {
    for (size_t c = 0; c < d; c++) y[c] = 0;
    for (int32_t i = 0; i < down->n; i++)
        for (int32_t j = 0; j < across->n; j++) {
            const float *from = grid + (size_t)(down->at[i] * side + across->at[j]) * d;
            const float w = down->weight[i] * across->weight[j];
            for (size_t c = 0; c < d; c++) y[c] += from[c] * w;
        }
}

fv_status fv_vision_positions(fv_vision *v, const int32_t *order, int32_t n, fv_tensor rows) {
    fv_device *dev = v->be->device;
    const int32_t side = v->cfg->position_side, P = fv_vision_patches(v);
    const size_t d = (size_t)v->cfg->d_model;
    sample (*at)(int32_t i, int32_t n, int32_t grid) = v->cfg->position_cubic    ? cubic_sample
                                                       : v->cfg->position_middle ? middle_sample
                                                                                 : linear_sample;
    float *made;
    FV_TRY(FV_ARENA_NEW(&v->host, (size_t)P * d, made));
    for (int32_t i = 0; i < P; i++) {
        const int32_t y = order[i] / v->cols, x = order[i] % v->cols;
        const sample down = at(y, v->rows, side), across = at(x, v->cols, side);
        mix(v->grid, side, d, &down, &across, made + (size_t)i * d);
    }
    for (int32_t i = 0; i < n; i++)
        FV_TRY(dev->ops->copy_async(dev, fv_tensor_rows(rows, i * P, P).data, made,
                                    (size_t)P * d * sizeof *made));
    return FV_OK;
}
