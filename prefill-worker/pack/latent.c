/* pack=latent: visual keys and values of a group of layers as coefficients on directions of the
 * checkpoint (kernels/latent.h).
 *
 *   rows of all layers of a group, keys before rotation
 *       --z = sum over layers of K P_k + V P_v, less the mean's--> z [n, R] --nearest level-->
 *       planes of bits, which belong to the first layer's keys
 *   what that leaves, if it is more than the calibration expects --own.h--> own directions: their
 *       coefficients in planes besides, their numbers in each part
 *
 * ORDER. Tokens are pruned between layers, so each layer holds some of those that the layer before
 * holds. The group's tokens are listed layer by layer from the last, those that were not listed yet
 * in the layer's own order: so every layer has the first ones of the list, and ranks do not cross.
 * Layers whose tokens are no such subsets stay raw.
 *
 * LAYERS THAT LACK A TOKEN. Over all layers of the group B P = 1. Layers S, which hold it, show
 *
 *   b = (x_S - mean_S) P_S = z G + noise      G = B_S P_S [n, n]
 *
 * The noise is what directions do not span. Taken to vary as the last of them, it has the covariance
 * deviation_n^2 G (1 - G), because over all layers P sees none of it. As z is known to have the
 * directions' deviations, the best linear guess is
 *
 *   z = b (G + L (1 - G))^-1                  L = diag(deviation_n^2 / deviation_r^2)
 *
 * G = 1 gives z = b. Directions without bits are left out. In double but for the products. */
#include <math.h>
#include <string.h>

#include "model/net/row_matrix.h"
#include "prefill-worker/pack/own.h"
#include "prefill-worker/pack/pack_layer.h"

/* ---- whose rows, in which order -------------------------------------------------------------- */

/* Layers of a group that hold tokens. */
typedef struct members {
    int32_t n;
    fv_pack_job *job[FV_PLAN_MAX_LAYERS];
    fv_pack_layer *layer[FV_PLAN_MAX_LAYERS];
} members;

/* Adds the tokens of a layer that have no place yet. False: it lacks one that has. */
static bool give_places(const fv_pack_layer *l, int32_t n_place, int32_t *place, int32_t *n) {
    for (int32_t j = 0; j < l->n; j++) {
        if (l->pos[j] >= n_place) return false;
        if (place[l->pos[j]] < 0) place[l->pos[j]] = (*n)++;
    }
    return *n == l->n;
}

/* Rows at their tokens' places, which is the order in which they are let go. */
static fv_status reorder(const int32_t *place, fv_arena *arena, fv_pack_layer *l) {
    int32_t *row, *pos;
    FV_TRY(FV_ARENA_NEW(arena, l->n, row));
    FV_TRY(FV_ARENA_NEW(arena, l->n, pos));
    FV_TRY(FV_ARENA_NEW(arena, l->n, l->rank));
    for (int32_t j = 0; j < l->n; j++) {
        int32_t to = place[l->pos[j]];
        row[to] = l->row[j];
        pos[to] = l->pos[j];
        l->rank[j] = j;
    }
    l->row = row;
    l->pos = pos;
    return FV_OK;
}

/* *nested: every layer has the first ones of the first layer's tokens now. */
static fv_status nest(const members *m, fv_arena *arena, bool *nested) {
    int32_t n_place = 0, n = 0, *place;
    const fv_pack_layer *first = m->layer[0];
    for (int32_t j = 0; j < first->n; j++)
        if (first->pos[j] >= n_place) n_place = first->pos[j] + 1;
    FV_TRY(FV_ARENA_NEW(arena, n_place, place));
    for (int32_t p = 0; p < n_place; p++) place[p] = -1;
    *nested = true;
    for (int32_t i = m->n - 1; i >= 0 && *nested; i--)
        *nested = give_places(m->layer[i], n_place, place, &n);
    for (int32_t i = 0; i < m->n && *nested; i++) FV_TRY(reorder(place, arena, m->layer[i]));
    return FV_OK;
}

static fv_status find_members(const fv_pack_context *ctx, fv_pack_job *first, members *m,
                              int32_t *held) {
    const fv_plan_pack *of = &ctx->plan->pack.layer[first->layer];
    m->n = 0;
    for (int32_t i = 0; i < of->group; i++) {
        fv_pack_layer *l;
        FV_TRY(fv_pack_layer_order(ctx, &first[i], &l));
        held[i] = l ? l->n : 0;
        if (!l) continue;
        m->job[m->n] = &first[i];
        m->layer[m->n++] = l;
    }
    return FV_OK;
}

static void shape_parts(const fv_pack_context *ctx, const members *m) {
    const fv_kv_shape *s = fv_kv_get_shape(ctx->kv);
    uint8_t bits[FV_LATENT_MOST];
    for (int32_t i = 0; i < m->n; i++)
        for (int k = 0; k < 2; k++) {
            int32_t layer = m->job[i]->layer;
            fv_packed_shape *shape = &m->layer[i]->shape[k];
            *shape =
                fv_plan_packed_shape(ctx->plan, layer, (fv_packed_kind)k, m->layer[i]->n, s->dtype);
            int32_t n_dir = fv_latent_bits(&s->latent[layer], shape, bits);
            shape->rank2 = fv_plan_latent_rank2(ctx->plan, (fv_packed_kind)k, n_dir);
        }
}

/* Memory for as many own directions as the plan allows. */
static fv_status take_parts(const fv_pack_context *ctx, const members *m) {
    for (int32_t i = 0; i < 2 * m->n; i++) {
        fv_pack_layer *l = m->layer[i / 2];
        size_t bytes = fv_packed_bytes(&l->shape[i % 2]);
        if (bytes) FV_TRY(fv_arena_alloc(ctx->scratch, bytes, &l->data[i % 2]));
    }
    return FV_OK;
}

/* The group's last layer looks at all of them, when their rows are there. */
static fv_status begin(const fv_pack_context *ctx, fv_pack_job *job) {
    const fv_plan_pack *of = &ctx->plan->pack.layer[job->layer];
    fv_pack_job *first = of->back ? job->first : job;
    int32_t held[FV_PLAN_MAX_LAYERS];
    bool nested;
    members m;
    if (of->back < of->group - 1 || !first) return FV_OK;
    FV_TRY(find_members(ctx, first, &m, held));
    if (held[0] == 0 || !fv_plan_latents_pay(ctx->plan, first->layer, held)) return FV_OK;
    FV_TRY(nest(&m, ctx->scratch, &nested));
    if (!nested) return FV_OK;
    shape_parts(ctx, &m);
    for (int32_t i = 0; i < m.n; i++) m.job[i]->state = m.layer[i];
    FV_TRY(take_parts(ctx, &m));
    first->part[FV_PACKED_K] = true; /* for all of the group */
    return FV_OK;
}

/* ---- coefficients ---------------------------------------------------------------------------- */

/* M [n, W] of one layer's keys, before rotation, or values. */
static fv_status matrix_of(const fv_pack_context *ctx, const fv_pack_job *job, fv_packed_kind kind,
                           fv_tensor *m) {
    const fv_pack_layer *l = job->state;
    FV_TRY(fv_pack_layer_matrix(ctx, job, kind, m));
    if (kind == FV_PACKED_V) return FV_OK;
    return fv_rows_rotate(ctx->matrices, ctx->rope, fv_kv_rope_map(ctx->kv), l->pos, true,
                          fv_kv_get_shape(ctx->kv)->n_kv, *m);
}

/* y = x w, on the host. */
static fv_status multiply(const fv_pack_context *ctx, const fv_tensor *x, const float *w,
                          int32_t cols, float **y) {
    fv_matmul_nn_args a = {.x = *x};
    FV_TRY(fv_matrix_new(ctx->matrices, x->rows, cols, &a.y));
    FV_TRY(fv_matrix_send(ctx->matrices, w, x->cols, cols, &a.w));
    FV_TRY(ctx->be->ops->matmul_nn(ctx->be, &a));
    return fv_matrix_fetch(ctx->matrices, &a.y, y);
}

/* A group on its way. */
typedef struct latents {
    fv_pack_job *first; /* of `group`, of which some have no state */
    int32_t group;
    int32_t exact;            /* the row that is kept as it is; -1: none */
    const fv_latent_layer *l; /* the first layer's */
    int32_t n, R, n_dir;      /* tokens, directions, and those that have bits */
    bool lacking;             /* some tokens are not in all layers that share directions */
    int32_t due;              /* layers that were not visited yet */
    float *z;                 /* [n, R] coefficients: as they are summed, and then as they decode */
    double *offset;           /* [R] mean_S P_S of the layers so far, */
    double *gram;             /* [n_dir, n_dir] and their B_S P_S */
    double *weight;       /* [2 group] of a matrix: one over its squared distance from the mean */
    double lost, allowed; /* sum of weighted squared errors: as it is, and as it may be */
    fv_own own;           /* directions that are added for it */
} latents;

/* z [n, R] += M P. */
static fv_status add_projection(const fv_pack_context *ctx, const fv_tensor *m, const float *encode,
                                latents *x) {
    float *y;
    FV_TRY(multiply(ctx, m, encode, x->R, &y));
    for (size_t i = 0; i < (size_t)m->rows * (size_t)x->R; i++) x->z[i] += y[i];
    return FV_OK;
}

/* offset += mean P, gram += B P. */
static fv_status add_gram(const fv_pack_context *ctx, const fv_latent_layer *l, int k, int32_t W,
                          latents *x) {
    float *y;
    fv_tensor b;
    FV_TRY(fv_matrix_send(ctx->matrices, l->decode[k], x->n_dir, W, &b));
    FV_TRY(multiply(ctx, &b, l->encode[k], x->R, &y));
    for (int32_t r = 0; r < x->n_dir; r++)
        for (int32_t c = 0; c < x->n_dir; c++) x->gram[r * x->n_dir + c] += (double)y[r * x->R + c];
    for (int32_t c = 0; c < W; c++)
        for (int32_t r = 0; r < x->R; r++)
            x->offset[r] +=
                (double)l->mean[k][c] * (double)l->encode[k][(size_t)c * (size_t)x->R + (size_t)r];
    return FV_OK;
}

/* a [n, n] into its factors L U, rows exchanged so that pivots are the largest there are. */
static void factorise(double *a, int32_t n, int32_t *pivot) {
    for (int32_t k = 0; k < n; k++) {
        int32_t top = k;
        for (int32_t i = k + 1; i < n; i++)
            if (fabs(a[i * n + k]) > fabs(a[top * n + k])) top = i;
        pivot[k] = top;
        for (int32_t j = 0; top != k && j < n; j++) {
            double at = a[k * n + j];
            a[k * n + j] = a[top * n + j];
            a[top * n + j] = at;
        }
        for (int32_t i = k + 1; i < n; i++) {
            double f = a[i * n + k] /= a[k * n + k];
            for (int32_t j = k + 1; j < n; j++) a[i * n + j] -= f * a[k * n + j];
        }
    }
}

/* x <- (L U)^-1 x. */
static void solve(const double *a, int32_t n, const int32_t *pivot, double *x) {
    for (int32_t k = 0; k < n; k++) {
        double at = x[pivot[k]];
        x[pivot[k]] = x[k];
        x[k] = at;
    }
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = 0; j < i; j++) x[i] -= a[i * n + j] * x[j];
    for (int32_t i = n - 1; i >= 0; i--) {
        for (int32_t j = i + 1; j < n; j++) x[i] -= a[i * n + j] * x[j];
        x[i] /= a[i * n + i];
    }
}

/* Tokens [from, to), which no later layer holds. */
static fv_status settle_lacking(const fv_pack_context *ctx, latents *x, int32_t from, int32_t to) {
    int32_t n = x->n_dir, *pivot;
    const float *deviation = x->l->deviation;
    double *a, *b, last = (double)deviation[n - 1];
    FV_TRY(FV_ARENA_NEW(ctx->scratch, (size_t)n * (size_t)n, a));
    FV_TRY(FV_ARENA_NEW(ctx->scratch, n, b));
    FV_TRY(FV_ARENA_NEW(ctx->scratch, n, pivot));
    for (int32_t r = 0; r < n; r++) {
        double noise = deviation[r] > 0 ? last / (double)deviation[r] : 1;
        noise = noise > 1e-3 ? noise * noise : 1e-6; /* so that there is a solution in any case */
        for (int32_t c = 0; c < n; c++) {
            double g = x->gram[r * n + c];
            a[c * n + r] = g + noise * ((r == c) - g); /* transposed: z is a row */
        }
    }
    factorise(a, n, pivot);
    for (int32_t j = from; j < to; j++) {
        float *z = x->z + (size_t)j * (size_t)x->R;
        for (int32_t r = 0; r < n; r++) b[r] = (double)z[r] - x->offset[r];
        solve(a, n, pivot, b);
        for (int32_t r = 0; r < n; r++) z[r] = (float)b[r];
    }
    return FV_OK;
}

/* What is done with the matrix of a layer's keys or values. */
typedef fv_status visit_fn(const fv_pack_context *ctx, fv_pack_job *job, int kind, fv_tensor *m,
                           latents *x);

static fv_status project(const fv_pack_context *ctx, fv_pack_job *job, int kind, fv_tensor *m,
                         latents *x) {
    const fv_latent_layer *l = &fv_kv_get_shape(ctx->kv)->latent[job->layer];
    FV_TRY(add_projection(ctx, m, l->encode[kind], x));
    return x->lacking ? add_gram(ctx, l, kind, m->cols, x) : FV_OK;
}

enum { SUMS = 8 }; /* number i of a row goes to sum i % SUMS: none waits for the one before */

static double all_of(const double *sum) {
    double all = 0;
    for (int k = 0; k < SUMS; k++) all += sum[k];
    return all;
}

/* e [W] of a row: what is left of it after the mean and e. */
static void leave(const float *row, const float *mean, size_t W, float *e, double *square,
                  double *spread) {
    for (size_t c = 0; c < W; c += SUMS)
        for (size_t k = 0, n = W - c < SUMS ? W - c : SUMS; k < n; k++) {
            double v = (double)row[c + k], d = v - (double)mean[c + k];
            e[c + k] = (float)(d - (double)e[c + k]);
            square[k] += v * v;
            spread[k] += d * d;
        }
}

static void add_squares(const float *x, size_t n, double *sum) {
    for (size_t i = 0; i < n; i += SUMS)
        for (size_t k = 0, m = n - i < SUMS ? n - i : SUMS; k < m; k++)
            sum[k] += (double)x[i + k] * (double)x[i + k];
}

/* e = M - M~ on the host, M~ the mean plus z B; *square: ||M||^2; *spread: ||M - mean||^2. Of the row
 * that stays exact e is 0, and it does not spread. It is written besides. */
static fv_status residual(const fv_pack_context *ctx, const fv_pack_job *job, int kind,
                          fv_tensor *m, const latents *x, float **e, double *square,
                          double *spread) {
    const fv_latent_layer *l = &fv_kv_get_shape(ctx->kv)->latent[job->layer];
    const fv_pack_layer *to = job->state;
    size_t W = (size_t)m->cols, at = (size_t)(x->exact < 0 ? m->rows : x->exact);
    double squared[SUMS] = {0}, spreads[SUMS] = {0};
    float *rows;
    fv_tensor z;
    FV_TRY(fv_matrix_send(ctx->matrices, x->z, m->rows, x->R, &z));
    FV_TRY(multiply(ctx, &z, l->decode[kind], m->cols, e));
    FV_TRY(fv_matrix_fetch(ctx->matrices, m, &rows));
    for (size_t i = 0; i < (size_t)m->rows; i++) {
        if (i == at) {
            memset(*e + i * W, 0, W * sizeof **e);
            add_squares(rows + i * W, W, squared);
        } else {
            leave(rows + i * W, l->mean[kind], W, *e + i * W, squared, spreads);
        }
    }
    *square = all_of(squared);
    *spread = all_of(spreads);
    if (at < (size_t)m->rows)
        fv_latent_write_exact(&to->shape[kind], rows + at * W, to->data[kind]);
    return FV_OK;
}

static double squares(const float *x, size_t n) {
    double sum[SUMS] = {0};
    add_squares(x, n, sum);
    return all_of(sum);
}

/* ||E|| / ||M||; 0 of zeros. */
static float share(double off, double square) { return square > 0 ? (float)sqrt(off / square) : 0; }

static double *weight_of(const latents *x, const fv_pack_job *job, int kind) {
    return &x->weight[2 * (job - x->first) + kind];
}

static fv_status compare(const fv_pack_context *ctx, fv_pack_job *job, int kind, fv_tensor *m,
                         latents *x) {
    double square, spread;
    float *e;
    FV_TRY(residual(ctx, job, kind, m, x, &e, &square, &spread));
    double off = squares(e, (size_t)m->rows * (size_t)m->cols);
    *weight_of(x, job, kind) = spread > 0 ? 1 / spread : 0;
    x->lost += *weight_of(x, job, kind) * off;
    job->rank[kind] = m->cols;
    job->error[kind] = share(off, square);
    return FV_OK;
}

static fv_status show(const fv_pack_context *ctx, fv_pack_job *job, int kind, fv_tensor *m,
                      latents *x) {
    double square, spread;
    fv_tensor e;
    float *numbers;
    FV_TRY(residual(ctx, job, kind, m, x, &numbers, &square, &spread));
    FV_TRY(fv_matrix_send(ctx->matrices, numbers, m->rows, m->cols, &e));
    return fv_own_show(&x->own, ctx->matrices, &e, *weight_of(x, job, kind));
}

/* A part's own directions, and the error that is left. */
static fv_status fit(const fv_pack_context *ctx, fv_pack_job *job, int kind, fv_tensor *m,
                     latents *x) {
    const fv_pack_layer *l = job->state;
    size_t r = (size_t)x->own.r, W = (size_t)m->cols;
    double square, spread;
    fv_tensor e;
    float *numbers, *o;
    FV_TRY(residual(ctx, job, kind, m, x, &numbers, &square, &spread));
    FV_TRY(fv_matrix_send(ctx->matrices, numbers, m->rows, m->cols, &e));
    FV_TRY(FV_ARENA_NEW(ctx->scratch, r * W, o));
    FV_TRY(fv_own_directions(&x->own, ctx->matrices, &e, o));
    fv_latent_write_directions(&l->shape[kind], o, l->data[kind]);
    for (size_t j = 0; j < (size_t)m->rows; j++)
        for (size_t i = 0; i < r; i++)
            for (size_t c = 0; c < W; c++)
                numbers[j * W + c] = fmaf(-x->own.u[j * r + i], o[i * W + c], numbers[j * W + c]);
    job->error[kind] = share(squares(numbers, (size_t)m->rows * W), square);
    return FV_OK;
}

/* Matrices are there one after another. */
static fv_status visit(const fv_pack_context *ctx, fv_pack_job *job, visit_fn *fn, latents *x) {
    fv_status st = FV_OK;
    for (int k = 0; k < 2 && st == FV_OK; k++) {
        fv_arena scratch = {0};
        fv_matrices matrices = {.be = ctx->be, .scratch = &scratch};
        fv_pack_context one = *ctx;
        fv_tensor m;
        one.scratch = &scratch;
        one.matrices = &matrices;
        st = matrix_of(&one, job, (fv_packed_kind)k, &m);
        if (st == FV_OK) st = fn(&one, job, k, &m, x);
        fv_matrices_fini(&matrices);
        fv_arena_fini(&scratch);
    }
    return st;
}

/* How many tokens the next layer of the group that holds any has; 0: there is none. */
static int32_t held_after(const fv_pack_job *first, int32_t i, int32_t group) {
    while (++i < group)
        if (first[i].state) return ((const fv_pack_layer *)first[i].state)->n;
    return 0;
}

static fv_status settle(const fv_pack_context *ctx, latents *x, int32_t from, int32_t to) {
    if (from == to) return FV_OK;
    if (x->lacking && x->due > 0) return settle_lacking(ctx, x, from, to);
    for (int32_t j = from; j < to; j++)
        for (int32_t r = 0; r < x->R; r++)
            x->z[(size_t)j * (size_t)x->R + (size_t)r] -= x->l->offset[r];
    return FV_OK;
}

/* Layers that share the directions of this one, in all. */
static int32_t sharing(const fv_plan_shape *s, int32_t layer) {
    int32_t from = layer - layer % s->latent_layers, left = s->n_layer - from;
    return left < s->latent_layers ? left : s->latent_layers;
}

static fv_status project_all(const fv_pack_context *ctx, fv_pack_job *first, latents *x) {
    int32_t group = ctx->plan->pack.layer[first->layer].group;
    x->due = sharing(&ctx->plan->shape, first->layer);
    x->lacking = held_after(first, group - 2, group) < x->n;
    for (int32_t i = 0; i < group; i++) x->lacking |= !first[i].state;
    x->lacking |= group < x->due;
    for (int32_t i = 0; i < group; i++) {
        if (!first[i].state) continue;
        FV_TRY(visit(ctx, &first[i], project, x));
        x->due--;
        FV_TRY(settle(ctx, x, held_after(first, i, group),
                      ((const fv_pack_layer *)first[i].state)->n));
    }
    return FV_OK;
}

static fv_status visit_all(const fv_pack_context *ctx, visit_fn *fn, latents *x) {
    for (int32_t i = 0; i < x->group; i++)
        if (x->first[i].state) FV_TRY(visit(ctx, &x->first[i], fn, x));
    return FV_OK;
}

/* ---- own directions -------------------------------------------------------------------------- */

/* The parts have r of them. */
static void set_own(latents *x, int32_t r) {
    for (int32_t i = 0; i < x->group; i++) {
        fv_pack_layer *l = x->first[i].state;
        if (l) l->shape[FV_PACKED_K].n_own = l->shape[FV_PACKED_V].n_own = r;
    }
}

/* Parts that borrow everything have no memory. */
static void drop_empty(latents *x) {
    for (int32_t i = 0; i < 2 * x->group; i++) {
        fv_pack_layer *l = x->first[i / 2].state;
        if (l && fv_packed_bytes(&l->shape[i % 2]) == 0) l->data[i % 2] = NULL;
    }
}

/* Where attention sinks: the first token of a prompt that begins with an image. */
static int32_t exact_row(const fv_pack_layer *l) {
    for (int32_t j = 0; l->shape[0].n_outlier && j < l->n; j++)
        if (l->pos[j] == 0) return j;
    return -1;
}

/* z becomes codes, and what they decode to; of the exact row too, which nobody reads. */
static fv_status write_codes(latents *x, float *z) {
    const fv_pack_layer *lead = x->first->state;
    fv_status st = fv_latent_write(x->l, &lead->shape[0], z, lead->data[0]);
    if (st != FV_OK) return fv_pack_layer_fail(st, x->first, FV_PACKED_K);
    fv_latent_write_row(&lead->shape[0], x->exact, lead->data[0]);
    return FV_OK;
}

/* Each matrix weighs 1. */
static double allowed(const fv_pack_context *ctx, const latents *x) {
    const fv_pack_layer *lead = x->first->state;
    double times = ctx->plan->params[FV_STAGE_PACK].pack_latent.residual_above;
    int32_t n = 0;
    for (int32_t i = 0; i < x->group; i++) n += x->first[i].state ? 2 : 0;
    return times * times * n * fv_latent_expected(x->l, &lead->shape[0]);
}

/* As many as it takes; z as it was before it became codes. */
static fv_status add_own(const fv_pack_context *ctx, latents *x, int32_t most, float *z) {
    const fv_pack_layer *lead = x->first->state;
    x->allowed = allowed(ctx, x);
    if (x->lost <= x->allowed) return FV_OK;
    FV_TRY(fv_own_begin(ctx->scratch, lead->n, most, &x->own));
    for (int pass = 0; pass < FV_OWN_PASSES; pass++) {
        if (pass > 0) FV_TRY(fv_own_end_pass(&x->own, ctx->matrices));
        FV_TRY(visit_all(ctx, show, x));
    }
    FV_TRY(fv_own_choose(&x->own, ctx->scratch, x->lost, x->allowed));
    if (x->own.r == 0) return FV_OK;
    set_own(x, x->own.r);
    FV_TRY(write_codes(x, z));
    fv_latent_write_own(&lead->shape[0], x->own.u, lead->data[0]);
    return visit_all(ctx, fit, x);
}

/* ---- a group --------------------------------------------------------------------------------- */

static fv_status part(const fv_pack_context *ctx, fv_pack_job *first, fv_packed_kind kind) {
    fv_pack_layer *lead = first->state;
    const fv_latent_layer *l = &fv_kv_get_shape(ctx->kv)->latent[first->layer];
    uint8_t bits[FV_LATENT_MOST];
    latents x = {.exact = exact_row(lead),
                 .first = first,
                 .group = ctx->plan->pack.layer[first->layer].group,
                 .l = l,
                 .n = lead->n,
                 .R = l->n_dir};
    int32_t most = lead->shape[0].n_own;
    size_t all = (size_t)x.n * (size_t)x.R;
    float *z;
    (void)kind; /* of all parts of the group */
    x.n_dir = fv_latent_bits(l, &lead->shape[0], bits);
    FV_TRY(FV_ARENA_NEW(ctx->scratch, all, x.z));
    FV_TRY(FV_ARENA_NEW(ctx->scratch, all, z));
    FV_TRY(FV_ARENA_NEW(ctx->scratch, x.R, x.offset));
    FV_TRY(FV_ARENA_NEW(ctx->scratch, (size_t)x.n_dir * (size_t)x.n_dir, x.gram));
    FV_TRY(FV_ARENA_NEW(ctx->scratch, 2 * x.group, x.weight));
    FV_TRY(project_all(ctx, first, &x));
    memcpy(z, x.z, all * sizeof *z);
    set_own(&x, 0);
    FV_TRY(write_codes(&x, x.z));
    FV_TRY(visit_all(ctx, compare, &x));
    if (most > 0) FV_TRY(add_own(ctx, &x, most, z));
    drop_empty(&x);
    return FV_OK;
}

const fv_pack_method fv_pack_latent = {
    .begin = begin,
    .part = part,
    .end = fv_pack_layer_end,
    .none = "no group of layers has so many tokens that coefficients are smaller"};
