/* Memory for the activations of one layer. */
#include "model/net/heads_internal.h"
#include "model/net/layer_internal.h"

/* Width of the widest dense FFN. */
static int32_t widest_ffn(const fv_text_config *c) {
    const int32_t dense = fv_text_dense_width(c, fv_text_layers(c) - 1);
    return dense > c->d_shared ? dense : c->d_shared;
}

size_t fv_layer_scratch_bytes(const fv_text_config *c, fv_dtype act, int32_t rows) {
    size_t head = fv_workspace_need(act, rows, c->n_head * c->d_head);
    size_t kv = fv_workspace_need(act, rows, c->n_kv * c->d_head);
    return fv_workspace_need(act, rows, c->d_model) + 2 * head + 2 * kv +
           2 * fv_workspace_need(act, rows, widest_ffn(c)) +
           fv_recurrent_scratch_bytes(c, act, rows) + fv_layer_inputs_bytes(c, rows) +
           (fv_heads_vary(c) ? fv_workspace_need(act, rows, c->n_head * c->slide_d) +
                                   2 * fv_workspace_need(act, rows, fv_heads_wide_kv(c))
                             : 0) +
           (c->dense_beside ? 2 * fv_workspace_need(FV_F32, rows, c->d_model) : 0) +
           (c->d_shared
                ? fv_workspace_need(FV_F32, rows, c->d_model) + fv_workspace_need(FV_F32, rows, 1)
                : 0);
}

fv_layer_scratch fv_layer_scratch_cut(fv_decoder *dec, int32_t rows,
                                      const fv_adapter_rows *adapters) {
    const fv_text_config *c = dec->cfg;
    fv_dtype act = dec->be->ops->act;
    fv_layer_scratch s = {.adapters = adapters};
    s.h = fv_workspace_cut(&dec->ws, act, rows, c->d_model);
    s.q = fv_workspace_cut(&dec->ws, act, rows, c->n_head * c->d_head);
    s.k = fv_workspace_cut(&dec->ws, act, rows, c->n_kv * c->d_head);
    s.v = fv_workspace_cut(&dec->ws, act, rows, c->n_kv * c->d_head);
    s.o = fv_workspace_cut(&dec->ws, act, rows, c->n_head * c->d_head);
    s.gate = fv_workspace_cut(&dec->ws, act, rows, widest_ffn(c));
    s.up = fv_workspace_cut(&dec->ws, act, rows, widest_ffn(c));
    s.inputs = fv_layer_inputs_cut(dec, rows);
    s.recurrent = fv_recurrent_scratch_cut(dec, rows);
    if (fv_heads_vary(c)) {
        s.raw_q = fv_workspace_cut(&dec->ws, act, rows, c->n_head * c->slide_d);
        s.raw_k = fv_workspace_cut(&dec->ws, act, rows, fv_heads_wide_kv(c));
        s.raw_v = fv_workspace_cut(&dec->ws, act, rows, fv_heads_wide_kv(c));
    }
    if (c->dense_beside) {
        s.shared = fv_workspace_cut(&dec->ws, FV_F32, rows, c->d_model);
        s.routed = fv_workspace_cut(&dec->ws, FV_F32, rows, c->d_model);
    }
    if (c->d_shared) {
        s.shared = fv_workspace_cut(&dec->ws, FV_F32, rows, c->d_model);
        s.shared_gate = fv_workspace_cut(&dec->ws, FV_F32, rows, 1);
    }
    return s;
}

size_t fv_layer_subset_bytes(const fv_text_config *c, fv_dtype act, int32_t rows) {
    int32_t q = c->n_head * c->d_head;
    return fv_workspace_need(act, rows, c->d_model) + fv_workspace_need(act, rows, q) +
           (fv_heads_arranged(c) || fv_heads_vary(c) ? fv_workspace_need(act, rows, 2 * q) : 0);
}

void fv_layer_subset_cut(fv_decoder *dec, int32_t rows, fv_layer_scratch *s) {
    s->some_h = fv_workspace_cut(&dec->ws, dec->be->ops->act, rows, dec->cfg->d_model);
    s->some =
        fv_workspace_cut(&dec->ws, dec->be->ops->act, rows, dec->cfg->n_head * dec->cfg->d_head);
    if (fv_heads_arranged(dec->cfg) || fv_heads_vary(dec->cfg))
        s->some_raw = fv_workspace_cut(&dec->ws, dec->be->ops->act, rows,
                                       2 * dec->cfg->n_head * dec->cfg->d_head);
}
