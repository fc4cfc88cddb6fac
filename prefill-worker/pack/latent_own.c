/* Directions that a request adds to those of the checkpoint: see own.h. Matrices are built whole, one at a
 * time. */
#include <math.h>
#include <string.h>

#include "model/net/row_matrix.h"
#include "prefill-worker/pack/latents.h"

/* Builds M [n, W] of one layer's keys, before rotation, or values. */
static fv_status matrix_of(const fv_pack_context *ctx, const fv_pack_job *job, int kind,
                           fv_tensor *m) {
    const fv_pack_layer *l = job->state;
    FV_TRY(fv_pack_layer_matrix(ctx, job, (fv_packed_kind)kind, m));
    if (kind == FV_PACKED_V) return FV_OK;
    return fv_rows_rotate(ctx->matrices, ctx->rope, fv_kv_rope_map(ctx->kv), l->pos, true,
                          fv_kv_get_shape(ctx->kv)->n_kv, *m);
}

/* Processes a matrix of layer i of the group. */
typedef fv_status visit_fn(const fv_pack_context *ctx, fv_latents *x, int32_t i, int kind,
                           fv_tensor *m);

/* e = M - M~ on the host, M~ the mean plus z B; *square: ||M||^2. The row that stays exact has e = 0 and is
 * written to its part here. */
static fv_status residual(const fv_pack_context *ctx, const fv_latents *x, int32_t i, int kind,
                          fv_tensor *m, float **e, double *square) {
    const fv_pack_layer *to = x->first[i].state;
    const float *mean = x->layer[i].mean[kind];
    size_t W = (size_t)m->cols;
    float *rows, *at;
    fv_matmul_nn_args a = {0};
    FV_TRY(fv_matrix_send(ctx->matrices, x->z, m->rows, x->R, &a.x));
    FV_TRY(fv_matrix_send(ctx->matrices, x->layer[i].decode[kind], x->R, m->cols, &a.w));
    FV_TRY(fv_matrix_new(ctx->matrices, m->rows, m->cols, &a.y));
    FV_TRY(ctx->be->ops->matmul_nn(ctx->be, &a));
    FV_TRY(fv_matrix_fetch(ctx->matrices, &a.y, e));
    FV_TRY(fv_matrix_fetch(ctx->matrices, m, &rows));
    *square = 0;
    at = *e;
    for (int32_t j = 0; j < m->rows; j++, rows += W, at += W) {
        for (size_t c = 0; c < W; c++) {
            *square += (double)rows[c] * (double)rows[c];
            at[c] = j == x->exact ? 0 : (rows[c] - mean[c]) - at[c];
        }
        if (j == x->exact) fv_latent_write_exact(&to->shape[kind], rows, to->data[kind]);
    }
    return FV_OK;
}

static fv_status add_residual(const fv_pack_context *ctx, fv_latents *x, int32_t i, int kind,
                              fv_tensor *m) {
    double square;
    fv_tensor e;
    float *numbers;
    FV_TRY(residual(ctx, x, i, kind, m, &numbers, &square));
    FV_TRY(fv_matrix_send(ctx->matrices, numbers, m->rows, m->cols, &e));
    return fv_own_add_matrix(&x->own, ctx->matrices, &e, x->weight[2 * i + kind]);
}

/* Fits and writes a part's own directions, and reports the remaining error. */
static fv_status fit_directions(const fv_pack_context *ctx, fv_latents *x, int32_t i, int kind,
                                fv_tensor *m) {
    const fv_pack_layer *l = x->first[i].state;
    size_t r = (size_t)x->own.r, W = (size_t)m->cols;
    double square, off = 0;
    fv_tensor e;
    float *numbers, *o;
    FV_TRY(residual(ctx, x, i, kind, m, &numbers, &square));
    FV_TRY(fv_matrix_send(ctx->matrices, numbers, m->rows, m->cols, &e));
    FV_TRY(FV_ARENA_NEW(ctx->scratch, r * W, o));
    FV_TRY(fv_own_directions(&x->own, ctx->matrices, &e, o));
    fv_latent_write_directions(&l->shape[kind], o, l->data[kind]);
    for (size_t j = 0; j < (size_t)m->rows; j++)
        for (size_t d = 0; d < r; d++)
            for (size_t c = 0; c < W; c++)
                numbers[j * W + c] = fmaf(-x->own.u[j * r + d], o[d * W + c], numbers[j * W + c]);
    for (size_t n = 0; n < (size_t)m->rows * W; n++) off += (double)numbers[n] * (double)numbers[n];
    x->first[i].error[kind] = square > 0 ? (float)sqrt(off / square) : 0;
    return FV_OK;
}

static fv_status run_on_matrix(const fv_pack_context *ctx, visit_fn *fn, fv_latents *x, int32_t i,
                               int kind) {
    fv_arena *scratch = &ctx->slots[0];
    fv_matrices matrices = {.be = ctx->be, .scratch = scratch};
    fv_pack_context one = *ctx;
    fv_tensor m;
    fv_arena_reset(scratch);
    one.scratch = scratch;
    one.matrices = &matrices;
    fv_status st = matrix_of(&one, &x->first[i], kind, &m);
    if (st == FV_OK) st = fn(&one, x, i, kind, &m);
    fv_matrices_fini(&matrices);
    return st;
}

static fv_status visit_all(const fv_pack_context *ctx, visit_fn *fn, fv_latents *x) {
    for (int32_t i = 0; i < 2 * x->group; i++)
        if (x->first[i / 2].state) FV_TRY(run_on_matrix(ctx, fn, x, i / 2, i % 2));
    return FV_OK;
}

void fv_latents_set_own(fv_latents *x, int32_t r) {
    for (int32_t i = 0; i < x->group; i++) {
        fv_pack_layer *l = x->first[i].state;
        if (l) l->shape[FV_PACKED_K].latent.n_own = l->shape[FV_PACKED_V].latent.n_own = r;
    }
}

/* The sum of weighted squared errors that is allowed, where each matrix weighs 1. */
static double allowed(const fv_pack_context *ctx, const fv_latents *x) {
    const fv_pack_layer *lead = x->first->state;
    double times = ctx->plan->params[FV_STAGE_PACK].pack_latent.residual_above;
    int32_t n = 0;
    for (int32_t i = 0; i < x->group; i++) n += x->first[i].state ? 2 : 0;
    return times * times * n * fv_latent_expected(x->layer, &lead->shape[0]);
}

fv_status fv_latents_add_own(const fv_pack_context *ctx, fv_latents *x, int32_t most) {
    const fv_pack_layer *lead = x->first->state;
    void *data = lead->data[0];
    x->allowed = allowed(ctx, x);
    if (x->lost <= x->allowed) return FV_OK;
    FV_TRY(fv_own_begin(ctx->scratch, lead->n, most, &x->own));
    for (int pass = 0; pass < FV_OWN_PASSES; pass++) {
        if (pass > 0) FV_TRY(fv_own_finish_pass(&x->own, ctx->matrices));
        FV_TRY(visit_all(ctx, add_residual, x));
    }
    FV_TRY(fv_own_choose(&x->own, ctx->scratch, x->lost, x->allowed));
    if (x->own.r == 0) return FV_OK;
    fv_latents_set_own(x, x->own.r);
    FV_TRY(fv_latent_write(x->layer, &lead->shape[0], x->raw, data));
    fv_latent_write_row(&lead->shape[0], x->exact, data);
    fv_latent_write_own(&lead->shape[0], x->own.u, data);
    return visit_all(ctx, fit_directions, x);
}
