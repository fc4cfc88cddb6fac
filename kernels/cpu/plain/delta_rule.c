/* The gated delta rule, column by column. An item is a block of columns of a sequence's value head. */
#include "kernels/recurrent.h"

#include "kernels/activations.h"
#include "kernels/cpu/plain/plain.h"

/* dot(x, x), the canonical dot product. */
static float squares(const float *x, int32_t n) {
    float acc[16] = {0};
    for (int32_t k = 0; k < n; k += 16)
        for (int i = 0; i < 16; i++) acc[i] = fmaf(x[k + i], x[k + i], acc[i]);
    for (int s = 8; s > 0; s /= 2)
        for (int i = 0; i < s; i++) acc[i] += acc[i + s];
    return acc[0];
}

/* Runs a token on a column of a state whose rows are ld apart. */
static float column(float *S, int32_t ld, int32_t n, float alpha, float beta, float value,
                    const float *q, const float *k) {
    float m = 0.0f, o = 0.0f;
    for (int32_t i = 0; i < n; i++) m = fmaf(S[(ptrdiff_t)i * ld] * alpha, k[i], m);
    float e = (value - m) * beta;
    for (int32_t i = 0; i < n; i++) {
        float *at = &S[(ptrdiff_t)i * ld];
        *at = fmaf(k[i], e, *at * alpha);
        o = fmaf(*at, q[i], o);
    }
    return o;
}

static void token(const fv_delta_rule_args *a, int64_t r, float *S, int32_t h, int32_t c0,
                  int32_t c1) {
    int32_t n = a->d_key, g = h / (a->n_value / a->n_key);
    const float *query = row_f32(&a->qkv, r) + (ptrdiff_t)g * n,
                *key = query + (ptrdiff_t)a->n_key * n;
    const float *value =
        row_f32(&a->qkv, r) + (ptrdiff_t)2 * a->n_key * n + (ptrdiff_t)h * a->d_value;
    float q[FV_DELTA_KEY_MAX], k[FV_DELTA_KEY_MAX];
    float by_q = 1.0f / sqrtf(squares(query, n) + 1e-6f),
          by_k = 1.0f / sqrtf(squares(key, n) + 1e-6f);
    float root = 1.0f / sqrtf((float)n);
    for (int32_t i = 0; i < n; i++) {
        q[i] = query[i] * by_q * root;
        k[i] = key[i] * by_k;
    }
    float step = softplus_f32(row_f32(&a->a, r)[h] + row_f32(&a->shift, 0)[h]);
    float alpha = exp_f32(-(row_f32(&a->rate, 0)[h] * step)),
          beta = act_sigmoid(row_f32(&a->b, r)[h]);
    float *o = row_f32(&a->o, r) + (ptrdiff_t)h * a->d_value;
    for (int32_t c = c0; c < c1; c++)
        o[c] = column(S + c, a->d_value, n, alpha, beta, value[c], q, k);
}

void fv_plain_delta_rule(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_delta_rule_args *a = args;
    int64_t n_tile = div_up(a->d_value, FV_DELTA_TILE);
    (void)scratch;
    for (int64_t i = begin; i < end; i++) {
        const fv_recurrent_seq *s = &a->seqs[i / n_tile / a->n_value];
        int32_t h = (int32_t)(i / n_tile % a->n_value), c = (int32_t)(i % n_tile) * FV_DELTA_TILE;
        int32_t last = c + FV_DELTA_TILE < a->d_value ? c + FV_DELTA_TILE : a->d_value;
        float *S = s->state + (ptrdiff_t)h * a->d_key * a->d_value;
        for (int32_t r = 0; r < s->n_rows; r++) token(a, s->row0 + r, S, h, c, last);
    }
}

fv_status fv_check_delta_rule(const void *args, fv_cpu_rows *out) {
    const fv_delta_rule_args *a = args;
    FV_TRY(need_f32(&a->qkv, "delta_rule's qkv"));
    FV_TRY(need_f32(&a->a, "delta_rule's a"));
    FV_TRY(need_f32(&a->b, "delta_rule's b"));
    FV_TRY(need_f32(&a->rate, "delta_rule's rate"));
    FV_TRY(need_f32(&a->shift, "delta_rule's shift"));
    FV_TRY(need_f32(&a->o, "delta_rule's o"));
    assert(a->n_key > 0 && a->n_value % a->n_key == 0 && a->d_key <= FV_DELTA_KEY_MAX);
    assert(a->d_key % 16 == 0 && a->d_value % 16 == 0);
    assert(a->qkv.cols == 2 * a->n_key * a->d_key + a->n_value * a->d_value);
    assert(a->o.cols == a->n_value * a->d_value && a->o.rows == a->qkv.rows);
    assert(a->a.cols == a->n_value && same_shape(&a->a, &a->b) && a->a.rows == a->qkv.rows);
    assert(is_vector_of(&a->rate, a->n_value) && is_vector_of(&a->shift, a->n_value));
    int32_t most = 1;
    for (int32_t s = 0; s < a->n_seq; s++) {
        assert(a->seqs[s].row0 >= 0 && a->seqs[s].row0 + a->seqs[s].n_rows <= a->qkv.rows);
        if (a->seqs[s].n_rows > most) most = a->seqs[s].n_rows;
    }
    *out = (fv_cpu_rows){(int64_t)a->n_seq * a->n_value * div_up(a->d_value, FV_DELTA_TILE),
                         (int64_t)most * a->d_key * FV_DELTA_TILE};
    return FV_OK;
}
