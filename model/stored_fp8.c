/* FP8: weights in E4M3, with scales of blocks, channels or the whole tensor.
 *
 *     finegrained_fp8     X.weight F8_E4M3 [N, K]   X.weight_scale_inv [N / block[0], K / block[1]], rounded up
 *     compressed-tensors  X.weight F8_E4M3 [N, K]   X.weight_scale [N, 1], [1] or of blocks
 *     number[n, k] = scale * weight[n, k]
 *
 * weight_scale_inv is the scale, whatever its name says. Scales are F32, BF16, F16 or powers of two (F8_E8M0).
 * Weights are read where they lie in the file; scales are spread over the rows of their block. Activations are
 * not quantized, so scales of activations are not used. */
#include <math.h>

#include "kernels/number_tables.h"
#include "model/stored_internal.h"

enum { WEIGHT, SCALE_INV, SCALE };

static int scale_part(const fv_stored_weight *w) { return w->part[SCALE_INV] ? SCALE_INV : SCALE; }

static int64_t blocks_of(int64_t n, int32_t block) { return (n + block - 1) / block; }

/* Rows and columns that share a scale. */
typedef struct grid {
    int64_t rows, cols; /* of scales */
    int32_t high, wide; /* of a block */
} grid;

static bool is_power(const fv_safetensors_entry *t) { return strcmp(t->dtype, "F8_E8M0") == 0; }

/* Finds out from the shape of the scales what shares one. */
static bool read_grid(const fv_stored_weight *w, const fv_tensor_spec *e, grid *g) {
    const fv_safetensors_entry *t = w->part[scale_part(w)];
    const int32_t N = (int32_t)e->shape[0], K = (int32_t)e->shape[1];
    const int32_t *block = w->config->block;
    const size_t size = is_power(t) ? 1 : fv_dtype_bytes(fv_stored_scale_type(w, scale_part(w)));
    const int64_t n = (int64_t)(t->bytes / size);
    *g = (grid){1, 1, N, K};
    if (n == 1) return true;
    if (n == N && (t->n_dim == 1 || t->shape[t->n_dim - 1] == 1)) {
        *g = (grid){N, 1, 1, K};
        return true;
    }
    if (!block[0] || t->n_dim != 2) return false;
    *g = (grid){blocks_of(N, block[0]), blocks_of(K, block[1]), block[0], block[1]};
    return t->shape[0] == g->rows && t->shape[1] == g->cols;
}

static fv_status place(fv_stored_weight *w, const fv_tensor_spec *e, fv_arena *arena) {
    const int64_t N = e->shape[0], K = e->shape[1];
    FV_TRY(fv_stored_expect(w, WEIGHT, "F8_E4M3", N, K));
    FV_TRY(fv_stored_need(w, scale_part(w)));
    const fv_safetensors_entry *t = w->part[scale_part(w)];
    fv_dtype type = FV_F32;
    grid g;
    bool known = fv_safetensors_dtype(t->dtype, &type) || is_power(t);
    if (!known || !read_grid(w, e, &g))
        return FV_FAIL(
            FV_EDATA,
            "tensor '%s' in %s (fp8) has dtype %s and %d dimensions; scales must be F32, "
            "BF16, F16 or F8_E8M0, one for the tensor, for a row, or for a block of "
            "weight_block_size (%d x %d) in config.json",
            t->name, w->file, t->dtype, t->n_dim, w->config->block[0], w->config->block[1]);
    if (g.cols > 1 && g.wide % 32)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "tensor '%s' in %s (fp8): blocks of %d columns; a multiple of 32 is read",
                       t->name, w->file, g.wide);
    return fv_stored_lay(w, e, arena,
                         &(fv_stored_layout){.dtype = FV_INT8,
                                             .group = g.cols > 1 ? g.wide : 0,
                                             .scale_type = is_power(t) ? FV_F32 : type,
                                             .table = fv_e4m3,
                                             .borrowed = w->part[WEIGHT]->data});
}

/* Writes scale i of the file as scale `at` of the view. */
static float put_scale(const fv_stored_weight *w, const fv_safetensors_entry *t, size_t i,
                       size_t at) {
    if (!is_power(t)) return fv_stored_copy_scale(w, t, i, at);
    const uint8_t e = fv_stored_u8(t, i);
    const float scale = e == 255 ? NAN : ldexpf(1.0f, (int)e - 127);
    return ((float *)(uintptr_t)w->quant->scale)[at] = scale;
}

/* Returns whether no code is NaN. */
static bool is_finite(const uint8_t *code, size_t n) {
    unsigned hit = 0;
    for (size_t i = 0; i < n; i++) hit |= (code[i] & 0x7f) == 0x7f;
    return !hit;
}

static bool fill(const fv_stored_weight *w) {
    const fv_safetensors_entry *t = w->part[scale_part(w)];
    const size_t rows = (size_t)w->view.rows, groups = (size_t)w->quant->groups;
    fv_tensor_spec e = {.shape = {w->view.rows, w->view.cols}};
    grid of;
    float poison = 0.0f;
    (void)read_grid(w, &e, &of);
    for (size_t n = 0; n < rows; n++)
        for (size_t g = 0; g < groups; g++)
            poison += put_scale(w, t, n / (size_t)of.high * groups + g, n * groups + g) * 0.0f;
    return !isnan(poison) && is_finite(w->view.data, rows * (size_t)w->view.cols);
}

const fv_stored_form fv_stored_fp8 = {
    .name = "fp8",
    .methods = 1 << FV_STORED_FP8 | 1 << FV_STORED_COMPRESSED,
    .part = {"weight", "weight_scale_inv", "weight_scale", "input_scale", "activation_scale"},
    .dtype = "F8_E4M3",
    .place = place,
    .fill = fill};
