/* Per-layer embeddings. Runs on the thread that owns the decoder, on the host's memory. */
#include "model/net/layer_inputs_internal.h"

#include <assert.h>
#include <math.h>

#include "common/convert.h"

fv_status fv_layer_inputs_open(fv_decoder *dec, float **at) {
    const int32_t p = dec->cfg->d_input;
    const float by[3] = {1 / sqrtf((float)dec->cfg->d_model), sqrtf((float)p), sqrtf(0.5F)};
    for (int32_t i = 0; i < 3; i++) {
        const fv_tensor row = fv_tensor_of(*at, FV_F32, 1, p);
        for (int32_t k = 0; k < p; k++) *(*at)++ = by[i];
        FV_TRY(fv_workspace_weight(&dec->ws, &row, &dec->input_by[i]));
    }
    return FV_OK;
}

size_t fv_layer_inputs_bytes(const fv_text_config *c, int32_t rows) {
    if (c->d_input == 0) return 0;
    return fv_workspace_need(FV_F32, rows, c->d_model) +
           2 * fv_workspace_need(FV_F32, rows, c->d_input);
}

fv_layer_inputs fv_layer_inputs_cut(fv_decoder *dec, int32_t rows) {
    const fv_text_config *c = dec->cfg;
    fv_layer_inputs in = {0};
    if (c->d_input == 0) return in;
    in.x0 = fv_workspace_cut(&dec->ws, FV_F32, rows, c->d_model);
    in.e = fv_workspace_cut(&dec->ws, FV_F32, rows, c->d_input);
    in.gate = fv_workspace_cut(&dec->ws, FV_F32, rows, c->d_input);
    return in;
}

/* Fills in rows [0, s->n_rows) of x0 and ids, one run of text or of adjacent embeddings at a time. */
static fv_status fill_seq(fv_decoder *dec, const fv_forward_seq *s, fv_tensor x0, int32_t *ids) {
    for (int32_t i = 0, end; i < s->n_rows; i = end) {
        const bool visual = s->seg[i] == FV_SEG_VISUAL;
        const int32_t at = visual ? s->embed_at[s->pos[i]] : 0;
        for (end = i + 1; end < s->n_rows && s->seg[end] == s->seg[i]; end++)
            if (visual && s->embed_at[s->pos[end]] != at + end - i) break;
        const fv_tensor y = fv_tensor_rows(x0, i, end - i);
        for (int32_t r = i; r < end; r++)
            ids[r] = visual ? dec->cfg->pad : s->ids[s->pos[r] - s->ids_from];
        if (visual) {
            fv_tensor embeds = fv_tensor_rows(s->embeds, at, end - i);
            embeds.cols = x0.cols;
            FV_TRY(fv_decoder_embed_images(dec, embeds, y));
            continue;
        }
        FV_TRY(fv_decoder_embed(dec, ids + i, end - i, y));
        for (int32_t r = i; r < end; r++) ids[r] = fv_decoder_embedded_as(dec->cfg, ids[r]);
    }
    return FV_OK;
}

fv_status fv_layer_inputs_fill(fv_decoder *dec, const fv_forward_batch *pass, fv_layer_inputs *to) {
    FV_TRY(FV_ARENA_NEW(&dec->host, to->x0.rows, to->ids));
    for (int32_t b = 0, row = 0; b < pass->n_seq; row += pass->seq[b++].n_rows)
        FV_TRY(fill_seq(dec, &pass->seq[b], fv_tensor_rows(to->x0, row, pass->seq[b].n_rows),
                        to->ids + row));
    return FV_OK;
}

fv_status fv_layer_inputs_pick(fv_decoder *dec, const fv_layer_inputs *from, const int32_t *row,
                               fv_layer_inputs *to) {
    fv_index_select_args pick = {.table = from->x0, .y = to->x0, .ids = row};
    FV_TRY(FV_ARENA_NEW(&dec->host, to->x0.rows, to->ids));
    for (int32_t r = 0; r < to->x0.rows; r++) to->ids[r] = from->ids[row[r]];
    return dec->be->ops->index_select(dec->be, &pick);
}

static fv_status rms_norm(fv_decoder *dec, fv_tensor x, fv_tensor w) {
    fv_norm_args a = {.x = x, .w = w, .y = x, .eps = dec->cfg->rms_eps, .rms = true};
    return dec->be->ops->norm(dec->be, &a);
}

/* y = x times a row of factors, or y += that. */
static fv_status times(fv_decoder *dec, fv_tensor x, fv_tensor by, fv_tensor y, bool add) {
    fv_activate_args a = {.act = FV_ACT_NONE, .x = x, .gate = by, .y = y, .accumulate = add};
    a.gate.rows = x.rows;
    a.gate.ld = 0;
    return dec->be->ops->activate(dec->be, &a);
}

/* Makes e of layer l; the gate's memory holds the table's rows. */
static fv_status make_embeddings(fv_decoder *dec, const fv_layer_inputs *in, int32_t l) {
    const fv_tensor none = {0}, e = in->e;
    fv_tensor table = dec->w.input_table;
    fv_linear_args a = {
        .x = in->x0, .n_part = 1, .part = {{dec->w.layer[l].input_rows, none, e, false}}};
    fv_index_select_args pick = {.table = table, .y = in->gate, .ids = in->ids};
    pick.table.data = (char *)table.data + (size_t)(l * e.cols) * fv_dtype_bytes(table.dtype);
    pick.table.cols = e.cols;
    FV_TRY(dec->be->ops->linear(dec->be, &a));
    FV_TRY(times(dec, e, dec->input_by[0], e, false));
    FV_TRY(rms_norm(dec, e, dec->w.input_norm));
    FV_TRY(dec->be->ops->index_select(dec->be, &pick));
    FV_TRY(times(dec, in->gate, dec->input_by[1], e, true));
    return times(dec, e, dec->input_by[2], e, false);
}

fv_status fv_layer_inputs_add(fv_decoder *dec, const fv_layer_inputs *in, int32_t l,
                              const fv_adapter_rows *adapters, fv_tensor h, fv_tensor x) {
    const fv_text_layer *w = &dec->w.layer[l];
    const fv_tensor none = {0};
    fv_linear_args gate = {.x = x, .n_part = 1, .part = {{w->input_gate, none, in->gate, false}}};
    fv_linear_args out = {.x = in->gate, .n_part = 1, .part = {{w->input_out, none, h, false}}};
    fv_activate_args act = {.act = dec->cfg->act, .x = in->gate, .gate = in->e, .y = in->gate};
    fv_activate_args add = {.act = FV_ACT_NONE, .x = h, .y = x, .accumulate = true};
    assert(in->x0.rows == x.rows);
    FV_TRY(make_embeddings(dec, in, l));
    FV_TRY(dec->be->ops->linear(dec->be, &gate));
    FV_TRY(fv_adapter_add(dec, adapters, w, &w->input_gate, x, in->gate));
    FV_TRY(dec->be->ops->activate(dec->be, &act));
    FV_TRY(dec->be->ops->linear(dec->be, &out));
    FV_TRY(fv_adapter_add(dec, adapters, w, &w->input_out, in->gate, h));
    FV_TRY(rms_norm(dec, h, w->input_norm));
    return dec->be->ops->activate(dec->be, &add);
}
