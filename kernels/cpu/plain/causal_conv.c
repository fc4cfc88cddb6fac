/* Causal depthwise convolution, channel by channel. An item is a block of channels of a sequence. */
#include "kernels/recurrent.h"

#include "kernels/activations.h"
#include "kernels/cpu/plain/plain.h"

/* The input of channel c, r rows after the sequence's first; before it, the state's. */
static float input(const fv_causal_conv_args *a, const fv_recurrent_seq *s, int32_t r, int32_t c) {
    if (r >= 0) return row_f32(&a->x, s->row0 + r)[c];
    return s->state[(ptrdiff_t)(r + a->w.rows - 1) * a->x.cols + c];
}

static void channel(const fv_causal_conv_args *a, const fv_recurrent_seq *s, int32_t c) {
    int32_t K = a->w.rows;
    for (int32_t r = 0; r < s->n_rows; r++) {
        float sum = 0.0f;
        for (int32_t i = 0; i < K; i++)
            sum = fmaf(row_f32(&a->w, i)[c], input(a, s, r - (K - 1) + i, c), sum);
        row_f32(&a->y, s->row0 + r)[c] = act_silu(sum);
    }
    for (int32_t j = 0; j < K - 1; j++) /* later rows are read before they are written */
        s->state[(ptrdiff_t)j * a->x.cols + c] = input(a, s, s->n_rows - (K - 1) + j, c);
}

void fv_plain_causal_conv(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_causal_conv_args *a = args;
    int64_t n_tile = div_up(a->x.cols, FV_CONV_TILE);
    (void)scratch;
    for (int64_t i = begin; i < end; i++) {
        int32_t c = (int32_t)(i % n_tile) * FV_CONV_TILE, last = c + FV_CONV_TILE;
        for (; c < last && c < a->x.cols; c++) channel(a, &a->seqs[i / n_tile], c);
    }
}

fv_status fv_check_causal_conv(const void *args, fv_cpu_rows *out) {
    const fv_causal_conv_args *a = args;
    FV_TRY(need_f32(&a->x, "causal_conv's x"));
    FV_TRY(need_f32(&a->y, "causal_conv's y"));
    FV_TRY(need_f32(&a->w, "causal_conv's w"));
    assert(same_shape(&a->x, &a->y) && a->w.cols == a->x.cols);
    assert(a->x.rows == 0 || a->x.data != a->y.data);
    assert(a->w.rows >= 2 && a->w.rows <= FV_CONV_TAPS_MAX);
    int32_t most = 1;
    for (int32_t s = 0; s < a->n_seq; s++) {
        assert(a->seqs[s].row0 >= 0 && a->seqs[s].row0 + a->seqs[s].n_rows <= a->x.rows);
        if (a->seqs[s].n_rows > most) most = a->seqs[s].n_rows;
    }
    *out = (fv_cpu_rows){a->n_seq * div_up(a->x.cols, FV_CONV_TILE), (int64_t)most * FV_CONV_TILE};
    return FV_OK;
}
