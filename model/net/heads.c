/* Heads of layers in rows of the store's shape. Runs on the thread that owns the decoder. */
#include "model/net/heads_internal.h"

#include <assert.h>

/* Columns [at, at + n) of a matrix. */
static fv_tensor columns(fv_tensor x, int32_t at, int32_t n) {
    x.data = (char *)x.data + (size_t)at * fv_dtype_bytes(x.dtype);
    x.cols = n;
    return x;
}

static fv_status copy(fv_decoder *dec, fv_tensor x, fv_tensor y) {
    fv_activate_args a = {.act = FV_ACT_NONE, .x = x, .y = y};
    return dec->be->ops->activate(dec->be, &a);
}

/* A matrix [rows, cols] as one of n times as many rows. */
static fv_tensor folded(fv_tensor x, int32_t n) {
    assert(x.ld == x.cols && x.cols % n == 0);
    return fv_tensor_of(x.data, x.dtype, x.rows * n, x.cols / n);
}

/* Copies head `from` of d dimensions of raw's rows to place s of head `to` of D in y's; or back. */
static fv_status move(fv_decoder *dec, fv_tensor raw, int32_t d, int32_t from, fv_tensor y,
                      int32_t to, int32_t s, bool back) {
    const int32_t D = dec->cfg->d_head, half = d / 2;
    for (int32_t i = 0; i < 2; i++) {
        const fv_tensor x = columns(raw, from * d + i * half, half);
        const fv_tensor placed = columns(y, to * D + i * (D / 2) + s * half, half);
        FV_TRY(back ? copy(dec, placed, x) : copy(dec, x, placed));
    }
    return FV_OK;
}

static fv_status clear(fv_decoder *dec, fv_tensor y) {
    fv_tensor zeros = dec->zeros;
    assert(zeros.cols >= y.cols);
    zeros.cols = y.cols;
    zeros.rows = y.rows;
    zeros.ld = 0;
    return copy(dec, zeros, y);
}

fv_status fv_heads_norm(fv_decoder *dec, fv_tensor raw, int32_t d, fv_tensor weight) {
    fv_tensor heads = folded(raw, raw.cols / d), ones = dec->ones;
    ones.cols = d;
    fv_norm_args a = {.x = heads,
                      .w = weight.data ? weight : ones,
                      .y = heads,
                      .eps = dec->cfg->rms_eps,
                      .rms = true};
    return dec->be->ops->norm(dec->be, &a);
}

/* Heads of keys in a head of the store, at least 1: the query j of a store's head has place j / (queries
 * of one of them). */
static int32_t together(const fv_text_config *c, fv_heads h) {
    return h.n_kv > c->n_kv ? h.n_kv / c->n_kv : 1;
}

static fv_status move_queries(fv_decoder *dec, int32_t layer, fv_tensor raw, fv_tensor y,
                              bool back) {
    const fv_text_config *c = dec->cfg;
    const fv_heads h = fv_heads_of(c, layer);
    const int32_t group = c->n_head / c->n_kv, each = group / together(c, h);
    for (int32_t j = 0; j < group; j++)
        FV_TRY(move(dec, folded(raw, c->n_kv), h.d, j, folded(y, c->n_kv), j, j / each, back));
    return FV_OK;
}

fv_status fv_heads_put_queries(fv_decoder *dec, int32_t layer, fv_tensor raw, fv_tensor y) {
    FV_TRY(clear(dec, y));
    return move_queries(dec, layer, raw, y, false);
}

fv_status fv_heads_take(fv_decoder *dec, int32_t layer, fv_tensor o, fv_tensor raw) {
    return move_queries(dec, layer, raw, o, true);
}

fv_status fv_heads_put_keys(fv_decoder *dec, int32_t layer, fv_tensor raw, fv_tensor y) {
    const fv_text_config *c = dec->cfg;
    const fv_heads h = fv_heads_of(c, layer);
    const int32_t n = together(c, h), times = h.n_kv < c->n_kv ? c->n_kv / h.n_kv : 1;
    const int32_t rows = h.n_kv / n; /* folded rows of a token */
    if (n * h.d < c->d_head) FV_TRY(clear(dec, y));
    for (int32_t s = 0; s < n; s++)
        for (int32_t t = 0; t < times; t++)
            FV_TRY(move(dec, folded(raw, rows), h.d, s, folded(y, rows), t, s, false));
    return FV_OK;
}
