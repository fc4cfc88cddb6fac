#ifndef FOVEA_KERNELS_CPU_PLAIN_PACKED_H
#define FOVEA_KERNELS_CPU_PLAIN_PACKED_H

/* Attention on packed rows of any form (kernels/ops.h): an item is one query row and head, which goes through
 * the block row by row. The form says how a row is read. */
#include <string.h>

#include "kernels/cpu/plain/bf16.h"
#include "packed/latent.h"

typedef struct packed_query packed_query;

typedef struct packed_form {
    void (*open)(packed_query *x);                   /* begins a sequence */
    void (*anchor)(packed_query *x, int32_t anchor); /* begins a block; NULL: nothing to do */
    float (*score)(packed_query *x, int32_t j);      /* of row j, before the scale */
    size_t (*value)(packed_query *x, int32_t j, float *to);    /* row j of w; returns its length */
    void (*output)(const packed_query *x, size_t n, float *o); /* o [D] from z [n] */
} packed_form;

struct packed_query {
    const fv_attn_packed_args *a;
    const fv_packed_seq *seq;
    const packed_form *form;
    fv_compute compute;
    int32_t row, h, g;    /* of the sequence; query head, KV head */
    size_t n_z;           /* length of z; open() sets it */
    float *q, *t, *u, *z; /* [head dim or rank]; the form uses q, t and u as it likes */
    float *w;             /* [FV_KV_BLOCK, width] rows to sum in z */
    size_t width;         /* allocated length of each array */
};

/* The most numbers of a row that is read without being rebuilt; 0: rows are rebuilt. */
static inline size_t packed_numbers(const fv_packed_part *p) {
    if (p->shape.form == FV_PACKED_LOWRANK) return (size_t)p->shape.lowrank.rank;
    if (p->shape.form != FV_PACKED_LATENT) return 0;
    return 2 + (size_t)(p->latent->n_dir + p->shape.latent.n_own);
}

static inline fv_cpu_plan packed_plan(const fv_cpu_attention *c) {
    const fv_attn_packed_args *a = c->a;
    fv_cpu_plan plan = {.grain = 1};
    size_t most = (size_t)a->d_head;
    for (int i = 0; i < a->n_seq; i++) {
        const fv_packed_seq *seq = &a->seqs[i];
        plan.n_item += (int64_t)seq->n_rows * a->n_head;
        size_t k = packed_numbers(seq->k), v = packed_numbers(seq->v);
        most = k > most ? k : most;
        most = v > most ? v : most;
    }
    plan.scratch_bytes = (4 + FV_KV_BLOCK) * most * sizeof(float);
    return plan;
}

/* Adds n products to sum: one chain, or canonical in bf16. */
static inline float packed_products(const packed_query *x, float sum, const float *a,
                                    const float *b, size_t n) {
    if (x->compute == FV_COMPUTE_BF16) return plain_dot_bf16_on(sum, a, FV_F32, b, FV_F32, n);
    for (size_t i = 0; i < n; i++) sum = fmaf(a[i], b[i], sum);
    return sum;
}

/* The score, before the scale: the query times key k [D] of row j, rotated by the angles of its anchor or of
 * the token itself. */
static inline float packed_score_of_key(const packed_query *x, int32_t j, float *k) {
    size_t D = (size_t)x->a->d_head, half = D / 2, tile = (size_t)j / FV_PACKED_TILE;
    const fv_packed_rows *rows = x->seq->rows;
    const float *q = row_f32(&x->a->q, (int64_t)x->seq->row0 + x->row) + (size_t)x->h * D;
    for (size_t i = 0; rows->cos && i < half; i++) {
        size_t at = (tile * half + i) * FV_PACKED_TILE + (size_t)j % FV_PACKED_TILE;
        float a = k[i], b = k[i + half], c = rows->cos[at], s = rows->sin[at];
        k[i] = fmaf(a, c, -(b * s));
        k[i + half] = fmaf(b, c, a * s);
    }
    return packed_products(x, 0.0f, q, k, D);
}

/* Scores rows [j0, j1), -inf for those that are not valid; returns whether any is. *anchor: in, the anchor
 * block of the row before; out, that of the last row. */
static inline bool packed_scores(packed_query *x, int32_t j0, int32_t j1, int32_t *anchor, float *s,
                                 bool *valid) {
    const fv_packed_rows *rows = x->seq->rows;
    bool any = false;
    for (int32_t j = j0; j < j1; j++) {
        while (*anchor < 0 || j >= rows->first[*anchor + 1]) {
            ++*anchor;
            if (x->form->anchor) x->form->anchor(x, *anchor);
        }
        valid[j - j0] = !rows->valid || j - rows->first[*anchor] < rows->valid[*anchor];
        s[j - j0] = -INFINITY;
        if (!valid[j - j0]) continue;
        s[j - j0] = x->a->scale * x->form->score(x, j);
        any = true;
    }
    return any;
}

/* z = z c + sum of p_j w_j over the valid ones of nb rows; z[r] sums the rows longer than r, in order. */
static inline void packed_values(packed_query *x, int32_t j0, int32_t nb, const bool *valid,
                                 const float *p, float c) {
    size_t rank[FV_KV_BLOCK] = {0};
    for (int32_t j = 0; j < nb; j++)
        if (valid[j]) rank[j] = x->form->value(x, j0 + j, x->w + (size_t)j * x->width);
    for (size_t r = 0; r < x->n_z; r++) {
        float ps[FV_KV_BLOCK], ws[FV_KV_BLOCK];
        size_t n = 0;
        for (int32_t j = 0; j < nb; j++)
            if (r < rank[j]) ps[n] = p[j], ws[n++] = x->w[(size_t)j * x->width + r];
        x->z[r] = packed_products(x, x->z[r] * c, ps, ws, n);
    }
}

/* Online softmax over the block: computes z, returns lse; *l_out: the sum to divide by. */
static inline float packed_attend(packed_query *x, float *capture, float *l_out) {
    float m = -INFINITY, l = 0.0f, p[FV_KV_BLOCK];
    int32_t anchor = -1, n = x->seq->rows->n;
    memset(x->z, 0, x->n_z * sizeof *x->z);
    for (int32_t j0 = 0; j0 < n; j0 += FV_KV_BLOCK) {
        int32_t nb = n - j0 < FV_KV_BLOCK ? n - j0 : FV_KV_BLOCK;
        float m_new = m;
        bool valid[FV_KV_BLOCK], any = packed_scores(x, j0, j0 + nb, &anchor, p, valid);
        if (capture) memcpy(capture + j0, p, (size_t)nb * sizeof *p);
        if (!any) continue;
        for (int32_t j = 0; j < nb; j++) m_new = p[j] > m_new ? p[j] : m_new;
        float c = exp_f32(m - m_new);
        for (int32_t j = 0; j < nb; j++) {
            p[j] = exp_f32(p[j] - m_new);
            if (x->compute == FV_COMPUTE_BF16) p[j] = f32_of_bf16(bf16_of_f32(p[j]));
        }
        l = fmaf(l, c, plain_sum(p, (size_t)nb));
        packed_values(x, j0, nb, valid, p, c);
        m = m_new;
    }
    *l_out = l;
    return l == 0.0f ? -INFINITY : m + log_f32(l);
}

static inline void packed_output(packed_query *x, float l, float *o) {
    size_t D = (size_t)x->a->d_head;
    for (size_t d = 0; d < D; d++) o[d] = 0.0f;
    if (l == 0.0f) return;
    x->form->output(x, x->n_z, o);
    for (size_t d = 0; d < D; d++) o[d] /= l;
}

static inline void packed_query_row(packed_query *x) {
    const fv_attn_packed_args *a = x->a;
    int64_t row = (int64_t)x->seq->row0 + x->row;
    int32_t captured = x->row - (x->seq->n_rows - x->seq->score_rows);
    float l, *capture = NULL;
    if (x->seq->score && captured >= 0) {
        capture = x->seq->score + ((size_t)x->h * (size_t)x->seq->score_rows + (size_t)captured) *
                                      (size_t)x->seq->score_ld;
        for (int32_t j = 0; j < x->seq->score_ld; j++) capture[j] = -INFINITY;
    }
    float lse = packed_attend(x, capture, &l);
    packed_output(x, l, row_f32(&a->o, row) + (size_t)x->h * (size_t)a->d_head);
    if (a->lse.data) row_f32(&a->lse, row)[x->h] = lse;
}

/* Computes items [begin, end). x: the first member of the form's own struct. */
static inline void packed_attend_rows(packed_query *x, const fv_cpu_attention *c, void *scratch,
                                      int64_t begin, int64_t end) {
    const fv_attn_packed_args *a = c->a;
    x->width = packed_plan(c).scratch_bytes / sizeof(float) / (4 + FV_KV_BLOCK);
    x->a = a;
    x->compute = c->compute;
    x->q = scratch;
    x->t = x->q + x->width;
    x->u = x->t + x->width;
    x->z = x->u + x->width;
    x->w = x->z + x->width;
    for (int i = 0; i < a->n_seq; i++) {
        x->seq = &a->seqs[i];
        x->form->open(x);
        int64_t n = (int64_t)x->seq->n_rows * a->n_head;
        for (int64_t it = begin < 0 ? 0 : begin; it < end && it < n; it++) {
            x->row = (int32_t)(it / a->n_head);
            x->h = (int32_t)(it % a->n_head);
            x->g = x->h / (a->n_head / a->n_kv);
            packed_query_row(x);
        }
        begin -= n;
        end -= n;
    }
}

#endif
