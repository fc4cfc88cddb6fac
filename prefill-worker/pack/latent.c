/* pack=latent: visual keys and values of a group of layers as coefficients on directions of the
 * checkpoint (kernels/latent.h).
 *
 *   rows of all layers of a group, keys before rotation
 *       --z = sum over layers of K P_k + V P_v, less the mean's--> z [n, R] --nearest level-->
 *       planes of bits, which belong to the first layer's keys
 *
 * The group's last layer does it, when the rows of all of them are there. */
#include <math.h>
#include <string.h>

#include "model/net/row_matrix.h"
#include "prefill-worker/pack/pack_layer.h"

/* Rows may have left between two layers where data said so. */
static bool same_rows(const fv_pack_layer *a, const fv_pack_layer *b) {
    return a && b && a->n == b->n && memcmp(a->pos, b->pos, (size_t)a->n * sizeof *a->pos) == 0;
}

static fv_status begin(const fv_pack_context *ctx, fv_pack_job *job) {
    const fv_plan_pack *of = &ctx->plan->pack.layer[job->layer];
    fv_pack_job *first = of->back ? job->first : job;
    fv_pack_layer *l[FV_PLAN_MAX_LAYERS];
    if (of->back < of->group - 1 || !first) return FV_OK;
    for (int32_t i = 0; i < of->group; i++) {
        if (first[i].layer != first->layer + i) return FV_OK;
        FV_TRY(fv_pack_layer_order(ctx, &first[i], &l[i]));
        if (!same_rows(l[0], l[i])) return FV_OK;
    }
    for (int32_t i = 0; i < of->group; i++) {
        for (int k = 0; k < 2; k++)
            l[i]->shape[k] = fv_plan_packed_shape(ctx->plan, first[i].layer, (fv_packed_kind)k,
                                                  l[i]->n, fv_kv_get_shape(ctx->kv)->dtype);
        first[i].state = l[i];
    }
    FV_TRY(fv_arena_alloc(ctx->scratch, fv_packed_bytes(&l[0]->shape[0]), &l[0]->data[0]));
    job->part[FV_PACKED_K] = true; /* for all of the group */
    return FV_OK;
}

/* M [n, W] of one layer's keys, before rotation, or values. */
static fv_status matrix_of(const fv_pack_context *ctx, const fv_pack_job *job, fv_packed_kind kind,
                           fv_tensor *m) {
    const fv_pack_layer *l = job->state;
    FV_TRY(fv_pack_layer_matrix(ctx, job, kind, m));
    if (kind == FV_PACKED_V) return FV_OK;
    return fv_rows_rotate(ctx->matrices, ctx->rope, fv_kv_rope_map(ctx->kv), l->pos, true,
                          fv_kv_get_shape(ctx->kv)->n_kv, *m);
}

/* z [n, R] += M P. */
static fv_status add_projection(const fv_pack_context *ctx, const fv_tensor *m, const float *encode,
                                int32_t n_dir, float *z) {
    fv_matmul_nn_args a = {.x = *m};
    float *y;
    FV_TRY(fv_matrix_new(ctx->matrices, m->rows, n_dir, &a.y));
    FV_TRY(fv_matrix_send(ctx->matrices, encode, m->cols, n_dir, &a.w));
    FV_TRY(ctx->be->ops->matmul_nn(ctx->be, &a));
    FV_TRY(fv_matrix_fetch(ctx->matrices, &a.y, &y));
    for (size_t i = 0; i < (size_t)m->rows * (size_t)n_dir; i++) z[i] += y[i];
    return FV_OK;
}

/* ||M - M~|| / ||M||, M~ the mean plus z B; 0 of zeros. */
static fv_status measure(const fv_pack_context *ctx, fv_tensor *m, const fv_latent_layer *l, int k,
                         const float *z, float *error) {
    fv_matmul_nn_args a = {.y = {0}};
    float *rows, *back;
    double off = 0, all = 0;
    FV_TRY(fv_matrix_new(ctx->matrices, m->rows, m->cols, &a.y));
    FV_TRY(fv_matrix_send(ctx->matrices, z, m->rows, l->n_dir, &a.x));
    FV_TRY(fv_matrix_send(ctx->matrices, l->decode[k], l->n_dir, m->cols, &a.w));
    FV_TRY(ctx->be->ops->matmul_nn(ctx->be, &a));
    FV_TRY(fv_matrix_fetch(ctx->matrices, &a.y, &back));
    FV_TRY(fv_matrix_fetch(ctx->matrices, m, &rows));
    for (int32_t j = 0; j < m->rows; j++)
        for (int32_t c = 0; c < m->cols; c++, rows++, back++) {
            double x = (double)*rows, d = x - (double)l->mean[k][c] - (double)*back;
            off += d * d;
            all += x * x;
        }
    *error = all > 0 ? (float)sqrt(off / all) : 0;
    return FV_OK;
}

/* What is done with the matrix of a layer's keys or values. */
typedef fv_status visit_fn(const fv_pack_context *ctx, fv_pack_job *job, int kind, fv_tensor *m,
                           float *z);

static fv_status project(const fv_pack_context *ctx, fv_pack_job *job, int kind, fv_tensor *m,
                         float *z) {
    const fv_latent_layer *l = &fv_kv_get_shape(ctx->kv)->latent[job->layer];
    return add_projection(ctx, m, l->encode[kind], l->n_dir, z);
}

static fv_status compare(const fv_pack_context *ctx, fv_pack_job *job, int kind, fv_tensor *m,
                         float *z) {
    const fv_latent_layer *l = &fv_kv_get_shape(ctx->kv)->latent[job->layer];
    job->rank[kind] = m->cols;
    return measure(ctx, m, l, kind, z, &job->error[kind]);
}

/* Matrices are there one after another. */
static fv_status visit(const fv_pack_context *ctx, fv_pack_job *first, int32_t n, visit_fn *fn,
                       float *z) {
    fv_status st = FV_OK;
    for (int32_t i = 0; i < 2 * n && st == FV_OK; i++) {
        fv_arena scratch = {0};
        fv_matrices matrices = {.be = ctx->be, .scratch = &scratch};
        fv_pack_context one = *ctx;
        fv_tensor m;
        one.scratch = &scratch;
        one.matrices = &matrices;
        st = matrix_of(&one, &first[i / 2], (fv_packed_kind)(i % 2), &m);
        if (st == FV_OK) st = fn(&one, &first[i / 2], i % 2, &m, z);
        fv_matrices_fini(&matrices);
        fv_arena_fini(&scratch);
    }
    return st;
}

static fv_status part(const fv_pack_context *ctx, fv_pack_job *job, fv_packed_kind kind) {
    fv_pack_job *first = job->first ? job->first : job;
    fv_pack_layer *lead = first->state;
    const fv_latent_layer *l = &fv_kv_get_shape(ctx->kv)->latent[first->layer];
    int32_t n = job->layer - first->layer + 1, R = l->n_dir;
    float *z;
    FV_TRY(FV_ARENA_NEW(ctx->scratch, (size_t)lead->n * (size_t)R, z));
    FV_TRY(visit(ctx, first, n, project, z));
    for (int32_t j = 0; j < lead->n; j++)
        for (int32_t r = 0; r < R; r++) z[(size_t)j * (size_t)R + (size_t)r] -= l->offset[r];
    fv_status st = fv_latent_write(l, &lead->shape[0], z, lead->data[0]);
    if (st != FV_OK) return fv_pack_layer_fail(st, first, kind);
    return visit(ctx, first, n, compare, z);
}

const fv_pack_method fv_pack_latent = {
    .begin = begin,
    .part = part,
    .end = fv_pack_layer_end,
    .none = "too few tokens are the same in all layers of a group for coefficients to be smaller"};
