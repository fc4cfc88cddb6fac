/* A layer's products with its weights outside of the FFN: values, keys and queries of its rows, which go
 * to the stores and to attention, and the output. */
#include "model/net/heads_internal.h"
#include "model/net/layer_internal.h"

fv_status fv_layer_norm(fv_decoder *dec, fv_tensor x, fv_tensor w, fv_tensor y) {
    fv_norm_args a = {.x = x, .w = w, .y = y, .eps = dec->cfg->rms_eps, .rms = true};
    return dec->be->ops->norm(dec->be, &a);
}

fv_status fv_decoder_rope(fv_decoder *dec, fv_tensor weight, fv_tensor x, fv_tensor c,
                          fv_tensor s) {
    int32_t D = dec->cfg->d_head, n_head = x.cols / D;
    fv_rope_args a = {.x = x, .cos = c, .sin = s, .n_head = n_head};
    if (weight.data) { /* each head is one row for the norm */
        fv_tensor heads = fv_tensor_of(x.data, x.dtype, x.rows * n_head, D);
        FV_TRY(fv_layer_norm(dec, heads, weight, heads));
    }
    return dec->be->ops->rope(dec->be, &a);
}

fv_status fv_layer_scale_rows(fv_decoder *dec, fv_tensor x, fv_tensor factors, fv_tensor y,
                              bool add) {
    fv_activate_args a = {.act = FV_ACT_NONE, .x = x, .gate = factors, .y = y, .accumulate = add};
    a.gate.rows = x.rows;
    a.gate.ld = 0;
    return dec->be->ops->activate(dec->be, &a);
}

fv_status fv_layer_output_add(fv_decoder *dec, fv_tensor h, fv_tensor post_norm, fv_tensor y) {
    fv_activate_args add = {.act = FV_ACT_NONE, .x = h, .y = y, .accumulate = true};
    if (post_norm.data) FV_TRY(fv_layer_norm(dec, h, post_norm, h));
    if (dec->residual.data) return fv_layer_scale_rows(dec, h, dec->residual, y, true);
    return dec->be->ops->activate(dec->be, &add);
}

fv_status fv_layer_linear_add(fv_decoder *dec, fv_tensor x, fv_layer_output out,
                              const fv_layer_scratch *s, fv_tensor y) {
    bool apart = out.post_norm.data || dec->residual.data;
    fv_tensor to = apart ? s->h : y;
    fv_linear_args a = {.x = x, .n_part = 1, .part = {{*out.of, out.bias, to, !apart}}};
    FV_TRY(dec->be->ops->linear(dec->be, &a));
    FV_TRY(fv_adapter_add(dec, s->adapters, out.w, out.of, x, to));
    return apart ? fv_layer_output_add(dec, s->h, out.post_norm, y) : FV_OK;
}

/* Reserves memory for the pass's rows in a layer and points `write` to it. */
static fv_status reserve_rows(const fv_forward_batch *pass, const fv_forward_tables *t, int32_t l,
                              fv_kv_write_seq *write) {
    for (int32_t b = 0; b < pass->n_seq; b++) {
        fv_kv *kv = pass->seq[b].kv;
        FV_TRY(fv_kv_reserve(kv, l, t->seg_rows[b][FV_SEG_TEXT]));
        write[b].tables = fv_kv_runs(kv, l);
    }
    return FV_OK;
}

static fv_status write_rows(fv_decoder *dec, const fv_forward_batch *pass, fv_kv_write_seq *write,
                            fv_tensor k, fv_tensor v) {
    fv_kv_write_args a = {.k = k,
                          .v = v,
                          .kv_dtype = fv_kv_get_shape(pass->seq[0].kv)->dtype,
                          .n_kv = dec->cfg->n_kv,
                          .d_head = dec->cfg->d_head,
                          .n_seq = pass->n_seq,
                          .seqs = write};
    return dec->be->ops->kv_write(dec->be, &a);
}

static fv_status declare_rows(const fv_forward_batch *pass, const fv_forward_tables *t, int32_t l) {
    for (int32_t b = 0; b < pass->n_seq; b++)
        for (int seg = 0; seg < FV_N_SEG; seg++)
            FV_TRY(fv_kv_append(pass->seq[b].kv, l, (fv_kv_segment)seg, t->seg_pos[seg][b],
                                t->seg_rows[b][seg]));
    return FV_OK;
}

/* Heads of a projection to queries, with or without a gate, or to keys. */
static int32_t weight_heads(const fv_decoder *dec, fv_tensor w) {
    int32_t D = dec->cfg->d_head;
    return w.rows == 2 * dec->cfg->n_head * D ? dec->cfg->n_head : w.rows / D;
}

/* The same for layers with heads of their own: h has the set's rows. */
static fv_status project_placed(fv_decoder *dec, int32_t l, int32_t rope, const fv_query_rows *set,
                                const fv_layer_scratch *s, fv_tensor h, const fv_tensor *of,
                                fv_tensor weight, fv_tensor *y) {
    const fv_text_config *c = dec->cfg;
    const fv_tensor w = *of;
    const bool query = of == &dec->w.layer[l].q;
    const int32_t heads = query ? c->n_head : c->n_kv;
    fv_tensor raw = fv_tensor_of(s->some_raw.data, h.dtype, set->n, w.rows), none = {0};
    *y = fv_tensor_of(s->some.data, h.dtype, set->n, heads * c->d_head);
    if (query && !fv_heads_placed(c, l)) raw = *y;
    fv_linear_args a = {.x = h, .n_part = 1, .part = {{w, none, raw, false}}};
    FV_TRY(dec->be->ops->linear(dec->be, &a));
    FV_TRY(fv_adapter_add(dec, &set->adapters, &dec->w.layer[l], of, h, raw));
    FV_TRY(fv_heads_norm(dec, raw, fv_heads_of(c, l).d, weight));
    if (!query) FV_TRY(fv_heads_put_keys(dec, l, raw, *y));
    if (query && fv_heads_placed(c, l)) FV_TRY(fv_heads_put_queries(dec, l, raw, *y));
    return fv_decoder_rope(dec, none, *y, set->cos[rope], set->sin[rope]);
}

/* y = RoPE(norm(h w^T + bias)) for a set's rows, packed; y is cut from s->some. */
static fv_status project_subset(fv_decoder *dec, int32_t l, int32_t rope, const fv_query_rows *set,
                                const fv_layer_scratch *s, const fv_tensor *of, fv_tensor bias,
                                fv_tensor weight, fv_tensor *y) {
    fv_tensor h = fv_tensor_rows(s->some_h, 0, set->n), w = *of;
    fv_index_select_args rows = {.table = s->h, .y = h, .ids = set->row};
    FV_TRY(dec->be->ops->index_select(dec->be, &rows));
    if (fv_heads_vary(dec->cfg)) return project_placed(dec, l, rope, set, s, h, of, weight, y);
    bool arranged = fv_heads_arranged(dec->cfg);
    int32_t heads = weight_heads(dec, w), stride = w.rows / heads;
    *y = fv_tensor_of(s->some.data, s->some.dtype, set->n, heads * dec->cfg->d_head);
    fv_tensor raw = fv_tensor_of(s->some_raw.data, s->some.dtype, set->n, w.rows);
    fv_linear_args a = {.x = h, .n_part = 1, .part = {{w, bias, arranged ? raw : *y, false}}};
    FV_TRY(dec->be->ops->linear(dec->be, &a));
    FV_TRY(fv_adapter_add(dec, &set->adapters, &dec->w.layer[l], of, h, arranged ? raw : *y));
    if (arranged) FV_TRY(fv_heads_arrange(dec, raw, stride, *y));
    return fv_decoder_rope(dec, weight, *y, set->cos[rope], set->sin[rope]);
}

/* Copies row i of x to row set->row[i] of y; other rows of y stay. */
static fv_status spread(fv_decoder *dec, const fv_query_rows *set, fv_tensor x, fv_tensor y) {
    fv_device *dev = dec->be->device;
    size_t bytes = (size_t)x.cols * fv_dtype_bytes(x.dtype);
    for (int32_t i = 0, n; i < set->n; i += n) {
        for (n = 1; i + n < set->n && set->row[i + n] == set->row[i] + n; n++) {
        }
        FV_TRY(dev->ops->copy_async(dev, fv_tensor_rows(y, set->row[i], n).data,
                                    fv_tensor_rows(x, i, n).data, (size_t)n * bytes));
    }
    return FV_OK;
}

/* Writes keys of rows that have their own, and values of all rows, to the stores. s->k and s->v
 * hold them if the set is all rows. */
static fv_status write_kv(fv_decoder *dec, const fv_forward_batch *pass, fv_forward_tables *t,
                          int32_t l, const fv_query_rows *keys, const fv_layer_scratch *s) {
    const fv_text_layer *w = &dec->w.layer[l];
    fv_tensor k, none = {0};
    FV_TRY(reserve_rows(pass, t, l, t->write));
    FV_TRY(write_rows(dec, pass, t->write, keys->all ? s->k : none, s->v));
    if (!keys->all && keys->n > 0) {
        FV_TRY(reserve_rows(pass, t, l, keys->write));
        FV_TRY(project_subset(dec, l, fv_text_rope(dec->cfg, l), keys, s, &w->k, w->k_bias,
                              w->k_norm, &k));
        FV_TRY(write_rows(dec, pass, keys->write, k, none));
    }
    return declare_rows(pass, t, l);
}

/* Projects all rows of a layer with heads of its own: values, and keys and queries where all rows have
 * their own. */
static fv_status project_heads(fv_decoder *dec, int32_t l, bool queries, bool keys,
                               const fv_layer_scratch *s) {
    const fv_text_config *c = dec->cfg;
    const fv_text_layer *w = &dec->w.layer[l];
    const int32_t n = s->h.rows, d = fv_heads_of(c, l).d, wide = d * fv_heads_of(c, l).n_kv;
    const fv_tensor none = {0}, k = fv_tensor_of(s->raw_k.data, s->raw_k.dtype, n, wide),
                    v = fv_tensor_of(s->raw_v.data, s->raw_v.dtype, n, wide),
                    q = fv_heads_placed(c, l) ? s->raw_q : s->q;
    const bool same = !w->v.data; /* value_is_key */
    fv_linear_args a = {.x = s->h, .n_part = 1, .part = {{same ? w->k : w->v, none, v, false}}};
    fv_activate_args key = {.act = FV_ACT_NONE, .x = v, .y = k};
    if (keys && !same) a.part[a.n_part++] = (fv_linear_part){w->k, none, k, false};
    if (queries) a.part[a.n_part++] = (fv_linear_part){w->q, none, q, false};
    FV_TRY(dec->be->ops->linear(dec->be, &a));
    FV_TRY(fv_adapter_add(dec, s->adapters, w, same ? &w->k : &w->v, s->h, v));
    if (keys && !same) FV_TRY(fv_adapter_add(dec, s->adapters, w, &w->k, s->h, k));
    if (queries) FV_TRY(fv_adapter_add(dec, s->adapters, w, &w->q, s->h, q));
    if (keys && same) FV_TRY(dec->be->ops->activate(dec->be, &key));
    if (c->value_norm) FV_TRY(fv_heads_norm(dec, v, d, none));
    FV_TRY(fv_heads_put_keys(dec, l, v, s->v));
    if (keys) {
        FV_TRY(fv_heads_norm(dec, k, d, w->k_norm));
        FV_TRY(fv_heads_put_keys(dec, l, k, s->k));
    }
    if (!queries) return FV_OK;
    FV_TRY(fv_heads_norm(dec, q, d, w->q_norm));
    return fv_heads_placed(c, l) ? fv_heads_put_queries(dec, l, q, s->q) : FV_OK;
}

fv_status fv_layer_project(fv_decoder *dec, const fv_forward_batch *pass, fv_forward_tables *t,
                           int32_t l, const fv_query_rows *queries, const fv_query_rows *keys,
                           const fv_layer_scratch *s) {
    const fv_text_layer *w = &dec->w.layer[l];
    const fv_recurrent_scratch *raw = &s->recurrent;
    bool arranged = fv_heads_arranged(dec->cfg), gated = dec->cfg->gated_attention;
    fv_tensor k = arranged ? raw->raw_k : s->k, q_raw = arranged ? raw->raw : s->q;
    fv_tensor k_norm = w->k_norm, q_norm = w->q_norm, none = {0};
    fv_linear_args a = {.x = s->h, .n_part = 1, .part = {{w->v, w->v_bias, s->v, false}}};
    if (keys->all) a.part[a.n_part++] = (fv_linear_part){w->k, w->k_bias, k, false};
    if (queries->all || gated) a.part[a.n_part++] = (fv_linear_part){w->q, w->q_bias, q_raw, false};
    if (fv_heads_vary(dec->cfg)) {
        FV_TRY(project_heads(dec, l, queries->all, keys->all, s));
        k_norm = q_norm = none; /* done */
    } else {
        FV_TRY(dec->be->ops->linear(dec->be, &a));
        FV_TRY(fv_adapter_add(dec, s->adapters, w, &w->v, s->h, s->v));
        if (keys->all) FV_TRY(fv_adapter_add(dec, s->adapters, w, &w->k, s->h, k));
        if (queries->all || gated) FV_TRY(fv_adapter_add(dec, s->adapters, w, &w->q, s->h, q_raw));
    }
    if (gated) FV_TRY(fv_heads_gate(dec, q_raw, raw->gate));
    if (arranged && keys->all) FV_TRY(fv_heads_arrange(dec, k, dec->cfg->d_head, s->k));
    if (arranged && queries->all)
        FV_TRY(fv_heads_arrange(dec, q_raw, q_raw.cols / dec->cfg->n_head, s->q));
    const int32_t k_rope = fv_text_rope(dec->cfg, l), q_rope = fv_text_query_rope(dec->cfg, l);
    if (keys->all) FV_TRY(fv_decoder_rope(dec, k_norm, s->k, t->cos[k_rope], t->sin[k_rope]));
    if (queries->all) FV_TRY(fv_decoder_rope(dec, q_norm, s->q, t->cos[q_rope], t->sin[q_rope]));
    FV_TRY(write_kv(dec, pass, t, l, keys, s));
    if (queries->all || queries->n == 0) return FV_OK;
    fv_tensor q;
    FV_TRY(project_subset(dec, l, q_rope, queries, s, &w->q, w->q_bias, w->q_norm, &q));
    return spread(dec, queries, q, s->q);
}
