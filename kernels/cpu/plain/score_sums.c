/* Sums of attention scores: an item is one query head of one sum. */
#include "kernels/cpu/plain/query.h"

fv_cpu_plan fv_plain_score_sums_plan(const void *args) {
    const fv_score_sums_args *a = ((const fv_cpu_attention *)args)->a;
    return (fv_cpu_plan){.grain = 1, .n_item = (int64_t)a->n_sum * a->attn->n_head};
}

/* The probability of each visible key if all were equally likely. */
static float even_share(const query *u) {
    int32_t n = 0;
    for (int s = 0; s < u->seq->n_seg; s++) n += n_in_window(u, s, 0, visible(u, s));
    return 1.0f / (float)n;
}

static void sum_scores(const fv_attn_args *a, const fv_score_sum *q, int32_t h,
                       fv_compute compute) {
    const fv_attn_seq *seq = &a->seqs[q->seq];
    for (int32_t i = 0; i < q->n_row; i++) {
        query u = query_of(a, seq, seq->n_rows - q->n_row + i, h, compute);
        float lse = lse_with(row_f32(&a->lse, (int64_t)seq->row0 + u.row)[h], q->n);
        int32_t line = h * q->n_kind + (q->kind ? q->kind[i] : 0);
        for (int s = 0; s < seq->n_seg; s++) {
            float *sum = q->sum + (size_t)line * (size_t)q->ld + q->column[s];
            const float *w =
                q->weight ? q->weight + (size_t)i * (size_t)q->ld + q->column[s] : NULL;
            for (int32_t j = 0, n = visible(&u, s); j < n; j++) {
                if (!in_window(&u, s, j)) continue;
                float p = exp_f32(score(&u, s, j) - lse);
                if (q->low) p = p < even_share(&u) ? 1.0f : 0.0f;
                sum[j] += w ? w[j] * p : p;
            }
        }
    }
}

/* The largest probability of key j of segment s over all heads of row i. */
static float head_max(const fv_attn_args *a, const fv_score_sum *q, int32_t i, int s, int32_t j,
                      fv_compute compute) {
    const fv_attn_seq *seq = &a->seqs[q->seq];
    float most = 0.0f;
    for (int32_t h = 0; h < a->n_head; h++) {
        query u = query_of(a, seq, seq->n_rows - q->n_row + i, h, compute);
        float lse = lse_with(row_f32(&a->lse, (int64_t)seq->row0 + u.row)[h], q->n);
        float p = exp_f32(score(&u, s, j) - lse);
        most = p > most ? p : most;
    }
    return most;
}

static void sum_head_max(const fv_attn_args *a, const fv_score_sum *q, fv_compute compute) {
    const fv_attn_seq *seq = &a->seqs[q->seq];
    for (int32_t i = 0; i < q->n_row; i++) {
        query u = query_of(a, seq, seq->n_rows - q->n_row + i, 0, compute);
        for (int s = 0; s < seq->n_seg; s++) {
            int32_t line = q->kind ? q->kind[i] : 0;
            float *sum = q->sum + (size_t)line * (size_t)q->ld + q->column[s];
            for (int32_t j = 0, n = visible(&u, s); j < n; j++)
                if (in_window(&u, s, j)) sum[j] += head_max(a, q, i, s, j, compute);
        }
    }
}

static void score_sums(const fv_score_sums_args *a, int64_t begin, int64_t end,
                       fv_compute compute) {
    for (int64_t i = begin; i < end; i++) {
        const fv_score_sum *q = &a->sums[i / a->attn->n_head];
        int32_t h = (int32_t)(i % a->attn->n_head);
        if (!q->head_max)
            sum_scores(a->attn, q, h, compute);
        else if (h == 0)
            sum_head_max(a->attn, q, compute);
    }
}

void fv_plain_score_sums(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_cpu_attention *c = args;
    (void)scratch;
    score_sums(c->a, begin, end, c->compute);
}
