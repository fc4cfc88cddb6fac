/* Attention: an item is one query row, all its heads. */
#include "kernels/cpu/plain/query.h"

fv_cpu_plan fv_plain_attention_plan(const void *args) {
    const fv_attn_args *a = ((const fv_cpu_attention *)args)->a;
    fv_cpu_plan plan = {.grain = 1};
    for (int i = 0; i < a->n_seq; i++) plan.n_item += a->seqs[i].n_rows;
    return plan;
}

static uint8_t share_of(const query *u) {
    return u->seq->share ? u->seq->share[u->row] : FV_SHARE_KEPT;
}

/* Clears the probabilities of dropped rows among nb of segment 0 from row j0 on. */
static void drop_first(const query *u, int32_t j0, int32_t nb, float *p) {
    for (int32_t j = 0; j < nb && share_of(u) == FV_SHARE_WITHOUT_FIRST; j++)
        if (j0 + j < u->seq->n_first) p[j] = 0.0f;
}

/* Applies a changed share to o after segment 0. */
static void edit_share(const query *u, float l, float *o) {
    uint8_t share = share_of(u);
    if (share == FV_SHARE_KEPT || share == FV_SHARE_WITHOUT_FIRST) return;
    if (n_in_window(u, 0, 0, visible(u, 0)) == 0) return;
    const void *v = u->tables[0].block[0].v;
    for (int32_t d = 0; d < u->a->d_head; d++) {
        o[d] = share == FV_SHARE_ON_FIRST ? l * widened(v, u->a->kv_dtype, (size_t)d) : 0.0f;
        if (u->compute == FV_COMPUTE_BF16) o[d] = plain_flushed(o[d]);
    }
}

/* o[d] = o[d] * c + the sum over nb rows of p_j v_j[d]. */
static void values_f32(const query *u, const void *v, const float *p, int32_t nb, float c,
                       float *o) {
    for (int32_t d = 0; d < u->a->d_head; d++) {
        o[d] *= c;
        for (int32_t j = 0; j < nb; j++)
            o[d] = fmaf(p[j], widened(kv_row(u, v, j), u->a->kv_dtype, (size_t)d), o[d]);
    }
}

static void values_bf16(const query *u, const void *v, const float *p, int32_t nb, float c,
                        float *o) {
    for (int32_t d = 0; d < u->a->d_head; d++) {
        float ps[FV_KV_BLOCK] = {0}, vs[FV_KV_BLOCK] = {0};
        for (int32_t j = 0; j < nb; j++) {
            ps[j] = plain_flushed(p[j]);
            vs[j] = plain_operand(kv_row(u, v, j), u->a->kv_dtype, (size_t)d);
        }
        o[d] = plain_flushed((o[d] + 0.0f) * c);
        for (int j = 0; j < FV_KV_BLOCK; j += 32) o[d] = plain_step_bf16(o[d], ps + j, vs + j);
    }
}

/* Online softmax over blocks. o [D]; returns lse. */
static float attend(const query *u, float *o) {
    int32_t D = u->a->d_head;
    bool first = u->seq->n == 0.0f, bf16 = u->compute == FV_COMPUTE_BF16;
    float m = log_f32(u->seq->n), l = first ? 0.0f : 1.0f;
    for (int32_t d = 0; d < D; d++) o[d] = 0.0f;
    for (int s = 0; s < u->seq->n_seg; s++) {
        for (int32_t j0 = 0, n = visible(u, s); j0 < n; j0 += FV_KV_BLOCK) {
            int32_t nb = n - j0 < FV_KV_BLOCK ? n - j0 : FV_KV_BLOCK;
            float p[FV_KV_BLOCK], m_new = m;
            if (n_in_window(u, s, j0, nb) == 0) continue;
            for (int32_t j = 0; j < nb; j++) {
                p[j] = in_window(u, s, j0 + j) ? score(u, s, j0 + j) : -INFINITY;
                m_new = p[j] > m_new ? p[j] : m_new;
            }
            for (int32_t j = 0; j < nb; j++) {
                p[j] = exp_f32(p[j] - m_new);
                if (bf16) p[j] = f32_of_bf16(bf16_of_f32(p[j]));
            }
            float c = first ? 0.0f : exp_f32(m - m_new);
            l = fmaf(l, c, plain_sum(p, (size_t)nb));
            if (s == 0) drop_first(u, j0, nb, p);
            const void *v = u->tables[s].block[j0 / FV_KV_BLOCK].v;
            (bf16 ? values_bf16 : values_f32)(u, v, p, nb, c, o);
            m = m_new;
            first = false;
        }
        if (s == 0) edit_share(u, l, o);
    }
    if (first) return -INFINITY;
    for (int32_t d = 0; d < D; d++) o[d] = (bf16 ? o[d] + 0.0f : o[d]) / l;
    return m + log_f32(l);
}

static void attention_row(const fv_attn_args *a, const fv_attn_seq *seq, int32_t i,
                          fv_compute compute) {
    int64_t row = (int64_t)seq->row0 + i;
    for (int32_t h = 0; h < a->n_head; h++) {
        query u = query_of(a, seq, i, h, compute);
        float lse = attend(&u, row_f32(&a->o, row) + (size_t)h * (size_t)a->d_head);
        if (a->lse.data) row_f32(&a->lse, row)[h] = lse;
    }
}

static void attention(const fv_attn_args *a, int64_t begin, int64_t end, fv_compute compute) {
    for (int s = 0; s < a->n_seq; s++) {
        int32_t n = a->seqs[s].n_rows;
        for (int64_t i = begin < 0 ? 0 : begin; i < end && i < n; i++)
            attention_row(a, &a->seqs[s], (int32_t)i, compute);
        begin -= n;
        end -= n;
    }
}

void fv_plain_attention(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_cpu_attention *c = args;
    (void)scratch;
    attention(c->a, begin, end, c->compute);
}
