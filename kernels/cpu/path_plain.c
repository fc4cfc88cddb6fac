/* The plain path: what every other path must compute, bit for bit.
 *
 * One output at a time, one element at a time, from where it lies, in the order that
 * kernels/ops.h defines; nothing is packed, blocked or shared. Compiled for any x86-64 (fmaf
 * is then a call into libm, exact on every machine), so it is also the path of machines
 * without AVX2: correct, and some hundred times slower than the others. */
#include "kernels/cpu/path.h"
#include "kernels/cpu/rowwise.inc"

#include "kernels/cpu/packed_rows.inc"

#include "kernels/cpu/merge.inc"

/* The canonical dot product of n elements of x and w. */
static float dot(const float *x, const void *w, fv_dtype t, size_t n) {
    float acc[LANES] = {0};
    for (size_t k = 0; k < n; k += LANES)
        for (size_t i = 0; i < LANES; i++) {
            bool inside = k + i < n;
            float xi = inside ? x[k + i] : 0.0f, wi = inside ? widened(w, t, k + i) : 0.0f;
            acc[i] = fmaf(xi, wi, acc[i]);
        }
    return lanes_tree(acc);
}

/* ---- linear: an item is one output column ---------------------------------------------- */

static fv_cpu_plan linear_plan(const fv_linear_args *a) {
    fv_cpu_plan plan = {.grain = 1};
    for (int p = 0; p < a->n_part; p++) plan.n_item += a->part[p].w.rows;
    return plan;
}

static void linear_column(const fv_tensor *x, const fv_linear_part *p, int64_t n) {
    fv_tensor w = fv_tensor_rows(p->w, (int32_t)n, 1);
    for (int64_t m = 0; m < x->rows; m++) {
        float *y = row_f32(&p->y, m) + n;
        float sum = dot(row_f32(x, m), w.data, w.dtype, (size_t)w.cols);
        if (p->bias.data) sum += widened(p->bias.data, p->bias.dtype, (size_t)n);
        if (p->accumulate) sum += *y;
        *y = sum;
    }
}

static void linear(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_linear_args *a = args;
    (void)scratch;
    for (int p = 0; p < a->n_part; p++) {
        int64_t N = a->part[p].w.rows;
        for (int64_t n = begin < 0 ? 0 : begin; n < end && n < N; n++)
            linear_column(&a->x, &a->part[p], n);
        begin -= N;
        end -= N;
    }
}

/* ---- matmul_nn: an item is one output row ------------------------------------------------- */

static fv_cpu_plan matmul_nn_plan(const fv_matmul_nn_args *a) {
    return (fv_cpu_plan){.n_item = a->y.rows, .grain = 1};
}

static void matmul_nn(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_matmul_nn_args *a = args;
    (void)scratch;
    for (int64_t m = begin; m < end; m++) {
        const float *x = row_f32(&a->x, m);
        float *y = row_f32(&a->y, m);
        for (int32_t n = 0; n < a->w.cols; n++) y[n] = 0.0f;
        for (int32_t k = 0; k < a->w.rows; k++)
            for (int32_t n = 0; n < a->w.cols; n++) {
                size_t at = (size_t)k * (size_t)a->w.ld + (size_t)n;
                y[n] = fmaf(x[k], widened(a->w.data, a->w.dtype, at), y[n]);
            }
    }
}

/* ---- syrk: an item is one row of the result --------------------------------------------- */

static fv_cpu_plan syrk_plan(const fv_syrk_args *a) {
    return (fv_cpu_plan){.n_item = a->x.rows, .grain = 1};
}

static double syrk_one(const float *x, const float *y, size_t K) {
    double acc[8] = {0};
    for (size_t k = 0; k < K; k++) acc[k % 8] += (double)x[k] * (double)y[k];
    for (size_t s = 4; s > 0; s /= 2)
        for (size_t i = 0; i < s; i++) acc[i] += acc[i + s];
    return acc[0];
}

static void syrk(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_syrk_args *a = args;
    (void)scratch;
    for (int64_t m = begin; m < end; m++)
        for (int64_t n = 0; n <= m; n++)
            a->g[m * a->x.rows + n] =
                syrk_one(row_f32(&a->x, m), row_f32(&a->x, n), (size_t)a->x.cols);
}

/* ---- attention: an item is one query row, all its heads -------------------------------- */

static fv_cpu_plan attention_plan(const fv_attn_args *a) {
    fv_cpu_plan plan = {.grain = 1};
    for (int i = 0; i < a->n_seq; i++) plan.n_item += a->seqs[i].n_rows;
    return plan;
}

/* One query vector, and the runs of its KV head. */
typedef struct query {
    const fv_attn_args *a;
    const fv_attn_seq *seq;
    const float *q;               /* [D] */
    const fv_block_table *tables; /* [n_seg] */
    int32_t row;                  /* of the sequence */
} query;

/* How many rows of segment s it sees. */
static int32_t visible(const query *u, int s) {
    const int32_t *masked_tail = u->seq->masked_tail;
    int32_t n = u->tables[s].len - (masked_tail ? masked_tail[s * u->seq->n_rows + u->row] : 0);
    return n < 0 ? 0 : n;
}

static const void *kv_row(const query *u, const void *base, int32_t j) {
    size_t bytes = (size_t)u->a->d_head * fv_dtype_bytes(u->a->kv_dtype);
    return (const char *)base + (size_t)(j % FV_KV_BLOCK) * bytes;
}

static float score(const query *u, int s, int32_t j) {
    const void *k = kv_row(u, u->tables[s].block[j / FV_KV_BLOCK].k, j);
    return u->a->scale * dot(u->q, k, u->a->kv_dtype, (size_t)u->a->d_head);
}

static uint8_t share_of(const query *u) {
    return u->seq->share ? u->seq->share[u->row] : FV_SHARE_KEPT;
}

/* Of nb probabilities of segment 0 from row j0 on, those of rows that are dropped. */
static void drop_first(const query *u, int32_t j0, int32_t nb, float *p) {
    for (int32_t j = 0; j < nb && share_of(u) == FV_SHARE_WITHOUT_FIRST; j++)
        if (j0 + j < u->seq->n_first) p[j] = 0.0f;
}

/* What a share that is not kept leaves of o behind segment 0. */
static void edit_share(const query *u, float l, float *o) {
    uint8_t share = share_of(u);
    if (share == FV_SHARE_KEPT || share == FV_SHARE_WITHOUT_FIRST || visible(u, 0) == 0) return;
    const void *v = u->tables[0].block[0].v;
    for (int32_t d = 0; d < u->a->d_head; d++)
        o[d] = share == FV_SHARE_ON_FIRST ? l * widened(v, u->a->kv_dtype, (size_t)d) : 0.0f;
}

/* Online softmax over blocks. o [D]; returns lse. */
static float attend(const query *u, float *o) {
    int32_t D = u->a->d_head;
    bool first = u->seq->n == 0.0f;
    float m = log_f32(u->seq->n), l = first ? 0.0f : 1.0f;
    for (int32_t d = 0; d < D; d++) o[d] = 0.0f;
    for (int s = 0; s < u->seq->n_seg; s++) {
        for (int32_t j0 = 0, n = visible(u, s); j0 < n; j0 += FV_KV_BLOCK) {
            int32_t nb = n - j0 < FV_KV_BLOCK ? n - j0 : FV_KV_BLOCK;
            float p[FV_KV_BLOCK], m_new = m;
            for (int32_t j = 0; j < nb; j++) {
                p[j] = score(u, s, j0 + j);
                m_new = p[j] > m_new ? p[j] : m_new;
            }
            for (int32_t j = 0; j < nb; j++) p[j] = exp_f32(p[j] - m_new);
            float c = first ? 0.0f : exp_f32(m - m_new);
            l = fmaf(l, c, sum_row(p, (size_t)nb));
            if (s == 0) drop_first(u, j0, nb, p);
            const void *v = u->tables[s].block[j0 / FV_KV_BLOCK].v;
            for (int32_t d = 0; d < D; d++) {
                o[d] *= c;
                for (int32_t j = 0; j < nb; j++)
                    o[d] = fmaf(p[j], widened(kv_row(u, v, j), u->a->kv_dtype, (size_t)d), o[d]);
            }
            m = m_new;
            first = false;
        }
        if (s == 0) edit_share(u, l, o);
    }
    if (first) return -INFINITY;
    for (int32_t d = 0; d < D; d++) o[d] /= l;
    return m + log_f32(l);
}

static query query_of(const fv_attn_args *a, const fv_attn_seq *seq, int32_t i, int32_t h) {
    int32_t group = a->n_head / a->n_kv;
    return (query){.a = a,
                   .seq = seq,
                   .row = i,
                   .q = row_f32(&a->q, (int64_t)seq->row0 + i) + (size_t)h * (size_t)a->d_head,
                   .tables = seq->tables + (ptrdiff_t)(h / group) * seq->n_seg};
}

static void attention_row(const fv_attn_args *a, const fv_attn_seq *seq, int32_t i) {
    int64_t row = (int64_t)seq->row0 + i;
    for (int32_t h = 0; h < a->n_head; h++) {
        query u = query_of(a, seq, i, h);
        float lse = attend(&u, row_f32(&a->o, row) + (size_t)h * (size_t)a->d_head);
        if (a->lse.data) row_f32(&a->lse, row)[h] = lse;
    }
}

static void attention(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_attn_args *a = args;
    (void)scratch;
    for (int s = 0; s < a->n_seq; s++) {
        int32_t n = a->seqs[s].n_rows;
        for (int64_t i = begin < 0 ? 0 : begin; i < end && i < n; i++)
            attention_row(a, &a->seqs[s], (int32_t)i);
        begin -= n;
        end -= n;
    }
}

/* ---- score_sums: an item is one query head of one sum ------------------------------- */

static fv_cpu_plan score_sums_plan(const fv_score_sums_args *a) {
    return (fv_cpu_plan){.grain = 1, .n_item = (int64_t)a->n_sum * a->attn->n_head};
}

/* The share of each key that a row sees, were all paid alike. */
static float even_share(const query *u) {
    int32_t n = 0;
    for (int s = 0; s < u->seq->n_seg; s++) n += visible(u, s);
    return 1.0f / (float)n;
}

static void attention_sum(const fv_attn_args *a, const fv_score_sum *q, int32_t h) {
    const fv_attn_seq *seq = &a->seqs[q->seq];
    for (int32_t i = 0; i < q->n_row; i++) {
        query u = query_of(a, seq, seq->n_rows - q->n_row + i, h);
        float lse = lse_with(row_f32(&a->lse, (int64_t)seq->row0 + u.row)[h], q->n);
        int32_t line = h * q->n_kind + (q->kind ? q->kind[i] : 0);
        for (int s = 0; s < seq->n_seg; s++) {
            float *sum = q->sum + (size_t)line * (size_t)q->ld + q->column[s];
            const float *w =
                q->weight ? q->weight + (size_t)i * (size_t)q->ld + q->column[s] : NULL;
            for (int32_t j = 0, n = visible(&u, s); j < n; j++) {
                float p = exp_f32(score(&u, s, j) - lse);
                if (q->low) p = p < even_share(&u) ? 1.0f : 0.0f;
                sum[j] += w ? w[j] * p : p;
            }
        }
    }
}

/* The largest that any head of row i pays to key j of segment s. */
static float peak_of(const fv_attn_args *a, const fv_score_sum *q, int32_t i, int s, int32_t j) {
    const fv_attn_seq *seq = &a->seqs[q->seq];
    float most = 0.0f;
    for (int32_t h = 0; h < a->n_head; h++) {
        query u = query_of(a, seq, seq->n_rows - q->n_row + i, h);
        float lse = lse_with(row_f32(&a->lse, (int64_t)seq->row0 + u.row)[h], q->n);
        float p = exp_f32(score(&u, s, j) - lse);
        most = p > most ? p : most;
    }
    return most;
}

static void attention_peaks(const fv_attn_args *a, const fv_score_sum *q) {
    const fv_attn_seq *seq = &a->seqs[q->seq];
    for (int32_t i = 0; i < q->n_row; i++) {
        query u = query_of(a, seq, seq->n_rows - q->n_row + i, 0);
        for (int s = 0; s < seq->n_seg; s++) {
            int32_t line = q->kind ? q->kind[i] : 0;
            float *sum = q->sum + (size_t)line * (size_t)q->ld + q->column[s];
            for (int32_t j = 0, n = visible(&u, s); j < n; j++) sum[j] += peak_of(a, q, i, s, j);
        }
    }
}

static void score_sums(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_score_sums_args *a = args;
    (void)scratch;
    for (int64_t i = begin; i < end; i++) {
        const fv_score_sum *q = &a->sums[i / a->attn->n_head];
        int32_t h = (int32_t)(i % a->attn->n_head);
        if (!q->head_max)
            attention_sum(a->attn, q, h);
        else if (h == 0)
            attention_peaks(a->attn, q);
    }
}

#include "kernels/cpu/packed_plain.inc"

const fv_cpu_path fv_cpu_path_plain = {
    .isa = "plain",
    .linear_plan = linear_plan,
    .linear = linear,
    .matmul_nn_plan = matmul_nn_plan,
    .matmul_nn = matmul_nn,
    .syrk_plan = syrk_plan,
    .syrk = syrk,
    .attention_plan = attention_plan,
    .attention = attention,
    .score_sums_plan = score_sums_plan,
    .score_sums = score_sums,
    .attn_lowrank_plan = attn_lowrank_plan,
    .attn_lowrank = attn_lowrank,
    .attn_quantized_plan = attn_lowrank_plan,
    .attn_quantized = attn_quantized,
    .importance = importance_rows,
    .norm = norm_rows,
    .activate = activate_rows,
    .rope = rope_rows,
    .index_select = index_select_rows,
    .kv_write = kv_write_rows,
    .merge = merge_rows,
};
