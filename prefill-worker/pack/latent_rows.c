/* Codes the rows of all layers of a group: see latents.h.
 *
 * Several threads work on blocks of tokens. A block's rows of one matrix at a time stay in cache while they
 * are gathered, rotated, centred and multiplied; no matrix is built whole.
 *
 *   x of a layer's keys or values --mean off--> d --y = d P--> z += y      all layers of the group
 *   z --nearest level--> planes of bits, z~
 *   ||d - z~ B||^2 = ||d||^2 + z~ (G z~ - 2 d B^T)^T                       fv_latent_measure
 *
 * Products are in f32, and the sums of a row and over rows in double and in order: neither depends on
 * blocks. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "factor/latent_project.h"
#include "model/net/row_matrix.h"
#include "prefill-worker/pack/latents.h"

enum { BLOCK = 3 * FV_PACKED_TILE }; /* rows: d of 4096 numbers fits a core's cache */

/* Squares of a row of one matrix. */
typedef struct sums {
    double square, spread, off; /* ||x||^2, ||d||^2, ||d - z~ B||^2 */
} sums;

/* The result of a block. */
typedef struct outcome {
    fv_status status;
    char text[256];
} outcome;

typedef struct run {
    const fv_pack_context *ctx;
    fv_latents *x;
    int32_t rows, n_block; /* rows in a block; blocks */
    sums *sum;             /* [2 group, n] */
    outcome *block;        /* [n_block] */
} run;

typedef struct block {
    const run *r;
    fv_latents *x;
    fv_matrices *in;
    int32_t row0, n;
    fv_row_angles back; /* undo the rotation by the tokens' positions */
    fv_tensor m;        /* [n, W] rows of one matrix */
    float **c;          /* [2 group] each d B^T, [n, R], up to a factor */
    double *room;       /* [R] scratch */
} block;

/* ---- one matrix ---------------------------------------------------------------------------- */

/* Number of the block's rows that a layer holds. */
static int32_t held(const block *b, const fv_pack_layer *l) {
    int32_t n = l ? l->n - b->row0 : 0;
    return n < 0 ? 0 : n < b->n ? n : b->n;
}

static fv_status gather(const block *b, int32_t i, int k, fv_tensor m) {
    const fv_pack_context *ctx = b->r->ctx;
    const fv_pack_layer *l = b->x->first[i].state;
    fv_row_set rows = {.layer = b->x->first[i].layer,
                       .seg = b->x->first[i].seg,
                       .value = k == FV_PACKED_V,
                       .n = m.rows,
                       .row = l->row + b->row0};
    FV_TRY(fv_rows_gather(ctx->kv, b->in->be, &rows, m));
    if (k == FV_PACKED_V) return FV_OK;
    return fv_rows_rotate_by(b->in->be, &b->back, fv_kv_get_shape(ctx->kv)->n_kv, m);
}

enum { SUMS = 8 }; /* number i of a row goes to sum i % SUMS, so that additions overlap */

static void centre_number(float *x, float mean, double *square, double *spread) {
    float d = *x - mean;
    *square += (double)*x * (double)*x;
    *spread += (double)d * (double)d;
    *x = d;
}

/* x becomes d. */
static void centre(float *x, const float *mean, size_t W, sums *to) {
    double square[SUMS] = {0}, spread[SUMS] = {0};
    size_t c = 0;
    for (; c + SUMS <= W; c += SUMS)
        for (size_t k = 0; k < SUMS; k++)
            centre_number(x + c + k, mean[c + k], &square[k], &spread[k]);
    for (size_t k = 0; c + k < W; k++)
        centre_number(x + c + k, mean[c + k], &square[k], &spread[k]);
    for (size_t k = 0; k < SUMS; k++) to->square += square[k], to->spread += spread[k];
}

/* Centres rows [n, W]; stores the exact one and sets its d to 0. */
static fv_status centre_rows(const block *b, int32_t i, int k, float *row, int32_t n) {
    const fv_latents *x = b->x;
    const fv_pack_layer *l = x->first[i].state;
    size_t W = (size_t)b->m.cols;
    sums *sum = b->r->sum + (size_t)(2 * i + k) * (size_t)x->n + b->row0;
    for (int32_t j = 0; j < n; j++, row += W) {
        bool exact = b->row0 + j == x->exact;
        if (exact) fv_latent_write_exact(&l->shape[k], row, l->data[k]);
        centre(row, x->layer[i].mean[k], W, &sum[j]);
        if (!isfinite(sum[j].square))
            return fv_pack_layer_fail(FV_FAIL(FV_EINVAL,
                                              "row %d of the KV to be packed has a NaN or infinity",
                                              b->row0 + j),
                                      &x->first[i], (fv_packed_kind)k);
        if (exact) sum[j].spread = 0;
        if (exact) memset(row, 0, W * sizeof *row);
    }
    return FV_OK;
}

/* y [n, R] = d P. */
static fv_status project(const block *b, const fv_tensor *d, const fv_latent_columns *p,
                         float **y) {
    fv_tensor t;
    FV_TRY(fv_matrix_new(b->in, d->rows, b->x->R, &t));
    FV_TRY(fv_latent_project(b->in->be, d, p, t));
    return fv_matrix_fetch(b->in, &t, y);
}

/* Adds y = d P of a matrix to z, and keeps its d B^T for measure(). */
static fv_status project_matrix(block *b, int32_t i, int k) {
    fv_latents *x = b->x;
    const fv_latent_layer *l = &x->layer[i];
    int32_t n = held(b, x->first[i].state);
    fv_tensor m = fv_tensor_rows(b->m, 0, n), d;
    float *rows, *y, *z = x->raw + (size_t)b->row0 * (size_t)x->R;
    FV_TRY(gather(b, i, k, m));
    FV_TRY(fv_matrix_fetch(b->in, &m, &rows));
    FV_TRY(centre_rows(b, i, k, rows, n));
    FV_TRY(fv_matrix_send(b->in, rows, n, m.cols, &d));
    FV_TRY(project(b, &d, &l->project[k], &y));
    for (size_t j = 0; j < (size_t)n * (size_t)x->R; j++) z[j] += y[j];
    b->c[2 * i + k] = y;
    const fv_latent_measure *by = &l->measure[k];
    return by->along == 0 ? project(b, &d, &by->across, &b->c[2 * i + k]) : FV_OK;
}

/* ||d - z~ B||^2 of the rows of a matrix. z [n, R] is on the device. */
static fv_status measure(const block *b, int32_t i, int k, fv_tensor z) {
    const fv_latents *x = b->x;
    const fv_latent_measure *by = &x->layer[i].measure[k];
    size_t R = (size_t)x->R, n_dir = (size_t)x->n_dir;
    double a = by->along == 0 ? 1 : (double)by->along;
    const float *c = b->c[2 * i + k], *zs = x->z + (size_t)b->row0 * R;
    sums *sum = b->r->sum + (size_t)(2 * i + k) * (size_t)x->n + b->row0;
    fv_matmul_nn_args g = {
        .x = fv_tensor_rows(z, 0, held(b, x->first[i].state)),
        .w = fv_tensor_of((void *)(uintptr_t)by->gram, FV_F32, x->n_dir, x->n_dir)};
    float *y;
    g.x.cols = x->n_dir;
    g.w.ld = x->R;
    FV_TRY(fv_matrix_new(b->in, g.x.rows, x->n_dir, &g.y));
    FV_TRY(b->in->be->ops->matmul_nn(b->in->be, &g));
    FV_TRY(fv_matrix_fetch(b->in, &g.y, &y));
    for (int32_t j = 0; j < g.x.rows; j++, c += R, zs += R, y += n_dir) {
        double off = sum[j].spread;
        for (size_t r = 0; r < n_dir; r++)
            off += (double)zs[r] * ((double)y[r] - 2 * a * (double)c[r]);
        sum[j].off = off > 0 && b->row0 + j != x->exact ? off : 0;
    }
    return FV_OK;
}

/* ---- a block ------------------------------------------------------------------------------- */

/* Estimates the coefficients of tokens that no layer after i holds. */
static void estimate_missing(block *b, int32_t i) {
    fv_latents *x = b->x;
    int32_t from = 0, to = held(b, x->first[i].state);
    if (x->lacking[i].n == 0) return;
    for (int32_t next = i + 1; next < x->group && from == 0; next++)
        from = held(b, x->first[next].state);
    for (int32_t j = from; j < to; j++)
        fv_missing_estimate(&x->lacking[i], x->raw + (size_t)(b->row0 + j) * (size_t)x->R, b->room);
}

static fv_status write_codes(block *b) {
    fv_latents *x = b->x;
    const fv_pack_layer *lead = x->first->state;
    size_t at = (size_t)b->row0 * (size_t)x->R, n = (size_t)b->n * (size_t)x->R;
    memcpy(x->z + at, x->raw + at, n * sizeof *x->z);
    fv_status st =
        fv_latent_write_rows(x->layer, &lead->shape[0], b->row0, b->n, x->z + at, lead->data[0]);
    return st == FV_OK ? st : fv_pack_layer_fail(st, x->first, FV_PACKED_K);
}

static fv_status run_rows(block *b) {
    const fv_pack_context *ctx = b->r->ctx;
    const fv_kv_shape *s = fv_kv_get_shape(ctx->kv);
    fv_latents *x = b->x;
    const fv_pack_layer *lead = x->first->state;
    fv_tensor z;
    FV_TRY(FV_ARENA_NEW(b->in->scratch, 2 * x->group, b->c));
    FV_TRY(FV_ARENA_NEW(b->in->scratch, x->R, b->room));
    FV_TRY(fv_matrix_new(b->in, b->n, s->n_kv * s->d_head, &b->m));
    FV_TRY(fv_rows_angles(b->in, ctx->rope, fv_kv_rope_map(ctx->kv), lead->pos + b->row0, true,
                          b->n, &b->back));
    for (int32_t i = 0; i < x->group; i++) {
        if (held(b, x->first[i].state) == 0) continue;
        for (int k = 0; k < 2; k++) FV_TRY(project_matrix(b, i, k));
        estimate_missing(b, i);
    }
    FV_TRY(write_codes(b));
    FV_TRY(fv_matrix_send(b->in, x->z + (size_t)b->row0 * (size_t)x->R, b->n, x->R, &z));
    for (int32_t i = 0; i < 2 * x->group; i++)
        if (held(b, x->first[i / 2].state) > 0) FV_TRY(measure(b, i / 2, i % 2, z));
    return FV_OK;
}

static void run_block(void *arg, fv_backend *be, int32_t slot, int32_t i) {
    const run *r = arg;
    fv_arena *scratch = &r->ctx->slots[slot];
    fv_matrices in = {.be = be, .scratch = scratch};
    block b = {.r = r, .x = r->x, .in = &in, .row0 = i * r->rows};
    outcome *to = &r->block[i];
    b.n = r->x->n - b.row0 < r->rows ? r->x->n - b.row0 : r->rows;
    fv_arena_reset(scratch);
    to->status = run_rows(&b);
    fv_matrices_fini(&in);
    if (to->status != FV_OK) snprintf(to->text, sizeof to->text, "%s", fv_last_error());
}

/* ---- a group ------------------------------------------------------------------------------- */

static void report(const run *r, int32_t i, int k) {
    fv_latents *x = r->x;
    fv_pack_job *job = &x->first[i];
    const fv_pack_layer *l = job->state;
    const sums *of = r->sum + (size_t)(2 * i + k) * (size_t)x->n;
    double *weight = &x->weight[2 * i + k];
    sums all = {0};
    for (int32_t j = 0; j < l->n; j++) {
        all.square += of[j].square;
        all.spread += of[j].spread;
        all.off += of[j].off;
    }
    *weight = all.spread > 0 ? 1 / all.spread : 0;
    x->lost += *weight * all.off;
    job->rank[k] = (int32_t)fv_packed_width(&l->shape[k]);
    job->error[k] = all.square > 0 ? (float)sqrt(all.off / all.square) : 0;
}

fv_status fv_latents_code(const fv_pack_context *ctx, fv_latents *x) {
    const fv_pack_layer *lead = x->first->state;
    bool on_host = ctx->be->device == fv_device_host();
    run r = {.ctx = ctx, .x = x, .rows = on_host || x->n == 0 ? BLOCK : x->n};
    r.n_block = (x->n + r.rows - 1) / r.rows;
    FV_TRY(FV_ARENA_NEW(ctx->scratch, (size_t)x->group * 2 * (size_t)x->n, r.sum));
    FV_TRY(FV_ARENA_NEW(ctx->scratch, r.n_block, r.block));
    fv_latent_clear(&lead->shape[0], lead->data[0]);
    FV_TRY(fv_backend_each(ctx->be, r.n_block, run_block, &r));
    for (int32_t i = 0; i < r.n_block; i++)
        if (r.block[i].status != FV_OK) return FV_FAIL(r.block[i].status, "%s", r.block[i].text);
    fv_latent_write_row(&lead->shape[0], x->exact, lead->data[0]);
    for (int32_t i = 0; i < 2 * x->group; i++)
        if (x->first[i / 2].state) report(&r, i / 2, i % 2);
    return FV_OK;
}
