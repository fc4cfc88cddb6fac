/* Attention in rank space (attn_lowrank), and on quantized and depth-merged rows (attn_quantized), as
 * kernels/ops.h words them: an item is one query row and head; one row of the block after the
 * other. */
#include <string.h>

#include "kernels/cpu/plain.h"
#include "kernels/packed_read.h"

typedef struct packed_query {
    const fv_attn_packed_args *a;
    const fv_packed_seq *seq;
    bool coded;        /* rows are codes or directions, */
    codes_view ck, cv; /* these, */
    packed_view k, v;  /* and if not, factors */
    int32_t row, h, g; /* of the sequence; query head, KV head */
    float *q, *t;      /* [D] rotated, [R] latent */
    float *u, *z;      /* [R], of codes [D] */
} packed_query;

static fv_cpu_plan plan_of(const fv_attn_packed_args *a) {
    fv_cpu_plan plan = {.grain = 1};
    size_t most = (size_t)a->d_head;
    for (int i = 0; i < a->n_seq; i++) {
        const fv_packed_seq *seq = &a->seqs[i];
        plan.n_item += (int64_t)seq->n_rows * a->n_head;
        size_t k = (size_t)seq->k->shape.rank, v = (size_t)seq->v->shape.rank;
        most = k > most ? k : most;
        most = v > most ? v : most;
    }
    plan.scratch_bytes = 4 * most * sizeof(float);
    return plan;
}

/* t_a = B_k Rot(-a) q. */
static void packed_latent(packed_query *x, int32_t anchor) {
    size_t D = (size_t)x->a->d_head, half = D / 2;
    const float *q = row_f32(&x->a->q, (int64_t)x->seq->row0 + x->row) + (size_t)x->h * D;
    const fv_packed_rows *rows = x->seq->rows;
    memcpy(x->q, q, D * sizeof *q);
    for (size_t i = 0; rows->cos && i < half; i++) {
        float c = rows->cos[(size_t)anchor * half + i], s = rows->sin[(size_t)anchor * half + i];
        x->q[i] = fmaf(q[i], c, q[i + half] * s);
        x->q[i + half] = fmaf(q[i + half], c, -(q[i] * s));
    }
    for (size_t r = 0; r < (size_t)x->k.s.rank; r++) {
        float t = 0.0f;
        for (size_t d = 0; d < D; d++)
            t = fmaf(x->q[d], packed_basis_number(&x->k, (size_t)x->g, r, d), t);
        x->t[r] = t;
    }
}

/* Whether z is the output itself: values are codes, directions or rows. */
static bool packed_is_output(const packed_query *x) {
    return x->coded || fv_packed_is_rows(&x->v.s);
}

/* Numbers that are summed for the output: of values' factors, or of a head. */
static size_t packed_summed(const packed_query *x) {
    return (size_t)(packed_is_output(x) ? x->a->d_head : x->v.s.rank);
}

/* Row j of such keys, rotated by its anchor, times the query. */
static float coded_score(const packed_query *x, int32_t j) {
    size_t D = (size_t)x->a->d_head, half = D / 2, tile = (size_t)j / FV_PACKED_TILE;
    const fv_packed_rows *rows = x->seq->rows;
    const float *q = row_f32(&x->a->q, (int64_t)x->seq->row0 + x->row) + (size_t)x->h * D;
    float *k = x->u, sum = 0.0f;
    codes_row(&x->ck, (size_t)x->g, (size_t)j, k);
    for (size_t i = 0; rows->cos && i < half; i++) {
        size_t at = (tile * half + i) * FV_PACKED_TILE + (size_t)j % FV_PACKED_TILE;
        float a = k[i], b = k[i + half], c = rows->cos[at], s = rows->sin[at];
        k[i] = fmaf(a, c, -(b * s));
        k[i + half] = fmaf(b, c, a * s);
    }
    for (size_t d = 0; d < D; d++) sum = fmaf(q[d], k[d], sum);
    return sum;
}

/* The row's numbers, 0 beyond the rank at which it is read. Returns that rank. */
static size_t packed_number(const packed_query *x, const packed_view *part, int32_t j, float *u) {
    const uint8_t *group = x->seq->rows->group;
    bool low = group && group[j];
    void (*read)(const packed_view *, int, size_t, float *restrict) =
        part->s.kind == FV_PACKED_K ? packed_k_row : packed_v_row;
    read(part, 0, (size_t)j, u);
    if (low)
        memset(u + part->s.rank2, 0, fv_packed_tier_rank(&part->s, 1) * sizeof *u);
    else
        read(part, 1, (size_t)j, u + part->s.rank2);
    return (size_t)(low ? part->s.rank2 : part->s.rank);
}

static float ranked_score(const packed_query *x, int32_t j) {
    float sum = 0.0f;
    packed_number(x, &x->k, j, x->u);
    for (int32_t r = 0; r < x->k.s.rank; r++) sum = fmaf(x->t[r], x->u[r], sum);
    return sum;
}

/* What row j adds to the sums: its numbers in rank space, or its values. Returns how many. */
static size_t packed_value(const packed_query *x, int32_t j, float *u) {
    if (x->coded)
        codes_row(&x->cv, (size_t)x->g, (size_t)j, u);
    else if (fv_packed_is_rows(&x->v.s))
        packed_row(&x->v, (size_t)x->g, (size_t)j, u);
    else
        return packed_number(x, &x->v, j, u);
    return packed_summed(x);
}

/* Scores of rows [j0, j1), -inf for those that are not valid; returns whether any is. anchor: the
 * block of the row before, whose latent query x holds; moves on. */
static bool packed_scores(packed_query *x, int32_t j0, int32_t j1, int32_t *anchor, float *s,
                          bool *valid) {
    const fv_packed_rows *rows = x->seq->rows;
    bool any = false;
    for (int32_t j = j0; j < j1; j++) {
        while (*anchor < 0 || j >= rows->first[*anchor + 1]) {
            ++*anchor;
            if (!x->coded) packed_latent(x, *anchor);
        }
        valid[j - j0] = !rows->valid || j - rows->first[*anchor] < rows->valid[*anchor];
        s[j - j0] = -INFINITY;
        if (!valid[j - j0]) continue;
        s[j - j0] = x->a->scale * (x->coded ? coded_score(x, j) : ranked_score(x, j));
        any = true;
    }
    return any;
}

/* Online softmax over the block; z, returns lse, *l_out the sum to divide by. */
static float packed_attend(packed_query *x, float *capture, float *l_out) {
    size_t R = packed_summed(x);
    float m = -INFINITY, l = 0.0f, p[FV_KV_BLOCK];
    int32_t anchor = -1, n = x->seq->rows->n;
    memset(x->z, 0, R * sizeof *x->z);
    for (int32_t j0 = 0; j0 < n; j0 += FV_KV_BLOCK) {
        int32_t nb = n - j0 < FV_KV_BLOCK ? n - j0 : FV_KV_BLOCK;
        float m_new = m;
        bool valid[FV_KV_BLOCK], any = packed_scores(x, j0, j0 + nb, &anchor, p, valid);
        if (capture) memcpy(capture + j0, p, (size_t)nb * sizeof *p);
        if (!any) continue;
        for (int32_t j = 0; j < nb; j++) m_new = p[j] > m_new ? p[j] : m_new;
        float c = exp_f32(m - m_new);
        for (size_t r = 0; r < R; r++) x->z[r] *= c;
        for (int32_t j = 0; j < nb; j++) p[j] = exp_f32(p[j] - m_new);
        l = fmaf(l, c, plain_sum(p, (size_t)nb));
        for (int32_t j = 0; j < nb; j++) {
            if (!valid[j]) continue;
            size_t rank = packed_value(x, j0 + j, x->u);
            for (size_t r = 0; r < rank; r++) x->z[r] = fmaf(p[j], x->u[r], x->z[r]);
        }
        m = m_new;
    }
    *l_out = l;
    return l == 0.0f ? -INFINITY : m + log_f32(l);
}

static void packed_output(packed_query *x, float l, float *o) {
    size_t D = (size_t)x->a->d_head;
    for (size_t d = 0; d < D; d++) o[d] = 0.0f;
    if (l == 0.0f) return;
    if (packed_is_output(x)) memcpy(o, x->z, D * sizeof *o);
    for (size_t r = 0; !packed_is_output(x) && r < (size_t)x->v.s.rank; r++)
        for (size_t d = 0; d < D; d++)
            o[d] = fmaf(x->z[r], packed_basis_number(&x->v, (size_t)x->g, r, d), o[d]);
    for (size_t d = 0; d < D; d++) o[d] /= l;
}

static void packed_query_row(packed_query *x) {
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

static void attend_rows(const fv_attn_packed_args *a, bool coded, void *scratch, int64_t begin,
                        int64_t end) {
    size_t room = plan_of(a).scratch_bytes / sizeof(float) / 4;
    packed_query x = {.a = a, .coded = coded, .q = scratch};
    x.t = x.q + room;
    x.u = x.t + room;
    x.z = x.u + room;
    for (int i = 0; i < a->n_seq; i++) {
        x.seq = &a->seqs[i];
        if (coded) {
            x.ck = codes_view_of(x.seq->k);
            x.cv = codes_view_of(x.seq->v);
        } else {
            x.k = packed_view_of(x.seq->k);
            x.v = packed_view_of(x.seq->v);
        }
        int64_t n = (int64_t)x.seq->n_rows * a->n_head;
        for (int64_t it = begin < 0 ? 0 : begin; it < end && it < n; it++) {
            x.row = (int32_t)(it / a->n_head);
            x.h = (int32_t)(it % a->n_head);
            x.g = x.h / (a->n_head / a->n_kv);
            packed_query_row(&x);
        }
        begin -= n;
        end -= n;
    }
}

fv_cpu_plan fv_plain_attn_lowrank_plan(const void *args) { return plan_of(args); }

void fv_plain_attn_lowrank(const void *args, void *scratch, int64_t begin, int64_t end) {
    attend_rows(args, false, scratch, begin, end);
}

/* Codes have no rank: the same plan serves, with what a head needs. */
fv_cpu_plan fv_plain_attn_quantized_plan(const void *args) { return plan_of(args); }

void fv_plain_attn_quantized(const void *args, void *scratch, int64_t begin, int64_t end) {
    attend_rows(args, true, scratch, begin, end);
}
