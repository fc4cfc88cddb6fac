/* Recurrent layers. Runs on the thread that owns the decoder. */
#include "model/net/recurrent_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/convert.h"
#include "kernels/recurrent.h"

/* ---- scratch --------------------------------------------------------------------------- */

size_t fv_recurrent_scratch_bytes(const fv_text_config *c, fv_dtype act, int32_t rows) {
    const fv_recurrent_config *r = &c->recurrent;
    int32_t q = c->n_head * c->d_head, wide = fv_recurrent_width(r), v = r->n_value * r->d_value;
    size_t bytes = 0;
    if (r->n)
        bytes += 2 * fv_workspace_need(act, rows, wide) + 2 * fv_workspace_need(act, rows, v) +
                 2 * fv_workspace_need(FV_F32, rows, r->n_value);
    if (fv_heads_arranged(c))
        bytes += fv_workspace_need(act, rows, 2 * q) + fv_workspace_need(act, rows, q) +
                 fv_workspace_need(act, rows, c->n_kv * c->d_head);
    return bytes;
}

fv_recurrent_scratch fv_recurrent_scratch_cut(fv_decoder *dec, int32_t rows) {
    const fv_text_config *c = dec->cfg;
    const fv_recurrent_config *r = &c->recurrent;
    fv_workspace *ws = &dec->ws;
    fv_dtype act = dec->be->ops->act;
    int32_t q = c->n_head * c->d_head;
    fv_recurrent_scratch s = {0};
    if (r->n) {
        s.u = fv_workspace_cut(ws, act, rows, fv_recurrent_width(r));
        s.c = fv_workspace_cut(ws, act, rows, fv_recurrent_width(r));
        s.z = fv_workspace_cut(ws, act, rows, r->n_value * r->d_value);
        s.o = fv_workspace_cut(ws, act, rows, r->n_value * r->d_value);
        s.a = fv_workspace_cut(ws, FV_F32, rows, r->n_value);
        s.b = fv_workspace_cut(ws, FV_F32, rows, r->n_value);
    }
    if (fv_heads_arranged(c)) {
        s.raw = fv_workspace_cut(ws, act, rows, (c->gated_attention ? 2 : 1) * q);
        s.raw_k = fv_workspace_cut(ws, act, rows, c->n_kv * c->d_head);
        if (c->gated_attention) s.gate = fv_workspace_cut(ws, act, rows, q);
    }
    return s;
}

/* ---- heads ------------------------------------------------------------------------------- */

/* A rearranged head's run i of D / r runs is the file's run: first halves of the rotated pairs, the
 * first numbers that are not rotated, second halves, the other numbers that are not rotated. */
static int32_t run_from(int32_t i, int32_t n) {
    int32_t half = n / 2;
    if (i == 0) return 0;
    return i < half ? i + 1 : i == half ? 1 : i;
}

/* Makes the indices of rearranged numbers for at least n heads. Heads follow each other without gaps,
 * so one list, which lasts as long as the decoder, serves queries and keys. */
static fv_status list_adjacent(fv_decoder *dec, int32_t n) {
    const int32_t D = dec->cfg->d_head;
    if (n <= dec->n_adjacent) return FV_OK;
    FV_TRY(dec->be->ops->sync(dec->be)); /* the old list may be in use */
    free(dec->adjacent);
    dec->n_adjacent = 0;
    dec->adjacent = malloc((size_t)n * (size_t)D * sizeof *dec->adjacent);
    if (!dec->adjacent) return FV_FAIL(FV_ENOMEM, "out of memory for the order of heads");
    for (int32_t h = 0, *id = dec->adjacent; h < n; h++)
        for (int32_t i = 0; i < D; i++) *id++ = h * D + (i < D / 2 ? 2 * i : 2 * (i - D / 2) + 1);
    dec->n_adjacent = n;
    return FV_OK;
}

/* y = the heads of raw, even dimensions first. */
static fv_status arrange_adjacent(fv_decoder *dec, fv_tensor raw, fv_tensor y) {
    assert(raw.cols == y.cols && raw.ld == raw.cols && y.ld == y.cols && raw.dtype == y.dtype);
    FV_TRY(list_adjacent(dec, y.rows * (y.cols / dec->cfg->d_head)));
    const int32_t n = y.rows * y.cols;
    fv_index_select_args a = {.table = fv_tensor_of(raw.data, raw.dtype, n, 1),
                              .y = fv_tensor_of(y.data, y.dtype, n, 1),
                              .ids = dec->adjacent};
    return dec->be->ops->index_select(dec->be, &a);
}

fv_status fv_heads_arrange(fv_decoder *dec, fv_tensor raw, int32_t stride, fv_tensor y) {
    if (dec->cfg->rope.adjacent) return arrange_adjacent(dec, raw, y);
    int32_t D = dec->cfg->d_head, rotary = dec->cfg->rope.rotary, width = rotary ? rotary / 2 : D;
    int32_t heads = y.rows * (y.cols / D), n = D / width, apart = stride / width, *ids;
    assert(raw.ld == raw.cols && y.ld == y.cols && raw.dtype == y.dtype);
    FV_TRY(FV_ARENA_NEW(&dec->host, (size_t)heads * (size_t)n, ids));
    for (int32_t h = 0, *id = ids; h < heads; h++)
        for (int32_t i = 0; i < n; i++) *id++ = h * apart + (rotary ? run_from(i, n) : i);
    fv_index_select_args a = {.table = fv_tensor_of(raw.data, raw.dtype, heads * apart, width),
                              .y = fv_tensor_of(y.data, y.dtype, heads * n, width),
                              .ids = ids};
    return dec->be->ops->index_select(dec->be, &a);
}

fv_status fv_heads_arrange_host(const fv_text_config *c, float *x) {
    size_t width = (size_t)c->rope.rotary / 2, D = (size_t)c->d_head;
    if (width == 0) return FV_OK;
    float *from = malloc(D * sizeof *from);
    if (!from) return FV_FAIL(FV_ENOMEM, "out of memory for a norm of %d numbers", c->d_head);
    memcpy(from, x, D * sizeof *from);
    int32_t n = (int32_t)(D / width);
    for (int32_t i = 0; i < n; i++)
        memcpy(x + (size_t)i * width, from + (size_t)run_from(i, n) * width, width * sizeof *x);
    free(from);
    return FV_OK;
}

fv_status fv_heads_gate(fv_decoder *dec, fv_tensor raw, fv_tensor gate) {
    int32_t D = dec->cfg->d_head, heads = gate.rows * dec->cfg->n_head, *ids;
    FV_TRY(FV_ARENA_NEW(&dec->host, heads, ids));
    for (int32_t h = 0; h < heads; h++) ids[h] = 2 * h + 1;
    fv_index_select_args a = {.table = fv_tensor_of(raw.data, raw.dtype, 2 * heads, D),
                              .y = fv_tensor_of(gate.data, gate.dtype, heads, D),
                              .ids = ids};
    return dec->be->ops->index_select(dec->be, &a);
}

/* ---- weights ------------------------------------------------------------------------------ */

size_t fv_recurrent_made(const fv_recurrent_config *r) {
    return (size_t)r->taps * (size_t)fv_recurrent_width(r) + 2 * (size_t)r->n_value;
}

static float number(const fv_tensor *t, int32_t i) {
    float x;
    widen_row((const char *)t->data + (size_t)i * fv_dtype_bytes(t->dtype), t->dtype, 1, &x);
    return x;
}

void fv_recurrent_weights(const fv_recurrent_config *r, fv_text_layer *w, float **at) {
    int32_t wide = fv_recurrent_width(r);
    fv_tensor conv = fv_tensor_of(*at, FV_F32, r->taps, wide);
    for (int32_t i = 0; i < r->taps; i++)
        for (int32_t c = 0; c < wide; c++) *(*at)++ = number(&w->delta_conv, c * r->taps + i);
    fv_tensor rate = fv_tensor_of(*at, FV_F32, 1, r->n_value);
    for (int32_t h = 0; h < r->n_value; h++) *(*at)++ = exp_f32(number(&w->delta_log_rate, h));
    fv_tensor shift = fv_tensor_of(*at, FV_F32, 1, r->n_value);
    for (int32_t h = 0; h < r->n_value; h++) *(*at)++ = number(&w->delta_shift, h);
    w->delta_conv = conv;
    w->delta_log_rate = rate;
    w->delta_shift = shift;
}

/* ---- a layer ------------------------------------------------------------------------------ */

fv_status fv_recurrent_begin(const fv_forward_batch *pass, int32_t l0) {
    for (int32_t b = 0; b < pass->n_seq; b++) {
        fv_kv *kv = pass->seq[b].kv;
        if (fv_kv_state(kv, 0)) continue;
        bool rows = false;
        for (int32_t g = 0; g < fv_kv_get_shape(kv)->n_kv; g++)
            rows |= fv_kv_held(kv, l0, g, FV_SEG_TEXT) || fv_kv_held(kv, l0, g, FV_SEG_VISUAL);
        if (rows)
            return FV_FAIL(FV_EFATAL,
                           "a sequence has keys and values of layer %d, but not the state "
                           "of its recurrent layers",
                           l0);
        FV_TRY(fv_kv_take_state(kv));
    }
    return FV_OK;
}

/* The sequences' rows and states: of the convolution in states[0], of the delta rule in states[1]. */
static fv_status place_states(fv_decoder *dec, const fv_forward_batch *pass, int32_t l, int32_t i,
                              fv_recurrent_seq *states[2]) {
    const fv_recurrent_config *r = &dec->cfg->recurrent;
    size_t conv = fv_recurrent_conv_state(r), rule = fv_recurrent_rule_state(r);
    for (int k = 0; k < 2; k++) FV_TRY(FV_ARENA_NEW(&dec->host, pass->n_seq, states[k]));
    for (int32_t b = 0, row = 0; b < pass->n_seq; row += pass->seq[b++].n_rows) {
        float *state = (float *)fv_kv_state(pass->seq[b].kv, l) + (size_t)i * (conv + rule);
        states[0][b] = (fv_recurrent_seq){row, pass->seq[b].n_rows, state};
        states[1][b] = (fv_recurrent_seq){row, pass->seq[b].n_rows, state + conv};
    }
    return FV_OK;
}

fv_status fv_recurrent_mix(fv_decoder *dec, const fv_forward_batch *pass, int32_t l, int32_t i,
                           const fv_adapter_rows *adapters, fv_tensor h,
                           const fv_recurrent_scratch *s, fv_tensor *o) {
    const fv_recurrent_config *r = &dec->cfg->recurrent;
    const fv_text_layer *w = &dec->w.recurrent[(ptrdiff_t)l * r->n + i];
    const fv_backend_ops *ops = dec->be->ops;
    fv_recurrent_seq *states[2];
    FV_TRY(place_states(dec, pass, l, i, states));
    fv_linear_args wide = {
        .x = h,
        .n_part = 2,
        .part = {{w->delta_qkv, {0}, s->u, false}, {w->delta_z, {0}, s->z, false}}};
    fv_linear_args narrow = {
        .x = h,
        .n_part = 2,
        .part = {{w->delta_a, {0}, s->a, false}, {w->delta_b, {0}, s->b, false}}};
    fv_causal_conv_args conv = {s->u, s->c, w->delta_conv, pass->n_seq, states[0]};
    fv_delta_rule_args rule = {s->c,           s->a,       s->b,        w->delta_log_rate,
                               w->delta_shift, s->o,       r->n_key,    r->n_value,
                               r->d_key,       r->d_value, pass->n_seq, states[1]};
    int32_t heads = h.rows * r->n_value;
    fv_tensor each = fv_tensor_of(s->o.data, s->o.dtype, heads, r->d_value);
    fv_norm_args norm = {
        .x = each, .w = w->delta_norm, .y = each, .eps = dec->cfg->rms_eps, .rms = true};
    fv_activate_args gate = {.act = FV_ACT_SILU, .x = s->z, .gate = s->o, .y = s->z};
    FV_TRY(ops->linear(dec->be, &wide));
    FV_TRY(ops->linear(dec->be, &narrow));
    FV_TRY(fv_adapter_add(dec, adapters, w, &w->delta_qkv, h, s->u));
    FV_TRY(fv_adapter_add(dec, adapters, w, &w->delta_z, h, s->z));
    FV_TRY(fv_adapter_add(dec, adapters, w, &w->delta_a, h, s->a));
    FV_TRY(fv_adapter_add(dec, adapters, w, &w->delta_b, h, s->b));
    FV_TRY(ops->causal_conv(dec->be, &conv));
    FV_TRY(ops->delta_rule(dec->be, &rule));
    FV_TRY(ops->norm(dec->be, &norm));
    FV_TRY(ops->activate(dec->be, &gate));
    *o = s->z;
    return FV_OK;
}
