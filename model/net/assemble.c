/* An image's tokens from its tiles' embeddings. Rows are copied unchanged, except in spans that the
 * layout scales: these are a few thousand rows once per image and are computed on the host.
 *
 * Scaling is torch.nn.functional.interpolate(mode="bilinear", align_corners=False) in f32, for each
 * column of the embeddings: output i of n_out lies at x = max((n_in / n_out) (i + 0.5) - 0.5, 0), and
 *     y_i = (1 - w) x_k + w x_{k+1},   k = floor(x), w = x - k,   x_{k+1} = x_k at the end
 * along columns first, then along rows. */
#include <assert.h>
#include <math.h>

#include "model/net/vision_internal.h"

/* Row of `tiles` for the token (y, x) of the span's grid before scaling. */
static int32_t row_at(const fv_vision *v, const fv_layout_span *s, int32_t y, int32_t x) {
    return fv_layout_tower_row(s, v->rows / v->cfg->merge, v->cols / v->cfg->merge, y, x);
}

typedef struct sample {
    int32_t k0, k1;
    float w0, w1;
} sample;

static sample sample_at(int32_t i, int32_t n_in, int32_t n_out) {
    if (n_in == n_out) return (sample){i, i, 1, 0};
    float x = fmaf((float)n_in / (float)n_out, (float)i + 0.5F, -0.5F); /* as PyTorch is compiled */
    if (x < 0) x = 0;
    int32_t k = (int32_t)x < n_in ? (int32_t)x : n_in - 1;
    float w = fminf(x - (float)k, 1);
    return (sample){k, k < n_in - 1 ? k + 1 : k, 1 - w, w};
}

/* Interpolates one token y between four neighbours. */
static void mix(const float *from, int32_t cols, int32_t d, sample down, sample across, float *y) {
    const float *row0 = from + (size_t)down.k0 * (size_t)cols * (size_t)d;
    const float *row1 = from + (size_t)down.k1 * (size_t)cols * (size_t)d;
    size_t left = (size_t)across.k0 * (size_t)d, right = (size_t)across.k1 * (size_t)d;
    for (int32_t c = 0; c < d; c++, left++, right++) {
        float upper = row0[left] * across.w0 + row0[right] * across.w1;
        float lower = row1[left] * across.w0 + row1[right] * across.w1;
        y[c] = upper * down.w0 + lower * down.w1;
    }
}

/* Copies a span's crop of the mosaic, [crop_h * crop_w, d], to the host. */
static fv_status bring_crop(fv_vision *v, const fv_layout_span *s, fv_tensor tiles, float **out) {
    fv_device *dev = v->be->device;
    int32_t n = s->crop_h * s->crop_w, *ids;
    FV_TRY(FV_ARENA_NEW(&v->host, n, ids));
    FV_TRY(FV_ARENA_NEW(&v->host, (size_t)n * (size_t)tiles.cols, *out));
    for (int32_t i = 0; i < n; i++) ids[i] = row_at(v, s, i / s->crop_w, i % s->crop_w);
    FV_TRY(fv_workspace_reset(&v->ws, fv_workspace_need(FV_F32, n, tiles.cols)));
    fv_tensor crop = fv_workspace_cut(&v->ws, FV_F32, n, tiles.cols);
    fv_index_select_args a = {.table = tiles, .y = crop, .ids = ids};
    FV_TRY(v->be->ops->index_select(v->be, &a));
    FV_TRY(
        dev->ops->copy_async(dev, *out, crop.data, (size_t)n * (size_t)crop.cols * sizeof **out));
    return v->be->ops->sync(v->be);
}

/* Fills rows [h, w, d] of a span whose grid is scaled to w tokens a line. */
static fv_status put_scaled(fv_vision *v, const fv_layout_span *s, int32_t w, fv_tensor tiles,
                            fv_tensor rows) {
    fv_device *dev = v->be->device;
    float *crop, *made;
    size_t d = (size_t)tiles.cols, stride = (size_t)s->w;
    FV_TRY(bring_crop(v, s, tiles, &crop));
    FV_TRY(FV_ARENA_NEW(&v->host, (size_t)s->h * (size_t)w * d, made));
    for (int32_t y = 0; y < s->h; y++) {
        float *line = made + (size_t)y * (size_t)w * d;
        sample down = sample_at(y, s->crop_h, s->h);
        for (int32_t x = 0; x < w; x++)
            mix(crop, s->crop_w, tiles.cols, down, sample_at(x, s->crop_w, w),
                line + (size_t)x * d);
        FV_TRY(dev->ops->copy_async(dev, (float *)rows.data + (size_t)y * stride * d, line,
                                    (size_t)w * d * sizeof *line));
    }
    return v->be->ops->sync(v->be); /* the next call frees the host's memory */
}

/* Copies rows line by line where a newline column makes rows wider than the grid. */
static fv_status put_copied(fv_vision *v, const fv_layout_span *s, int32_t w, fv_tensor tiles,
                            fv_tensor rows) {
    int32_t *ids;
    FV_TRY(FV_ARENA_NEW(&v->host, (size_t)s->h * (size_t)w, ids));
    for (int32_t y = 0; y < s->h; y++)
        for (int32_t x = 0; x < w; x++) ids[y * w + x] = row_at(v, s, y, x);
    if (w == s->w) {
        fv_index_select_args all = {
            .table = tiles, .y = fv_tensor_rows(rows, 0, s->h * w), .ids = ids};
        return v->be->ops->index_select(v->be, &all);
    }
    for (int32_t y = 0; y < s->h; y++) {
        fv_index_select_args a = {
            .table = tiles, .y = fv_tensor_rows(rows, y * s->w, w), .ids = ids + y * w};
        FV_TRY(v->be->ops->index_select(v->be, &a));
    }
    return FV_OK;
}

/* Writes the newline embedding to n rows that are `apart` rows apart. */
static fv_status put_newlines(fv_vision *v, fv_tensor rows, int32_t n, int32_t apart) {
    int32_t *ids;
    FV_TRY(FV_ARENA_NEW(&v->host, n, ids));
    for (int32_t i = 0; i < n; i++) ids[i] = 0;
    rows.rows = n;
    rows.ld *= apart;
    fv_index_select_args a = {.table = v->p.newline, .y = rows, .ids = ids};
    return v->be->ops->index_select(v->be, &a);
}

static fv_status put_span(fv_vision *v, const fv_layout_span *s, fv_tensor tiles, fv_tensor rows) {
    int32_t w = s->w - s->newline_column, at = 0;
    if (s->class_token) {
        int32_t id = s->tile * fv_vision_tokens(v->cfg);
        fv_index_select_args a = {.table = tiles, .y = fv_tensor_rows(rows, 0, 1), .ids = &id};
        FV_TRY(v->be->ops->index_select(v->be, &a));
        at = 1;
    }
    fv_tensor grid = fv_tensor_rows(rows, at, s->h * s->w);
    if (s->crop_h == s->h && s->crop_w == w)
        FV_TRY(put_copied(v, s, w, tiles, grid));
    else
        FV_TRY(put_scaled(v, s, w, tiles, grid));
    if (s->newline_column) FV_TRY(put_newlines(v, fv_tensor_rows(grid, w, 1), s->h, s->w));
    if (s->newline_end) return put_newlines(v, fv_tensor_rows(rows, at + s->h * s->w, 1), 1, 1);
    return FV_OK;
}

/* Checks that the layout's tiles fit this tower: a layout comes from configuration files. */
static fv_status check(const fv_vision *v, const fv_layout *l, fv_tensor tiles) {
    int32_t rows = v->rows / v->cfg->merge, cols = v->cols / v->cfg->merge;
    int32_t each = fv_vision_tokens_of(v->cfg, l->tile.w, l->tile.h);
    if (tiles.rows != l->n_tile * each)
        return FV_FAIL(FV_EINVAL, "expected %d tiles x %d tokens, got %d embeddings", l->n_tile,
                       each, tiles.rows);
    for (int32_t i = 0; i < l->n_span; i++) {
        const fv_layout_span *s = &l->span[i];
        if ((s->newline_column || s->newline_end) && !v->p.newline.data)
            return FV_FAIL(FV_EINVAL, "the layout has newlines, and the checkpoint has none");
        if (s->tile + s->rows * s->cols > l->n_tile || s->crop_y + s->crop_h > s->rows * rows ||
            s->crop_x + s->crop_w > s->cols * cols || s->class_token != v->cfg->keep_cls)
            return FV_FAIL(FV_EINVAL,
                           "the layout's span %d reads beyond %d x %d tiles of %d x %d tokens", i,
                           s->rows, s->cols, rows, cols);
    }
    return FV_OK;
}

fv_status fv_vision_assemble(fv_vision *v, const fv_layout *l, fv_tensor tiles, fv_tensor rows) {
    assert(rows.rows == l->n_visual && rows.cols == tiles.cols && rows.ld == rows.cols);
    if (v->cfg->any_size) v->rows = l->tile.h / v->cfg->patch, v->cols = l->tile.w / v->cfg->patch;
    FV_TRY(check(v, l, tiles));
    fv_arena_reset(&v->host);
    for (int32_t i = 0, at = 0; i < l->n_span; at += l->span[i++].n)
        FV_TRY(put_span(v, &l->span[i], tiles, fv_tensor_rows(rows, at, l->span[i].n)));
    return v->be->ops->sync(v->be);
}
