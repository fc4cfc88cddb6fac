/* Gemma 4's tower, as far as it differs from others. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "common/convert.h"
#include "model/net/vision_internal.h"

/* ---- patches ------------------------------------------------------------------------------ */

void fv_vision_unfold_last(const fv_vision *v, fv_layout_size size, const int32_t *order,
                           const float *pixels, float *out) {
    const int32_t p = v->cfg->patch;
    const size_t plane = (size_t)size.w * (size_t)size.h;
    for (int32_t i = 0; i < fv_vision_patches(v); i++) {
        const int32_t top = order[i] / v->cols * p, left = order[i] % v->cols * p;
        for (int32_t k = 0; k < p * p; k++) {
            const float *at = pixels + (size_t)(top + k / p) * (size_t)size.w + (left + k % p);
            for (int32_t c = 0; c < 3; c++, at += plane)
                *out++ = v->cfg->centred ? 2 * (*at - 0.5F) : *at;
        }
    }
}

static fv_status norm(fv_vision *v, fv_tensor x, fv_tensor w, fv_tensor b) {
    fv_norm_args a = {.x = x, .w = w, .b = b, .y = x, .eps = v->cfg->ln_eps};
    return v->be->ops->norm(v->be, &a);
}

/* spare = the rows of the table for columns (axis 0) or rows (axis 1) of patches; x += that, or x =
 * that. */
static fv_status add_positions(fv_vision *v, const int32_t *order, int32_t axis, bool add,
                               fv_tensor spare, fv_tensor x) {
    const int32_t P = fv_vision_patches(v), n = v->cfg->position_axis;
    int32_t *ids;
    FV_TRY(FV_ARENA_NEW(&v->host, x.rows, ids));
    for (int32_t r = 0; r < x.rows; r++) {
        const int32_t at = order[r % P], i = axis ? at / v->cols : at % v->cols;
        ids[r] = v->cfg->position_pairs ? 2 * i + axis : axis * n + i;
    }
    fv_index_select_args pick = {.table = v->w.position, .y = add ? spare : x, .ids = ids};
    fv_activate_args sum = {.act = FV_ACT_NONE, .x = spare, .y = x, .accumulate = true};
    FV_TRY(v->be->ops->index_select(v->be, &pick));
    return add ? v->be->ops->activate(v->be, &sum) : FV_OK;
}

fv_status fv_vision_embed_axes(fv_vision *v, fv_tensor patches, const int32_t *order,
                               fv_tensor spare, fv_tensor x) {
    const bool norms = v->cfg->patch_norms;
    if (v->cols > v->cfg->position_axis || v->rows > v->cfg->position_axis)
        return FV_FAIL(FV_EINVAL,
                       "an image of %d x %d patches; the tower has positions for %d on a side: "
                       "send it in another size",
                       v->cols, v->rows, v->cfg->position_axis);
    if (norms) {
        FV_TRY(norm(v, patches, v->w.pixel_norm, v->w.pixel_norm_bias));
        FV_TRY(fv_vision_linear(v, patches, v->w.patch, v->w.patch_bias, x, false));
        FV_TRY(norm(v, x, v->w.patch_norm, v->w.patch_norm_bias));
    }
    FV_TRY(add_positions(v, order, 0, norms, spare, x));
    FV_TRY(add_positions(v, order, 1, true, spare, x));
    if (norms) return norm(v, x, v->w.sum_norm, v->w.sum_norm_bias);
    return fv_vision_linear(v, patches, v->w.patch, v->w.patch_bias, x, true);
}

/* ---- heads ---------------------------------------------------------------------------------- */

/* Norms each head of x. */
static fv_status norm_heads(fv_vision *v, fv_tensor x, fv_tensor w) {
    const int32_t D = v->cfg->d_head;
    assert(x.ld == x.cols);
    fv_tensor heads = fv_tensor_of(x.data, x.dtype, x.rows * (x.cols / D), D);
    fv_norm_args a = {.x = heads, .w = w, .y = heads, .eps = v->cfg->ln_eps, .rms = true};
    return v->be->ops->norm(v->be, &a);
}

/* Copies x to y with each head's quarters in the order 2, 0, 3, 1: the file rotates pairs of quarters 0
 * and 1 by a patch's column and of 2 and 3 by its row; the tower pairs halves, by row first. */
static fv_status rearrange(fv_vision *v, fv_tensor x, fv_tensor y) {
    const int32_t D = v->cfg->d_head, quarter = D / 4;
    static const int32_t from[4] = {2, 0, 3, 1};
    for (int32_t i = 0; i < 4; i++) {
        fv_activate_args a = {.act = FV_ACT_NONE};
        a.x = fv_tensor_of(x.data, x.dtype, x.rows * (x.cols / D), D);
        a.y = fv_tensor_of(y.data, y.dtype, a.x.rows, D);
        a.x.data = (char *)a.x.data + (size_t)(from[i] * quarter) * fv_dtype_bytes(x.dtype);
        a.y.data = (char *)a.y.data + (size_t)(i * quarter) * fv_dtype_bytes(y.dtype);
        a.x.cols = a.y.cols = quarter;
        FV_TRY(v->be->ops->activate(v->be, &a));
    }
    return FV_OK;
}

static void swap(fv_tensor *a, fv_tensor *b) {
    const fv_tensor t = *a;
    *a = *b;
    *b = t;
}

fv_status fv_vision_heads(fv_vision *v, const fv_vision_layer *w, fv_tensor *q, fv_tensor *k,
                          fv_tensor values, fv_tensor *o, fv_tensor *h) {
    FV_TRY(norm_heads(v, *q, w->q_norm));
    FV_TRY(norm_heads(v, *k, w->k_norm));
    FV_TRY(norm_heads(v, values, v->ones));
    FV_TRY(rearrange(v, *q, *o));
    FV_TRY(rearrange(v, *k, *h));
    swap(q, o);
    swap(k, h);
    return FV_OK;
}

/* ---- clipped linear layers ------------------------------------------------------------------- */

/* Rows of x within [low, high], into y. */
typedef struct clamping {
    fv_tensor x, y;
    float low, high;
} clamping;

static void clamp_row(void *arg, fv_backend *be, int32_t slot, int32_t i) {
    const clamping *c = arg;
    const float *x = fv_tensor_rows(c->x, i, 1).data;
    float *y = fv_tensor_rows(c->y, i, 1).data;
    (void)be;
    (void)slot;
    for (int32_t k = 0; k < c->x.cols; k++) {
        const float above = x[k] < c->low ? c->low : x[k];
        y[k] = above > c->high ? c->high : above;
    }
}

static fv_status clamp(fv_vision *v, fv_tensor x, fv_tensor low, fv_tensor high, fv_tensor y) {
    clamping c = {.x = x, .y = y};
    widen_row(low.data, low.dtype, 1, &c.low);
    widen_row(high.data, high.dtype, 1, &c.high);
    assert(x.dtype == FV_F32 && y.dtype == FV_F32);
    FV_TRY(v->be->ops->sync(v->be));
    if (c.low <= c.high) return fv_backend_each(v->be, x.rows, clamp_row, &c);
    return fv_fail_origin(FV_FAIL(FV_EDATA,
                                  "a linear layer of the vision tower is clipped between %g and "
                                  "%g: is the download damaged?",
                                  (double)c.low, (double)c.high),
                          FV_ORIGIN_CHECKPOINT);
}

fv_status fv_vision_linear_clipped(fv_vision *v, fv_tensor x, fv_tensor clipped, fv_tensor w,
                                   const fv_vision_clip *clip, fv_tensor y) {
    FV_TRY(clamp(v, x, clip->in_min, clip->in_max, clipped));
    FV_TRY(fv_vision_linear(v, clipped, w, (fv_tensor){0}, y, false));
    return clamp(v, y, clip->out_min, clip->out_max, y);
}

/* ---- means ---------------------------------------------------------------------------------- */

fv_status fv_vision_open_gemma4(fv_vision *v, fv_projector_weights *p) {
    const int32_t d = v->cfg->d_model, area = v->cfg->merge * v->cfg->merge;
    const size_t n = (size_t)d;
    float *made = v->made = malloc(4 * n * sizeof *made);
    if (!made) return FV_FAIL(FV_ENOMEM, "out of memory for the connector");
    for (size_t i = 0; i < n; i++) made[i] = 1, made[n + i] = sqrtf((float)d) / (float)area;
    p->norm = fv_tensor_of(made, FV_F32, 1, d);
    const fv_tensor ones = fv_tensor_of(made, FV_F32, 1, v->cfg->d_head),
                    mean = fv_tensor_of(made + n, FV_F32, 1, d);
    FV_TRY(fv_workspace_weight(&v->ws, &ones, &v->ones));
    FV_TRY(fv_workspace_weight(&v->ws, &mean, &v->mean));
    if (!v->cfg->standardize) return FV_OK;
    widen_row(p->std_bias.data, p->std_bias.dtype, n, made + 2 * n);
    for (size_t i = 0; i < n; i++) made[2 * n + i] = -made[2 * n + i];
    widen_row(p->std_scale.data, p->std_scale.dtype, n, made + 3 * n);
    p->std_bias = fv_tensor_of(made + 2 * n, FV_F32, 1, d);
    p->std_scale = fv_tensor_of(made + 3 * n, FV_F32, 1, d);
    return FV_OK;
}

/* features = (features - bias) * scale */
fv_status fv_vision_standardize(fv_vision *v, fv_tensor features) {
    fv_activate_args add = {
        .act = FV_ACT_NONE, .x = v->p.std_bias, .y = features, .accumulate = true};
    fv_activate_args scale = {
        .act = FV_ACT_NONE, .x = features, .gate = v->p.std_scale, .y = features};
    add.x.rows = scale.gate.rows = features.rows;
    add.x.ld = scale.gate.ld = 0;
    FV_TRY(v->be->ops->activate(v->be, &add));
    return v->be->ops->activate(v->be, &scale);
}
