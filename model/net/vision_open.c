/* Opens a tower: tensors are views of the weights; columns and positions are reordered as the tower
 * reads them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/convert.h"
#include "model/net/vision_internal.h"

static fv_status load_tensors(fv_workspace *ws, const void *in, void *out, size_t bytes) {
    const fv_tensor *from = in;
    fv_tensor *to = out;
    for (size_t i = 0; i < bytes / sizeof *from; i++)
        FV_TRY(fv_workspace_weight(ws, &from[i], &to[i]));
    return FV_OK;
}

/* Reorders columns (channel, y, x) -> (y, x, channel), the order of features. */
static fv_status reorder_merger(fv_vision *v, fv_tensor *w) {
    size_t size = fv_dtype_bytes(w->dtype), d = (size_t)v->cfg->d_model;
    size_t area = (size_t)v->cfg->merge * (size_t)v->cfg->merge, n = (size_t)w->rows;
    char *to = v->merger = malloc(n * area * d * size);
    if (!to) return FV_FAIL(FV_ENOMEM, "out of memory for the connector");
    const char *row = w->data;
    for (size_t r = 0; r < n; r++, row += area * d * size)
        for (size_t a = 0; a < area; a++)
            for (size_t c = 0; c < d; c++, to += size)
                memcpy(to, row + (c * area + a) * size, size);
    w->data = v->merger;
    return FV_OK;
}

/* Transposes fc1 [d, d_text] -> [d_text, d]; adds 1 to the norm's w. */
static fv_status make_means(fv_vision *v, fv_projector_weights *p) {
    size_t size = fv_dtype_bytes(p->fc1.dtype), d = (size_t)p->fc1.rows, n = (size_t)p->fc1.cols;
    char *to = v->merger = malloc(n * d * size);
    float *made = v->made = malloc(2 * d * sizeof *made);
    if (!to || !made) return FV_FAIL(FV_ENOMEM, "out of memory for the connector");
    for (size_t r = 0; r < n; r++)
        for (size_t c = 0; c < d; c++, to += size)
            memcpy(to, (const char *)p->fc1.data + (c * n + r) * size, size);
    p->fc1 = fv_tensor_of(v->merger, p->fc1.dtype, (int32_t)n, (int32_t)d);
    widen_row(p->norm.data, p->norm.dtype, d, made);
    for (size_t i = 0; i < d; i++) {
        made[i] += 1.0f;
        made[d + i] = 1.0f / (float)(v->cfg->merge * v->cfg->merge);
    }
    p->norm = fv_tensor_of(made, FV_F32, 1, (int32_t)d);
    fv_tensor mean = fv_tensor_of(made + d, FV_F32, 1, (int32_t)d);
    return fv_workspace_weight(&v->ws, &mean, &v->mean);
}

/* Expands the depthwise kernel [d, 9] -> [9, S d], each weight repeated for the S tokens of a
 * tile's row, with 1 added in the middle for the residual. */
static fv_status make_peg(fv_vision *v, fv_projector_weights *p) {
    enum { MIDDLE = 4, TAPS = 9 };
    size_t d = (size_t)p->peg.rows, side = (size_t)(fv_vision_side(v->cfg) / v->cfg->merge);
    size_t row = side * d, n = TAPS * row;
    float *made = v->made = malloc((n + 2 * d) * sizeof *made),
          *kernel = malloc(TAPS * d * sizeof *kernel);
    if (!made || !kernel) {
        free(kernel);
        return FV_FAIL(FV_ENOMEM, "out of memory for the connector");
    }
    widen_row(p->peg.data, p->peg.dtype, TAPS * d, kernel);
    for (size_t t = 0; t < TAPS; t++)
        for (size_t i = 0; i < row; i++)
            made[t * row + i] = kernel[i % d * TAPS + t] + (t == MIDDLE ? 1.0f : 0.0f);
    free(kernel);
    widen_row(p->peg_bias.data, p->peg_bias.dtype, d, made + n);
    for (size_t i = 0; i < d; i++) made[n + d + i] = 1.0f / (float)(v->cfg->merge * v->cfg->merge);
    p->peg = fv_tensor_of(made, FV_F32, TAPS, (int32_t)row);
    p->peg_bias = fv_tensor_of(made + n, FV_F32, 1, (int32_t)d);
    fv_tensor mean = fv_tensor_of(made + n + d, FV_F32, 1, (int32_t)d);
    return fv_workspace_weight(&v->ws, &mean, &v->mean);
}

/* Makes q, k and v views of the fused tensor's rows. */
static void split_qkv(fv_vision_layer *w) {
    fv_tensor *part[] = {&w->q, &w->k, &w->v}, *bias[] = {&w->q_bias, &w->k_bias, &w->v_bias};
    int32_t d = w->qkv.cols;
    for (int32_t i = 0; w->qkv.data && i < 3; i++) {
        *part[i] = fv_tensor_rows(w->qkv, i * d, d);
        if (!w->qkv_bias.data) continue;
        *bias[i] = w->qkv_bias;
        bias[i]->cols = bias[i]->ld = d;
        bias[i]->data =
            (char *)w->qkv_bias.data + (size_t)(i * d) * fv_dtype_bytes(w->qkv_bias.dtype);
    }
    w->qkv = w->qkv_bias = (fv_tensor){0};
}

static fv_status load_weights(fv_vision *v, const fv_vision_weights *tower,
                              const fv_projector_weights *projector) {
    int32_t n_layer = v->n_layer;
    if (n_layer < v->cfg->n_layer) n_layer++; /* one more, for captures */
    v->w.layer = calloc((size_t)v->n_layer + 1, sizeof *v->w.layer);
    if (!v->w.layer) return FV_FAIL(FV_ENOMEM, "out of memory for the list of layers");
    FV_TRY(load_tensors(&v->ws, tower, &v->w, offsetof(fv_vision_weights, layer)));
    for (int32_t l = 0; l < n_layer; l++) {
        fv_vision_layer layer = tower->layer[l];
        split_qkv(&layer);
        FV_TRY(load_tensors(&v->ws, &layer, &v->w.layer[l], sizeof layer));
    }
    v->w.deepstack = calloc((size_t)v->cfg->n_deepstack + 1, sizeof *v->w.deepstack);
    if (!v->w.deepstack) return FV_FAIL(FV_ENOMEM, "out of memory for the list of connectors");
    for (int32_t i = 0; i < v->cfg->n_deepstack; i++)
        FV_TRY(load_tensors(&v->ws, &tower->deepstack[i], &v->w.deepstack[i],
                            sizeof *tower->deepstack));
    fv_projector_weights p = *projector;
    if (v->cfg->patch_merger || v->cfg->connector == FV_CONNECTOR_GLM)
        FV_TRY(reorder_merger(v, &p.merger));
    if (v->cfg->mean_pool) FV_TRY(make_means(v, &p));
    if (v->cfg->connector == FV_CONNECTOR_LDP) FV_TRY(make_peg(v, &p));
    if (v->cfg->projector_plain) FV_TRY(fv_vision_open_gemma4(v, &p));
    return load_tensors(&v->ws, &p, &v->p, sizeof p);
}

/* Boundary k of torch.arange(1 / n, 1, 1 / n), which has n_all: each is computed in double, then
 * rounded; PyTorch computes whole groups of 16 as two vectors of 8, each from a rounded start. */
static float boundary(int32_t n, int32_t n_all, int32_t k) {
    double step = 1.0 / n;
    if (k >= n_all / 16 * 16) return (float)(step + k * step);
    float first = (float)(step + k / 8 * 8 * step);
    return (float)((double)first + k % 8 * step);
}

int32_t fv_vision_bucket(int32_t n, int32_t i) {
    int32_t n_all = (int32_t)ceil((1.0 - 1.0 / n) / (1.0 / n)), k = 0;
    float at = fminf((float)i * (1.0F / (float)n), (float)(1.0 - 1e-6));
    while (k < n_all && boundary(n, n_all, k) <= at) k++;
    return k;
}

/* Widens the table of positions to f32. */
static fv_status make_grid(fv_vision *v, const fv_tensor *table) {
    size_t n = (size_t)table->rows * (size_t)table->cols;
    if (v->cfg->position_side == 0) return FV_OK;
    v->grid = malloc(n * sizeof *v->grid);
    if (!v->grid) return FV_FAIL(FV_ENOMEM, "out of memory for the tower's positions");
    widen_row(table->data, table->dtype, n, v->grid);
    return FV_OK;
}

/* Computes the row of the position table for each row of a tile. */
static fv_status make_positions(fv_vision *v) {
    int32_t side = fv_vision_side(v->cfg), first = v->cfg->class_token;
    v->rows = v->cols = side;
    if (v->cfg->any_size) return FV_OK;
    v->position = calloc((size_t)fv_vision_rows(v), sizeof *v->position);
    if (!v->position) return FV_FAIL(FV_ENOMEM, "out of memory for the tower's positions");
    for (int32_t i = 0; i < fv_vision_patches(v); i++) {
        int32_t y = i / side, x = i % side;
        if (v->cfg->bucket_position) y = fv_vision_bucket(side, y), x = fv_vision_bucket(side, x);
        v->position[first + i] = first + y * side + x;
    }
    return FV_OK;
}

fv_status fv_vision_open(fv_backend *be, const fv_vision_config *cfg,
                         const fv_vision_weights *tower, const fv_projector_weights *projector,
                         fv_vision **out) {
    if (cfg->clipped && be->device != fv_device_host())
        return FV_FAIL(FV_EUNSUPPORTED,
                       "the vision tower's linear layers are clipped, which %s does not compute: "
                       "use --device cpu",
                       be->ops->name);
    fv_vision *v = calloc(1, sizeof *v);
    if (!v) return FV_FAIL(FV_ENOMEM, "out of memory for the vision tower");
    *v = (fv_vision){.be = be, .cfg = cfg, .ws = {.be = be}};
    for (int32_t i = 0; i < cfg->n_feature_layer; i++)
        if (cfg->feature_layer[i] > v->n_layer) v->n_layer = cfg->feature_layer[i];
    fv_status st = load_weights(v, tower, projector);
    if (st == FV_OK) st = make_positions(v);
    if (st == FV_OK) st = make_grid(v, &tower->position);
    if (st != FV_OK) {
        fv_vision_close(v);
        return st;
    }
    *out = v;
    return FV_OK;
}

void fv_vision_close(fv_vision *v) {
    if (!v) return;
    fv_workspace_fini(&v->ws);
    fv_arena_fini(&v->host);
    free(v->w.layer);
    free(v->w.deepstack);
    free(v->grid);
    free(v->position);
    free(v->merger);
    free(v->made);
    free(v);
}
