/* A layer's FFN: dense, a mixture of experts, or both. */
#include "kernels/activations.h"
#include "model/net/experts.h"
#include "model/net/layer_internal.h"

/* Makes the inner activations *y of a dense FFN, in s->gate, of s->h. */
static fv_status ffn_inner(fv_decoder *dec, const fv_text_layer *w, const fv_layer_scratch *s,
                           fv_tensor *y) {
    const fv_tensor gate = fv_tensor_of(s->gate.data, s->gate.dtype, s->gate.rows, w->gate.rows),
                    up = fv_tensor_of(s->up.data, s->up.dtype, s->up.rows, w->up.rows);
    fv_linear_args in = {
        .x = s->h,
        .n_part = 2,
        .part = {{w->gate, w->gate_bias, gate, false}, {w->up, w->up_bias, up, false}}};
    *y = gate;
    FV_TRY(dec->be->ops->linear(dec->be, &in));
    FV_TRY(fv_adapter_add(dec, s->adapters, w, &w->gate, s->h, gate));
    FV_TRY(fv_adapter_add(dec, s->adapters, w, &w->up, s->h, up));
    fv_activate_args act = {.act = dec->cfg->act, .x = gate, .gate = up, .y = gate};
    return dec->be->ops->activate(dec->be, &act);
}

/* s->shared = FFN(h), of each row of s->h, with shared_gated times sigmoid(h . shared_gate). Rows are in
 * the host's memory, as experts want them. */
static fv_status shared_expert(fv_decoder *dec, const fv_text_layer *w, const fv_layer_scratch *s) {
    fv_tensor inner;
    FV_TRY(ffn_inner(dec, w, s, &inner));
    fv_linear_args out = {.x = inner, .n_part = 1, .part = {{w->down, {0}, s->shared, false}}};
    FV_TRY(dec->be->ops->linear(dec->be, &out));
    FV_TRY(fv_adapter_add(dec, s->adapters, w, &w->down, inner, s->shared));
    if (!w->shared_gate.data) return FV_OK;
    fv_linear_args gate = {
        .x = s->h, .n_part = 1, .part = {{w->shared_gate, {0}, s->shared_gate, false}}};
    FV_TRY(dec->be->ops->linear(dec->be, &gate));
    FV_TRY(fv_adapter_add(dec, s->adapters, w, &w->shared_gate, s->h, s->shared_gate));
    for (int32_t r = 0; r < s->h.rows; r++) {
        float g = act_sigmoid(*(const float *)fv_tensor_rows(s->shared_gate, r, 1).data);
        float *y = fv_tensor_rows(s->shared, r, 1).data;
        for (int32_t c = 0; c < s->shared.cols; c++) y[c] *= g;
    }
    return FV_OK;
}

/* The experts of a layer where they are tensors of their own; otherwise NULL. */
static const fv_text_expert *experts_of(const fv_decoder *dec, const fv_text_layer *w) {
    const fv_text_config *c = dec->cfg;
    if (!dec->w.expert) return NULL;
    const bool recurrent = w->delta_qkv.data != NULL;
    const ptrdiff_t layer = recurrent ? c->n_layer + (w - dec->w.recurrent) : w - dec->w.layer;
    return dec->w.expert + layer * c->n_expert;
}

/* Runs a mixture of experts and, if there is one, the shared expert. */
static fv_status experts(fv_decoder *dec, const fv_text_layer *w, const fv_layer_scratch *s) {
    const fv_text_config *c = dec->cfg;
    fv_activate_args add = {.act = FV_ACT_NONE, .x = s->shared, .y = s->h, .accumulate = true};
    if (c->d_shared) FV_TRY(shared_expert(dec, w, s));
    FV_TRY(fv_experts_run(&dec->experts_ws, c, w, experts_of(dec, w), s->h, s->h, s->h));
    return c->d_shared ? dec->be->ops->activate(dec->be, &add) : FV_OK;
}

/* s->h = norm(FFN(norm(x))) + norm(experts(norm(x))), for a layer with both; s->h is norm(x) of the first
 * on entry. */
static fv_status dense_and_experts(fv_decoder *dec, const fv_text_layer *w,
                                   const fv_layer_scratch *s, fv_tensor x) {
    fv_activate_args add = {.act = FV_ACT_NONE, .x = s->shared, .y = s->h, .accumulate = true};
    fv_tensor inner;
    FV_TRY(ffn_inner(dec, w, s, &inner));
    fv_linear_args out = {.x = inner, .n_part = 1, .part = {{w->down, {0}, s->shared, false}}};
    FV_TRY(dec->be->ops->linear(dec->be, &out));
    FV_TRY(fv_adapter_add(dec, s->adapters, w, &w->down, inner, s->shared));
    FV_TRY(fv_layer_norm(dec, s->shared, w->dense_post_norm, s->shared));
    FV_TRY(fv_layer_norm(dec, x, w->router_norm, s->routed));
    FV_TRY(fv_layer_norm(dec, x, w->experts_norm, s->h));
    FV_TRY(
        fv_experts_run(&dec->experts_ws, dec->cfg, w, experts_of(dec, w), s->routed, s->h, s->h));
    FV_TRY(fv_layer_norm(dec, s->h, w->experts_post_norm, s->h));
    return dec->be->ops->activate(dec->be, &add);
}

fv_status fv_layer_ffn(fv_decoder *dec, const fv_text_layer *w, const fv_layer_scratch *s,
                       fv_tensor x) {
    FV_TRY(fv_layer_norm(dec, x, w->mlp_norm, s->h));
    if (w->router_norm.data) {
        FV_TRY(dense_and_experts(dec, w, s, x));
        return fv_layer_output_add(dec, s->h, w->mlp_post_norm, x);
    }
    if (w->router.data) {
        FV_TRY(experts(dec, w, s));
        return fv_layer_output_add(dec, s->h, w->mlp_post_norm, x);
    }
    fv_tensor inner;
    FV_TRY(ffn_inner(dec, w, s, &inner));
    return fv_layer_linear_add(
        dec, inner, (fv_layer_output){w, &w->down, w->down_bias, w->mlp_post_norm}, s, x);
}
