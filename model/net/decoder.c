/* Decoder layers over a ragged pass. The host computes the tables that all layers share once per
 * pass (forward_tables.h); per layer it only fills argument structs.
 *
 * LAZY LAYERS (Q Cache, lazy attention). Layers of a block share rotated queries and keys of its
 * first layer, the source layer c: all of them (GLA), or those of image tokens (VLA).
 *
 *   O_l = softmax(Q K^T / sqrt(D) + causal) V_l,   V_l = X_l Wv_l^T
 *   GLA: Q, K = Q_c, K_c
 *   VLA: Q, K = Q_c, K_c in image tokens, RoPE(X_l Wq_l^T), RoPE(X_l Wk_l^T) in text tokens
 *
 * The store handles shared keys: the block tables of a lazy layer point to those of the source
 * layer. The Q cache is the matrix of queries itself: layers run one after the other, and a lazy
 * one writes only the rows that it computes itself, so the others still hold the source layer's
 * queries. Queries are carried from one call to the next only where a block's layers are spread
 * over calls. */
#include "model/net/decoder_internal.h"

#include <assert.h>

#include "model/net/forward_tables.h"
#include "model/net/heads_internal.h"
#include "model/net/layer_internal.h"

/* Attention of `seqs`, all rows or the wanted ones, which are the last, to the keys and values of the layer, or
 * of that whose it shares. */
static fv_status attend(fv_decoder *dec, const fv_forward_batch *pass, const fv_forward_tables *t,
                        fv_attn_seq *seqs, int32_t l, fv_tensor q, fv_tensor o) {
    const int32_t held = fv_text_kv_layer(dec->cfg, l);
    for (int32_t b = 0; b < pass->n_seq; b++) {
        const fv_forward_seq *seq = &pass->seq[b];
        const uint8_t *share = seq->share ? seq->share[held] : NULL;
        seqs[b].tables = fv_kv_runs(seq->kv, held);
        seqs[b].share = share ? share + seq->n_rows - seqs[b].n_rows : NULL;
        seqs[b].n_first = seq->share_first;
        seqs[b].n = seq->n;
        fv_forward_tables_window(dec->cfg, pass, t, b, held, &seqs[b]);
        fv_forward_tables_mask(dec->cfg, t, b, held, &seqs[b]);
        if (held < t->l0) FV_TRY(fv_forward_tables_mask_held(pass, b, held, &dec->host, &seqs[b]));
    }
    fv_attn_args a = {.q = q,
                      .o = o,
                      .kv_dtype = fv_kv_get_shape(pass->seq[0].kv)->dtype,
                      .n_head = dec->cfg->n_head,
                      .n_kv = dec->cfg->n_kv,
                      .d_head = dec->cfg->d_head,
                      .n_seq = pass->n_seq,
                      .scale = fv_attention_scale(dec->cfg),
                      .slides = dec->cfg->slides[l],
                      .seqs = seqs};
    if (held != l) return dec->be->ops->attention(dec->be, &a);
    a.lse = fv_captures_lse(&t->captures, pass, l, q.rows);
    if (!a.lse.data && t->packed.any) a.lse = fv_tensor_rows(t->packed.lse, 0, q.rows);
    if (!a.lse.data && dec->watcher) a.lse = fv_tensor_rows(dec->lse, 0, q.rows);
    FV_TRY(dec->be->ops->attention(dec->be, &a));
    FV_TRY(fv_captures_read(&t->captures, dec->be, pass, l, &a));
    FV_TRY(fv_packed_forward_attend(&t->packed, dec->be, dec->rope, pass, l, &a));
    if (!dec->watcher) return FV_OK;
    FV_TRY(dec->be->ops->sync(dec->be));
    return dec->watcher(dec->watcher_user, pass, l, &a);
}

/* Runs the recurrent layers ahead of layer l's attention, over all rows. */
static fv_status recurrent_layers(fv_decoder *dec, const fv_forward_batch *pass, int32_t l,
                                  const fv_layer_scratch *s) {
    const fv_recurrent_config *r = &dec->cfg->recurrent;
    fv_tensor o, none = {0};
    for (int32_t i = 0; i < r->n; i++) {
        const fv_text_layer *w = &dec->w.recurrent[(ptrdiff_t)l * r->n + i];
        FV_TRY(fv_layer_norm(dec, pass->x, w->attn_norm, s->h));
        FV_TRY(fv_recurrent_mix(dec, pass, l, i, s->adapters, s->h, &s->recurrent, &o));
        FV_TRY(fv_layer_linear_add(dec, o, (fv_layer_output){w, &w->delta_out, none, none}, s,
                                   pass->x));
        FV_TRY(fv_layer_ffn(dec, w, s, pass->x));
    }
    return FV_OK;
}

/* Multiplies attention's output *o by the sigmoid of its gate, if the model has one. */
static fv_status apply_gate(fv_decoder *dec, const fv_layer_scratch *s, fv_tensor *o) {
    fv_tensor gate = s->recurrent.gate;
    if (!dec->cfg->gated_attention) return FV_OK;
    fv_activate_args a = {.act = FV_ACT_SIGMOID, .x = gate, .gate = *o, .y = gate};
    *o = gate;
    return dec->be->ops->activate(dec->be, &a);
}

/* Takes the layer's own heads out of attention's output *o, where they are placed. */
static fv_status own_heads(fv_decoder *dec, int32_t l, const fv_layer_scratch *s, fv_tensor *o) {
    if (!fv_heads_placed(dec->cfg, l)) return FV_OK;
    FV_TRY(fv_heads_take(dec, l, *o, s->raw_q));
    *o = s->raw_q;
    return FV_OK;
}

/* Ends layer l: adds what its own embeddings give, then x *= the layer's number, if there are such. */
static fv_status end_layer(fv_decoder *dec, int32_t l, const fv_layer_scratch *s, fv_tensor x) {
    const fv_text_layer *w = &dec->w.layer[l];
    if (dec->cfg->d_input) FV_TRY(fv_layer_inputs_add(dec, &s->inputs, l, s->adapters, s->h, x));
    return w->scale.data ? fv_layer_scale_rows(dec, x, w->scale, x, false) : FV_OK;
}

/* Runs a layer that shares keys and values over rows x, all or the wanted ones. */
static fv_status shared_layer(fv_decoder *dec, const fv_forward_batch *pass, fv_forward_tables *t,
                              int32_t l, bool few, const fv_layer_scratch *s, fv_tensor x) {
    const fv_text_layer *w = &dec->w.layer[l];
    const bool placed = fv_heads_placed(dec->cfg, l);
    const int32_t rope = fv_text_rope(dec->cfg, l);
    const fv_tensor none = {0}, raw = placed ? s->raw_q : s->q;
    fv_tensor o = s->o;
    fv_linear_args a = {.x = s->h, .n_part = 1, .part = {{w->q, none, raw, false}}};
    FV_TRY(fv_layer_norm(dec, x, w->attn_norm, s->h));
    FV_TRY(dec->be->ops->linear(dec->be, &a));
    FV_TRY(fv_adapter_add(dec, s->adapters, w, &w->q, s->h, raw));
    FV_TRY(fv_heads_norm(dec, raw, fv_heads_of(dec->cfg, l).d, w->q_norm));
    if (placed) FV_TRY(fv_heads_put_queries(dec, l, raw, s->q));
    FV_TRY(fv_decoder_rope(dec, none, s->q, few ? t->cos_wanted[rope] : t->cos[rope],
                           few ? t->sin_wanted[rope] : t->sin[rope]));
    FV_TRY(attend(dec, pass, t, few ? t->attn_wanted : t->attn, l, s->q, s->o));
    FV_TRY(own_heads(dec, l, s, &o));
    FV_TRY(fv_layer_linear_add(dec, o, (fv_layer_output){w, &w->o, none, w->attn_post_norm}, s, x));
    FV_TRY(fv_layer_ffn(dec, w, s, x));
    return end_layer(dec, l, s, x);
}

/* Runs those that follow layer l, which is the last one or has none. */
static fv_status shared_layers(fv_decoder *dec, const fv_forward_batch *pass, fv_forward_tables *t,
                               int32_t l, bool few, const fv_layer_scratch *s, fv_tensor x) {
    const fv_text_config *c = dec->cfg;
    for (int32_t i = c->n_layer; l == c->n_layer - 1 && i < fv_text_layers(c); i++)
        FV_TRY(shared_layer(dec, pass, t, i, few, s, x));
    return FV_OK;
}

/* A layer, and the rows that compute their own queries and keys in it. */
typedef struct layer_of_pass {
    int32_t l;
    const fv_query_rows *queries, *keys;
} layer_of_pass;

static fv_status layer_all_rows(fv_decoder *dec, const fv_forward_batch *pass, fv_forward_tables *t,
                                layer_of_pass at, const fv_layer_scratch *s) {
    const fv_text_layer *w = &dec->w.layer[at.l];
    fv_tensor o = s->o;
    FV_TRY(recurrent_layers(dec, pass, at.l, s));
    FV_TRY(fv_layer_norm(dec, pass->x, w->attn_norm, s->h));
    FV_TRY(fv_layer_project(dec, pass, t, at.l, at.queries, at.keys, s));
    FV_TRY(attend(dec, pass, t, t->attn, at.l, s->q, s->o));
    FV_TRY(apply_gate(dec, s, &o));
    FV_TRY(own_heads(dec, at.l, s, &o));
    FV_TRY(fv_layer_linear_add(dec, o, (fv_layer_output){w, &w->o, w->o_bias, w->attn_post_norm}, s,
                               pass->x));
    FV_TRY(fv_layer_ffn(dec, w, s, pass->x));
    FV_TRY(end_layer(dec, at.l, s, pass->x));
    return shared_layers(dec, pass, t, at.l, false, s, pass->x);
}

/* Runs the last layer: every row appends its key and value, only wanted rows continue. For a prompt
 * of L rows this saves nearly all of the layer's queries, output projection and FFN. */
static fv_status layer_wanted_rows(fv_decoder *dec, fv_forward_batch *pass, fv_forward_tables *t,
                                   layer_of_pass at, const fv_layer_scratch *s) {
    const fv_text_layer *w = &dec->w.layer[at.l];
    int32_t n = t->n_wanted;
    FV_TRY(recurrent_layers(dec, pass, at.l, s));
    FV_TRY(fv_layer_norm(dec, pass->x, w->attn_norm, s->h));
    FV_TRY(fv_layer_project(dec, pass, t, at.l, at.queries, at.keys, s));
    pass->out = fv_workspace_cut(&dec->ws, FV_F32, n, dec->cfg->d_model);
    if (n == 0) return FV_OK;
    fv_layer_scratch few = fv_layer_scratch_cut(dec, n, &t->adapters_wanted);
    fv_index_select_args rows = {.table = pass->x, .y = pass->out, .ids = t->wanted};
    fv_index_select_args queries = {.table = s->q, .y = few.q, .ids = t->wanted};
    FV_TRY(dec->be->ops->index_select(dec->be, &rows));
    FV_TRY(dec->be->ops->index_select(dec->be, &queries));
    fv_index_select_args gates = {
        .table = s->recurrent.gate, .y = few.recurrent.gate, .ids = t->wanted};
    if (dec->cfg->gated_attention) FV_TRY(dec->be->ops->index_select(dec->be, &gates));
    FV_TRY(attend(dec, pass, t, t->attn_wanted, at.l, few.q, few.o));
    fv_tensor o = few.o;
    FV_TRY(apply_gate(dec, &few, &o));
    FV_TRY(own_heads(dec, at.l, &few, &o));
    FV_TRY(fv_layer_linear_add(dec, o, (fv_layer_output){w, &w->o, w->o_bias, w->attn_post_norm},
                               &few, pass->out));
    if (dec->cfg->d_input) FV_TRY(fv_layer_inputs_pick(dec, &s->inputs, t->wanted, &few.inputs));
    FV_TRY(fv_layer_ffn(dec, w, &few, pass->out));
    FV_TRY(end_layer(dec, at.l, &few, pass->out));
    return shared_layers(dec, pass, t, at.l, true, &few, pass->out);
}

static size_t pass_bytes(const fv_decoder *dec, const fv_forward_batch *pass,
                         const fv_forward_tables *t) {
    const fv_text_config *c = dec->cfg;
    fv_dtype act = dec->be->ops->act;
    return fv_layer_scratch_bytes(c, act, t->n_rows) + fv_layer_scratch_bytes(c, act, t->n_wanted) +
           fv_layer_subset_bytes(c, act, t->most) +
           fv_workspace_need(FV_F32, t->n_wanted, c->d_model) +
           (dec->watcher ? fv_workspace_need(FV_F32, t->n_rows, c->n_head) : 0) +
           fv_forward_tables_bytes(c, pass, t);
}

/* Copies queries of blocks that have layers on both sides of layer l: into the forward batch's
 * matrix, or out of it. */
static fv_status carry_queries(fv_decoder *dec, const fv_forward_batch *pass, int32_t l,
                               fv_tensor q, bool in) {
    fv_device *dev = dec->be->device;
    if (l == dec->cfg->n_layer) return FV_OK;
    for (int32_t b = 0, row = 0; b < pass->n_seq; row += pass->seq[b++].n_rows) {
        const fv_forward_seq *seq = &pass->seq[b];
        if (fv_kv_source_layer(seq->kv, l) == l || !seq->queries.data) continue;
        fv_tensor here = fv_tensor_rows(q, row, seq->n_rows);
        size_t bytes = (size_t)here.rows * (size_t)here.cols * fv_dtype_bytes(here.dtype);
        FV_TRY(dev->ops->copy_async(dev, in ? here.data : seq->queries.data,
                                    in ? seq->queries.data : here.data, bytes));
    }
    return FV_OK;
}

/* Adds deepstack's embeddings after layer l, one run of adjacent rows at a time. */
static fv_status add_deepstack(fv_decoder *dec, const fv_forward_batch *pass, int32_t l) {
    int32_t d = dec->cfg->d_model;
    for (int32_t b = 0, row = 0; b < pass->n_seq; row += pass->seq[b++].n_rows) {
        const fv_forward_seq *s = &pass->seq[b];
        if (!s->embed_at || s->embeds.cols < (l + 2) * d) continue;
        for (int32_t i = 0, n; i < s->n_rows; i += n) {
            n = 1;
            if (s->seg[i] != FV_SEG_VISUAL) continue;
            int32_t at = s->embed_at[s->pos[i]];
            while (i + n < s->n_rows && s->seg[i + n] == FV_SEG_VISUAL &&
                   s->embed_at[s->pos[i + n]] == at + n)
                n++;
            fv_activate_args add = {.act = FV_ACT_NONE,
                                    .x = fv_tensor_rows(s->embeds, at, n),
                                    .y = fv_tensor_rows(pass->x, row + i, n),
                                    .accumulate = true};
            add.x.cols = d;
            add.x.data = (float *)add.x.data + (size_t)(l + 1) * (size_t)d;
            FV_TRY(dec->be->ops->activate(dec->be, &add));
        }
    }
    return FV_OK;
}

fv_status fv_decoder_layers(fv_decoder *dec, fv_forward_batch *pass, int32_t l0, int32_t l1) {
    const fv_text_config *c = dec->cfg;
    fv_forward_tables t;
    assert(l0 >= 0 && l0 <= l1 && l1 <= c->n_layer);
    pass->out = (fv_tensor){0};
    if (pass->x.rows == 0) return FV_OK;
    if (c->recurrent.n) FV_TRY(fv_recurrent_begin(pass, l0));
    fv_arena_reset(&dec->host);
    FV_TRY(fv_forward_tables_make(c, pass, l0, l1, &dec->host, &t));
    FV_TRY(fv_workspace_reset(&dec->ws, pass_bytes(dec, pass, &t)));
    FV_TRY(fv_forward_tables_put(c, pass, &t, dec->rope, &dec->host, &dec->ws));
    fv_layer_scratch s = fv_layer_scratch_cut(dec, t.n_rows, &t.adapters);
    fv_layer_subset_cut(dec, t.most, &s);
    if (c->d_input) FV_TRY(fv_layer_inputs_fill(dec, pass, &s.inputs));
    if (dec->watcher) dec->lse = fv_workspace_cut(&dec->ws, FV_F32, t.n_rows, c->n_head);
    FV_TRY(carry_queries(dec, pass, l0, s.q, true));
    bool few = t.n_wanted < t.n_rows;
    for (int32_t l = l0; l < l1; l++) {
        layer_of_pass at = {l, t.queries[l - l0], t.keys[l - l0]};
        if (l == c->n_layer - 1 && few)
            FV_TRY(layer_wanted_rows(dec, pass, &t, at, &s));
        else
            FV_TRY(layer_all_rows(dec, pass, &t, at, &s));
        FV_TRY(add_deepstack(dec, pass, l));
        atomic_fetch_add_explicit(&dec->n_layer_run, 1, memory_order_relaxed);
    }
    if (l1 == c->n_layer && !few) pass->out = pass->x;
    return carry_queries(dec, pass, l1, s.q, false);
}

void fv_decoder_watch(fv_decoder *dec, fv_decoder_watcher *watcher, void *user) {
    dec->watcher = watcher;
    dec->watcher_user = user;
}

uint64_t fv_decoder_layers_run(const fv_decoder *dec) {
    return atomic_load_explicit(&dec->n_layer_run, memory_order_relaxed);
}
