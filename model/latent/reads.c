/* Accumulates queries into weights (reads.h). */
#include "model/latent/reads.h"

#include <math.h>
#include <stdlib.h>

#include "common/arena.h"
#include "common/convert.h"

typedef struct layer_reads {
    double *gram; /* [H, D, D] W_o^T W_o per head */
    double *key;  /* [Hkv, D, D] the lower triangle of the sum */
    double *paid; /* [H] sum of a^2 */
    int64_t n;
} layer_reads;

struct fv_latent_reads {
    int32_t n_layer, n_head, n_kv;
    size_t d_head;
    fv_arena arena;
    layer_reads *layer; /* [n_layer] */
    double *u, *off;    /* [D] */
};

static fv_status open_arrays(fv_latent_reads *r) {
    size_t square = r->d_head * r->d_head;
    FV_TRY(FV_ARENA_NEW(&r->arena, r->n_layer, r->layer));
    FV_TRY(FV_ARENA_NEW(&r->arena, r->d_head, r->u));
    FV_TRY(FV_ARENA_NEW(&r->arena, r->d_head, r->off));
    for (int32_t l = 0; l < r->n_layer; l++) {
        FV_TRY(FV_ARENA_NEW(&r->arena, (size_t)r->n_head * square, r->layer[l].gram));
        FV_TRY(FV_ARENA_NEW(&r->arena, (size_t)r->n_kv * square, r->layer[l].key));
        FV_TRY(FV_ARENA_NEW(&r->arena, r->n_head, r->layer[l].paid));
    }
    return FV_OK;
}

fv_status fv_latent_reads_open(int32_t n_layer, int32_t n_head, int32_t n_kv, int32_t d_head,
                               fv_latent_reads **out) {
    fv_latent_reads *r = calloc(1, sizeof *r);
    if (!r) return FV_FAIL(FV_ENOMEM, "out of memory for weights of latent directions");
    *r = (fv_latent_reads){
        .n_layer = n_layer, .n_head = n_head, .n_kv = n_kv, .d_head = (size_t)d_head};
    fv_status st = open_arrays(r);
    if (st == FV_OK)
        *out = r;
    else
        fv_latent_reads_close(r);
    return st;
}

void fv_latent_reads_close(fv_latent_reads *r) {
    if (!r) return;
    fv_arena_fini(&r->arena);
    free(r);
}

fv_status fv_latent_reads_output(fv_latent_reads *r, int32_t layer, const fv_tensor *w) {
    size_t D = r->d_head, width = (size_t)r->n_head * D;
    float *row = malloc(width * sizeof *row);
    if (!row) return FV_FAIL(FV_ENOMEM, "out of memory for a row of the output projection");
    for (int32_t i = 0; i < w->rows; i++) {
        size_t at = (size_t)i * (size_t)w->ld * fv_dtype_bytes(w->dtype);
        widen_row((const char *)w->data + at, w->dtype, width, row);
        for (size_t h = 0; h < (size_t)r->n_head; h++) {
            double *gram = r->layer[layer].gram + h * D * D;
            const float *x = row + h * D;
            for (size_t a = 0; a < D; a++)
                for (size_t b = 0; b < D; b++) gram[a * D + b] += (double)x[a] * (double)x[b];
        }
    }
    free(row);
    return FV_OK;
}

/* |(v - o) W_o|^2 */
static double reach(const fv_latent_reads *r, const double *gram, const float *v, const float *o) {
    size_t D = r->d_head;
    double sum = 0;
    for (size_t c = 0; c < D; c++) r->off[c] = (double)v[c] - (double)o[c];
    for (size_t a = 0; a < D; a++) {
        double line = 0;
        for (size_t b = 0; b < D; b++) line += gram[a * D + b] * r->off[b];
        sum += r->off[a] * line;
    }
    return sum;
}

/* u = Rot(-p_j) q */
static void turn_back(const fv_latent_reads *r, const fv_latent_query *q, const float *x,
                      size_t j) {
    size_t half = (size_t)q->half;
    const float *cosine = q->cosine + j * half, *sine = q->sine + j * half;
    for (size_t c = 0; c < r->d_head; c++) r->u[c] = (double)x[c];
    for (size_t i = 0; i < half; i++) {
        double a = (double)x[i], b = (double)x[i + half];
        r->u[i] = a * (double)cosine[i] + b * (double)sine[i];
        r->u[i + half] = b * (double)cosine[i] - a * (double)sine[i];
    }
}

static void add_head(fv_latent_reads *r, layer_reads *l, size_t h, const fv_latent_query *q) {
    size_t D = r->d_head, g = h / (size_t)(r->n_head / r->n_kv), n = (size_t)q->n;
    const float *x = q->q + h * D, *o = q->o + h * D;
    double *key = l->key + g * D * D, scale = (double)q->scale;
    for (size_t j = (size_t)q->first; j < n; j++) {
        const float *k = q->k + (g * n + j) * D, *v = q->v + (g * n + j) * D;
        double score = 0;
        for (size_t c = 0; c < D; c++) score += (double)x[c] * (double)k[c];
        double a = exp(scale * score - (double)q->lse[h]);
        double weight = a * a * scale * scale * reach(r, l->gram + h * D * D, v, o);
        turn_back(r, q, x, j);
        l->paid[h] += a * a;
        for (size_t i = 0; i < D; i++)
            for (size_t c = 0; c <= i; c++) key[i * D + c] += weight * r->u[i] * r->u[c];
    }
}

void fv_latent_reads_add(fv_latent_reads *r, int32_t layer, const fv_latent_query *q) {
    layer_reads *l = &r->layer[layer];
    for (size_t h = 0; h < (size_t)r->n_head; h++) add_head(r, l, h, q);
    l->n++;
}

int64_t fv_latent_reads_count(const fv_latent_reads *r, int32_t layer) { return r->layer[layer].n; }

void fv_latent_reads_weights(const fv_latent_reads *r, int32_t layer, int kind, double *m) {
    const layer_reads *l = &r->layer[layer];
    size_t D = r->d_head, group = (size_t)(r->n_head / r->n_kv);
    for (size_t g = 0; g < (size_t)r->n_kv; g++, m += D * D)
        for (size_t a = 0; a < D; a++)
            for (size_t b = 0; b < D; b++) {
                double sum = kind ? 0 : l->key[g * D * D + (a > b ? a * D + b : b * D + a)];
                for (size_t h = g * group; kind && h < (g + 1) * group; h++)
                    sum += l->paid[h] * l->gram[(h * D + a) * D + b];
                m[a * D + b] = sum;
            }
}
