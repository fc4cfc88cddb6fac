/* The two ends of the text model: embeddings of tokens, and logits. */
#include <stdlib.h>

#include "kernels/mathf.h"
#include "model/net/layer_internal.h"

int32_t fv_decoder_embedded_as(const fv_text_config *c, int32_t id) {
    for (int32_t i = 0; i < c->n_holder; i++)
        if (id == c->holder[i]) return c->pad;
    return id;
}

fv_status fv_decoder_embed(fv_decoder *dec, const int32_t *ids, int32_t n, fv_tensor y) {
    for (int32_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= dec->cfg->vocab)
            return FV_FAIL(FV_EINVAL, "token id %d at %d: the vocabulary has %d", ids[i], i,
                           dec->cfg->vocab);
    fv_index_select_args a = {.table = dec->w.embed, .y = y, .ids = ids};
    int32_t *held = NULL;
    if (dec->cfg->n_holder) {
        held = malloc((size_t)n * sizeof *held);
        if (!held) return FV_FAIL(FV_ENOMEM, "out of memory for %d ids", n);
        for (int32_t i = 0; i < n; i++) held[i] = fv_decoder_embedded_as(dec->cfg, ids[i]);
        a.ids = held;
    }
    fv_status st = dec->be->ops->index_select(dec->be, &a);
    free(held);
    FV_TRY(st);
    return dec->factor.data ? fv_layer_scale_rows(dec, y, dec->factor, y, false) : FV_OK;
}

fv_status fv_decoder_embed_images(fv_decoder *dec, fv_tensor x, fv_tensor y) {
    fv_activate_args copy = {.act = FV_ACT_NONE, .x = x, .y = y};
    if (dec->cfg->embed_images && dec->factor.data)
        return fv_layer_scale_rows(dec, x, dec->factor, y, false);
    return dec->be->ops->activate(dec->be, &copy);
}

fv_status fv_decoder_logits(fv_decoder *dec, fv_tensor x, float *logits) {
    const fv_text_config *c = dec->cfg;
    fv_dtype act = dec->be->ops->act;
    if (x.rows == 0) return FV_OK;
    FV_TRY(fv_workspace_reset(&dec->head_ws, fv_workspace_need(act, x.rows, c->d_model) +
                                                 fv_workspace_need(FV_F32, x.rows, c->vocab)));
    fv_tensor h = fv_workspace_cut(&dec->head_ws, act, x.rows, c->d_model);
    fv_tensor y = fv_workspace_cut(&dec->head_ws, FV_F32, x.rows, c->vocab);
    fv_linear_args head = {.x = h, .n_part = 1, .part = {{dec->w.head, {0}, y, false}}};
    fv_device *dev = dec->be->device;
    FV_TRY(fv_layer_norm(dec, x, dec->w.norm, h));
    FV_TRY(dec->be->ops->linear(dec->be, &head));
    size_t bytes = (size_t)x.rows * (size_t)c->vocab * sizeof *logits;
    FV_TRY(dev->ops->copy_async(dev, logits, y.data, bytes));
    FV_TRY(dec->be->ops->sync(dec->be));
    const float cap = c->logits_cap;
    for (size_t i = 0; cap > 0 && i < bytes / sizeof *logits; i++)
        logits[i] = tanh_f32(logits[i] / cap) * cap;
    return FV_OK;
}
