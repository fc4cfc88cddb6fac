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
#include <stdlib.h>
#include <string.h>

#include "common/convert.h"
#include "kernels/activations.h"
#include "kernels/mathf.h"
#include "model/net/experts.h"
#include "model/net/forward_tables.h"
#include "model/net/heads_internal.h"
#include "model/net/layer_inputs.h"
#include "model/net/recurrent_internal.h"

/* Activations of one layer. */
typedef struct layer_scratch {
    fv_tensor h, q, k, v, o, gate, up;
    fv_tensor some_h, some;        /* for a set that is not all rows: states, and queries or keys */
    fv_tensor shared, shared_gate; /* of a shared expert: its output, and a number for each row */
    fv_tensor some_raw;            /* heads of those, before they are rearranged */
    fv_tensor routed;              /* with dense_beside: what the router reads */
    fv_tensor raw_q, raw_k, raw_v; /* heads of a layer, before they are placed (heads_internal.h) */
    fv_layer_inputs inputs;        /* of the rows */
    const fv_adapter_rows *adapters; /* of the rows */
    fv_recurrent_scratch recurrent;
} layer_scratch;

/* ---- opening --------------------------------------------------------------------------- */

/* The norm's factors: w itself, or 1 + w computed into *at. */
static fv_tensor factors_of(const fv_decoder *dec, fv_tensor w, float **at) {
    if (!dec->cfg->norm_plus_one || !w.data) return w;
    fv_tensor made = fv_tensor_of(*at, FV_F32, 1, w.cols);
    widen_row(w.data, w.dtype, (size_t)w.cols, *at);
    for (int32_t i = 0; i < w.cols; i++) *(*at)++ += 1.0f;
    return made;
}

/* The factors of the last norm: those of the head's input, divided as the logits are. */
static fv_tensor last_factors(const fv_decoder *dec, fv_tensor w, float **at) {
    if (dec->cfg->logits_divisor == 0) return factors_of(dec, w, at);
    fv_tensor made = fv_tensor_of(*at, FV_F32, 1, w.cols);
    widen_row(w.data, w.dtype, (size_t)w.cols, *at);
    for (int32_t i = 0; i < w.cols; i++) *(*at)++ /= dec->cfg->logits_divisor;
    return made;
}

/* Makes a row of d equal factors; absent where the factor is 0, which stands for 1. */
static fv_status equal_factors(fv_decoder *dec, float factor, float **at, fv_tensor *out) {
    fv_tensor row = fv_tensor_of(*at, FV_F32, 1, dec->cfg->d_model);
    if (factor == 0) return FV_OK;
    for (int32_t i = 0; i < row.cols; i++) *(*at)++ = factor;
    return fv_workspace_weight(&dec->ws, &row, out);
}

/* Makes a row of d factors that are all the number in *w. */
static void widen_scale(const fv_decoder *dec, fv_tensor *w, float **at) {
    fv_tensor made = fv_tensor_of(*at, FV_F32, 1, dec->cfg->d_model);
    float scale;
    if (!w->data) return;
    widen_row(w->data, w->dtype, 1, &scale);
    for (int32_t i = 0; i < made.cols; i++) *(*at)++ = scale;
    *w = made;
}

/* Makes the router's norm, whose factors are the file's times d^-1/2, and the experts' factors in F32. */
static void make_router(const fv_decoder *dec, fv_text_layer *w, float **at) {
    const int32_t d = dec->cfg->d_model, n = dec->cfg->n_expert;
    const float by = 1 / sqrtf((float)d);
    const fv_tensor norm = fv_tensor_of(*at, FV_F32, 1, d),
                    scale = fv_tensor_of(*at + d, FV_F32, 1, n);
    widen_row(w->router_norm.data, w->router_norm.dtype, (size_t)d, *at);
    widen_row(w->expert_scale.data, w->expert_scale.dtype, (size_t)n, *at + d);
    for (int32_t i = 0; i < d; i++) (*at)[i] *= by;
    w->router_norm = norm;
    w->expert_scale = scale;
    *at += d + n;
}

/* Makes the router's bias in F32. */
static void widen_bias(fv_tensor *w, float **at) {
    const fv_tensor made = fv_tensor_of(*at, FV_F32, 1, w->cols);
    if (!w->data) return;
    widen_row(w->data, w->dtype, (size_t)w->cols, *at);
    *at += w->cols;
    *w = made;
}

static fv_status load_layer(fv_decoder *dec, fv_text_layer in, fv_text_layer *out, float **at) {
    /* A layer is nothing but tensors, so both sides are walked as arrays of them. */
    _Static_assert(sizeof(fv_text_layer) % sizeof(fv_tensor) == 0, "tensors only");
    const fv_tensor *from = (const fv_tensor *)&in;
    fv_tensor *to = (fv_tensor *)out,
              *norms[] = {&in.attn_norm, &in.mlp_norm,       &in.q_norm,
                          &in.k_norm,    &in.attn_post_norm, &in.mlp_post_norm};
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        *norms[i] = factors_of(dec, *norms[i], at);
    if (dec->cfg->rope.rotary && !dec->cfg->rope.adjacent && in.q_norm.data) {
        FV_TRY(fv_heads_arrange_host(dec->cfg, in.q_norm.data));
        FV_TRY(fv_heads_arrange_host(dec->cfg, in.k_norm.data));
    }
    widen_scale(dec, &in.scale, at);
    widen_bias(&in.router_bias, at);
    if (in.router_norm.data) make_router(dec, &in, at);
    if (in.delta_qkv.data) fv_recurrent_weights(&dec->cfg->recurrent, &in, at);
    for (size_t i = 0; i < sizeof in / sizeof *from; i++)
        FV_TRY(fv_workspace_weight(&dec->ws, &from[i], &to[i]));
    return FV_OK;
}

/* Allocates memory for factors that differ from the file: rows of embed_scale and residual_scale,
 * 1 + w, and the last norm's. */
static fv_status make_factors(fv_decoder *dec, float **at) {
    const fv_text_config *c = dec->cfg;
    size_t d = (size_t)c->d_model, layer = c->norm_plus_one ? 4 * d + 2 * (size_t)c->d_head : 0;
    layer += (size_t)c->recurrent.n * (2 * d + fv_recurrent_made(&c->recurrent));
    const size_t n_layer = (size_t)fv_text_layers(c), p = (size_t)c->d_input;
    layer += c->layer_scale ? d : 0;
    layer += c->dense_beside ? d + (size_t)c->n_expert : 0;
    layer += c->router.sigmoid ? (size_t)c->n_expert : 0;
    const int32_t D = c->d_head, q = c->n_head * D;
    const size_t heads = fv_heads_vary(c) ? (size_t)D + (size_t)q : 0;
    *at = dec->made = malloc((3 * d + heads + 3 * p + n_layer * layer) * sizeof *dec->made);
    if (!dec->made) return FV_FAIL(FV_ENOMEM, "out of memory for the norms' factors");
    if (heads) {
        const fv_tensor ones = fv_tensor_of(*at, FV_F32, 1, D),
                        zeros = fv_tensor_of(*at + D, FV_F32, 1, q);
        for (size_t i = 0; i < heads; i++) *(*at)++ = i < (size_t)D ? 1.0F : 0.0F;
        FV_TRY(fv_workspace_weight(&dec->ws, &ones, &dec->ones));
        FV_TRY(fv_workspace_weight(&dec->ws, &zeros, &dec->zeros));
    }
    if (p) FV_TRY(fv_layer_inputs_open(dec, at));
    FV_TRY(equal_factors(dec, c->embed_scale, at, &dec->factor));
    return equal_factors(dec, c->residual_scale, at, &dec->residual);
}

static fv_status load_weights(fv_decoder *dec, const fv_text_weights *host) {
    float *at = NULL;
    FV_TRY(make_factors(dec, &at));
    fv_tensor norm = last_factors(dec, host->norm, &at);
    FV_TRY(fv_workspace_weight(&dec->ws, &host->embed, &dec->w.embed));
    FV_TRY(fv_workspace_weight(&dec->ws, &norm, &dec->w.norm));
    if (host->head.data == host->embed.data)
        dec->w.head = dec->w.embed;
    else
        FV_TRY(fv_workspace_weight(&dec->ws, &host->head, &dec->w.head));
    dec->w.input_table = host->input_table; /* stays where it is */
    FV_TRY(fv_workspace_weight(&dec->ws, &host->input_norm, &dec->w.input_norm));
    const int32_t n_layer = fv_text_layers(dec->cfg), p = dec->cfg->d_input;
    dec->w.layer = calloc((size_t)n_layer, sizeof *dec->w.layer);
    if (!dec->w.layer) return FV_FAIL(FV_ENOMEM, "out of memory for the list of layers");
    for (int32_t l = 0; l < n_layer; l++) {
        fv_text_layer layer = host->layer[l];
        if (p) layer.input_rows = fv_tensor_rows(host->input_project, l * p, p);
        FV_TRY(load_layer(dec, layer, &dec->w.layer[l], &at));
    }
    dec->w.expert = host->expert; /* experts are in the host's memory (fv_experts_check) */
    int32_t n_recurrent = dec->cfg->n_layer * dec->cfg->recurrent.n;
    if (n_recurrent == 0) return FV_OK;
    dec->w.recurrent = calloc((size_t)n_recurrent, sizeof *dec->w.recurrent);
    if (!dec->w.recurrent) return FV_FAIL(FV_ENOMEM, "out of memory for the list of layers");
    for (int32_t i = 0; i < n_recurrent; i++)
        FV_TRY(load_layer(dec, host->recurrent[i], &dec->w.recurrent[i], &at));
    return FV_OK;
}

fv_status fv_decoder_open(fv_backend *be, const fv_text_config *cfg, const fv_text_weights *host,
                          fv_decoder **out) {
    if (cfg->recurrent.n && be->device != fv_device_host())
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "this model has recurrent layers, which %s does not compute: use --device cpu",
            be->ops->name);
    if (cfg->d_input && be->device != fv_device_host())
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "this model has per-layer embeddings, which %s does not compute: use --device cpu",
            be->ops->name);
    fv_decoder *dec = calloc(1, sizeof *dec);
    if (!dec) return FV_FAIL(FV_ENOMEM, "out of memory for the decoder");
    *dec = (fv_decoder){.be = be,
                        .cfg = cfg,
                        .ws = {.be = be},
                        .head_ws = {.be = be},
                        .experts_ws = {.be = be},
                        .adapter_ws = {.be = be}};
    fv_rope_init(&dec->rope[0], &cfg->rope, cfg->d_head);
    if (fv_text_ropes(cfg) > 1)
        fv_rope_init(&dec->rope[1], cfg->two_ropes ? &cfg->rope_slides : &cfg->rope, cfg->d_head);
    fv_status st = cfg->n_expert ? fv_experts_check(be) : FV_OK;
    if (st == FV_OK) st = load_weights(dec, host);
    if (st != FV_OK) {
        fv_decoder_close(dec);
        return st;
    }
    *out = dec;
    return FV_OK;
}

void fv_decoder_close(fv_decoder *dec) {
    if (!dec) return;
    fv_workspace_fini(&dec->ws);
    fv_workspace_fini(&dec->head_ws);
    fv_workspace_fini(&dec->experts_ws);
    fv_workspace_fini(&dec->adapter_ws);
    fv_arena_fini(&dec->host);
    free(dec->w.layer);
    free(dec->w.recurrent);
    free(dec->adjacent);
    free(dec->made);
    free(dec);
}

const fv_text_config *fv_decoder_config(const fv_decoder *dec) { return dec->cfg; }

fv_backend *fv_decoder_backend(const fv_decoder *dec) { return dec->be; }

/* y = x times a row of factors, or y += that. */
static fv_status scale_rows(fv_decoder *dec, fv_tensor x, fv_tensor factors, fv_tensor y,
                            bool add) {
    fv_activate_args a = {.act = FV_ACT_NONE, .x = x, .gate = factors, .y = y, .accumulate = add};
    a.gate.rows = x.rows;
    a.gate.ld = 0;
    return dec->be->ops->activate(dec->be, &a);
}

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
    return dec->factor.data ? scale_rows(dec, y, dec->factor, y, false) : FV_OK;
}

fv_status fv_decoder_embed_images(fv_decoder *dec, fv_tensor x, fv_tensor y) {
    fv_activate_args copy = {.act = FV_ACT_NONE, .x = x, .y = y};
    if (dec->cfg->embed_images && dec->factor.data)
        return scale_rows(dec, x, dec->factor, y, false);
    return dec->be->ops->activate(dec->be, &copy);
}

/* ---- scratch --------------------------------------------------------------------------- */

/* Width of the widest dense FFN. */
static int32_t widest_ffn(const fv_text_config *c) {
    const int32_t dense = fv_text_dense_width(c, fv_text_layers(c) - 1);
    return dense > c->d_shared ? dense : c->d_shared;
}

static size_t scratch_bytes(const fv_text_config *c, fv_dtype act, int32_t rows) {
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

static layer_scratch cut_scratch(fv_decoder *dec, int32_t rows, const fv_adapter_rows *adapters) {
    const fv_text_config *c = dec->cfg;
    fv_dtype act = dec->be->ops->act;
    layer_scratch s = {.adapters = adapters};
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

/* Scratch of sets that are not all rows; queries are the widest that go through it. */
static size_t some_bytes(const fv_text_config *c, fv_dtype act, int32_t rows) {
    int32_t q = c->n_head * c->d_head;
    return fv_workspace_need(act, rows, c->d_model) + fv_workspace_need(act, rows, q) +
           (fv_heads_arranged(c) || fv_heads_vary(c) ? fv_workspace_need(act, rows, 2 * q) : 0);
}

static void cut_subset(fv_decoder *dec, int32_t rows, layer_scratch *s) {
    s->some_h = fv_workspace_cut(&dec->ws, dec->be->ops->act, rows, dec->cfg->d_model);
    s->some =
        fv_workspace_cut(&dec->ws, dec->be->ops->act, rows, dec->cfg->n_head * dec->cfg->d_head);
    if (fv_heads_arranged(dec->cfg) || fv_heads_vary(dec->cfg))
        s->some_raw = fv_workspace_cut(&dec->ws, dec->be->ops->act, rows,
                                       2 * dec->cfg->n_head * dec->cfg->d_head);
}

/* ---- one layer ------------------------------------------------------------------------- */

static fv_status norm(fv_decoder *dec, fv_tensor x, fv_tensor w, fv_tensor y) {
    fv_norm_args a = {.x = x, .w = w, .y = y, .eps = dec->cfg->rms_eps, .rms = true};
    return dec->be->ops->norm(dec->be, &a);
}

fv_status fv_decoder_rope(fv_decoder *dec, fv_tensor weight, fv_tensor x, fv_tensor c,
                          fv_tensor s) {
    int32_t D = dec->cfg->d_head, n_head = x.cols / D;
    fv_rope_args a = {.x = x, .cos = c, .sin = s, .n_head = n_head};
    if (weight.data) { /* each head is one row for the norm */
        fv_tensor heads = fv_tensor_of(x.data, x.dtype, x.rows * n_head, D);
        FV_TRY(norm(dec, heads, weight, heads));
    }
    return dec->be->ops->rope(dec->be, &a);
}

/* y += h, normed first with post_norms, scaled with residual_scale; h is overwritten. */
static fv_status add_output(fv_decoder *dec, fv_tensor h, fv_tensor post_norm, fv_tensor y) {
    fv_activate_args add = {.act = FV_ACT_NONE, .x = h, .y = y, .accumulate = true};
    if (post_norm.data) FV_TRY(norm(dec, h, post_norm, h));
    if (dec->residual.data) return scale_rows(dec, h, dec->residual, y, true);
    return dec->be->ops->activate(dec->be, &add);
}

/* The linear layer of `of`, a tensor of layer w. */
typedef struct layer_output {
    const fv_text_layer *w;
    const fv_tensor *of;
    fv_tensor bias, post_norm;
} layer_output;

/* y += x of^T + bias; with post_norms the product is normed first, with residual_scale scaled, in s->h. */
static fv_status linear_add(fv_decoder *dec, fv_tensor x, layer_output out, const layer_scratch *s,
                            fv_tensor y) {
    bool apart = out.post_norm.data || dec->residual.data;
    fv_tensor to = apart ? s->h : y;
    fv_linear_args a = {.x = x, .n_part = 1, .part = {{*out.of, out.bias, to, !apart}}};
    FV_TRY(dec->be->ops->linear(dec->be, &a));
    FV_TRY(fv_adapter_add(dec, s->adapters, out.w, out.of, x, to));
    return apart ? add_output(dec, s->h, out.post_norm, y) : FV_OK;
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
                                const layer_scratch *s, fv_tensor h, const fv_tensor *of,
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
                                const layer_scratch *s, const fv_tensor *of, fv_tensor bias,
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
                          int32_t l, const fv_query_rows *keys, const layer_scratch *s) {
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
                               const layer_scratch *s) {
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

/* Projects values of all rows, and keys and queries of rows that have their own. Queries go to
 * s->q, whose other rows stay as the source layer left them. */
static fv_status project(fv_decoder *dec, const fv_forward_batch *pass, fv_forward_tables *t,
                         int32_t l, const fv_query_rows *queries, const fv_query_rows *keys,
                         const layer_scratch *s) {
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

/* Makes the inner activations *y of a dense FFN, in s->gate, of s->h. */
static fv_status ffn_inner(fv_decoder *dec, const fv_text_layer *w, const layer_scratch *s,
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
static fv_status shared_expert(fv_decoder *dec, const fv_text_layer *w, const layer_scratch *s) {
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

/* Runs a mixture of experts and, if there is one, the shared expert. */
static fv_status experts(fv_decoder *dec, const fv_text_layer *w, const layer_scratch *s) {
    const fv_text_config *c = dec->cfg;
    fv_activate_args add = {.act = FV_ACT_NONE, .x = s->shared, .y = s->h, .accumulate = true};
    const fv_text_expert *apart =
        dec->w.expert ? dec->w.expert + (w - dec->w.layer) * c->n_expert : NULL;
    if (c->d_shared) FV_TRY(shared_expert(dec, w, s));
    FV_TRY(fv_experts_run(&dec->experts_ws, c, w, apart, s->h, s->h, s->h));
    return c->d_shared ? dec->be->ops->activate(dec->be, &add) : FV_OK;
}

/* s->h = norm(FFN(norm(x))) + norm(experts(norm(x))), for a layer with both; s->h is norm(x) of the first
 * on entry. */
static fv_status dense_and_experts(fv_decoder *dec, const fv_text_layer *w, const layer_scratch *s,
                                   fv_tensor x) {
    fv_activate_args add = {.act = FV_ACT_NONE, .x = s->shared, .y = s->h, .accumulate = true};
    fv_tensor inner;
    FV_TRY(ffn_inner(dec, w, s, &inner));
    fv_linear_args out = {.x = inner, .n_part = 1, .part = {{w->down, {0}, s->shared, false}}};
    FV_TRY(dec->be->ops->linear(dec->be, &out));
    FV_TRY(fv_adapter_add(dec, s->adapters, w, &w->down, inner, s->shared));
    FV_TRY(norm(dec, s->shared, w->dense_post_norm, s->shared));
    FV_TRY(norm(dec, x, w->router_norm, s->routed));
    FV_TRY(norm(dec, x, w->experts_norm, s->h));
    FV_TRY(fv_experts_run(&dec->experts_ws, dec->cfg, w, NULL, s->routed, s->h, s->h));
    FV_TRY(norm(dec, s->h, w->experts_post_norm, s->h));
    return dec->be->ops->activate(dec->be, &add);
}

static fv_status ffn(fv_decoder *dec, const fv_text_layer *w, const layer_scratch *s, fv_tensor x) {
    FV_TRY(norm(dec, x, w->mlp_norm, s->h));
    if (w->router_norm.data) {
        FV_TRY(dense_and_experts(dec, w, s, x));
        return add_output(dec, s->h, w->mlp_post_norm, x);
    }
    if (w->router.data) {
        FV_TRY(experts(dec, w, s));
        return add_output(dec, s->h, w->mlp_post_norm, x);
    }
    fv_tensor inner;
    FV_TRY(ffn_inner(dec, w, s, &inner));
    return linear_add(dec, inner, (layer_output){w, &w->down, w->down_bias, w->mlp_post_norm}, s,
                      x);
}

/* Runs the recurrent layers ahead of layer l's attention, over all rows. */
static fv_status recurrent_layers(fv_decoder *dec, const fv_forward_batch *pass, int32_t l,
                                  const layer_scratch *s) {
    const fv_recurrent_config *r = &dec->cfg->recurrent;
    fv_tensor o, none = {0};
    for (int32_t i = 0; i < r->n; i++) {
        const fv_text_layer *w = &dec->w.recurrent[(ptrdiff_t)l * r->n + i];
        FV_TRY(norm(dec, pass->x, w->attn_norm, s->h));
        FV_TRY(fv_recurrent_mix(dec, pass, l, i, s->adapters, s->h, &s->recurrent, &o));
        FV_TRY(linear_add(dec, o, (layer_output){w, &w->delta_out, none, none}, s, pass->x));
        FV_TRY(ffn(dec, w, s, pass->x));
    }
    return FV_OK;
}

/* Multiplies attention's output *o by the sigmoid of its gate, if the model has one. */
static fv_status apply_gate(fv_decoder *dec, const layer_scratch *s, fv_tensor *o) {
    fv_tensor gate = s->recurrent.gate;
    if (!dec->cfg->gated_attention) return FV_OK;
    fv_activate_args a = {.act = FV_ACT_SIGMOID, .x = gate, .gate = *o, .y = gate};
    *o = gate;
    return dec->be->ops->activate(dec->be, &a);
}

/* Takes the layer's own heads out of attention's output *o, where they are placed. */
static fv_status own_heads(fv_decoder *dec, int32_t l, const layer_scratch *s, fv_tensor *o) {
    if (!fv_heads_placed(dec->cfg, l)) return FV_OK;
    FV_TRY(fv_heads_take(dec, l, *o, s->raw_q));
    *o = s->raw_q;
    return FV_OK;
}

/* Ends layer l: adds what its own embeddings give, then x *= the layer's number, if there are such. */
static fv_status end_layer(fv_decoder *dec, int32_t l, const layer_scratch *s, fv_tensor x) {
    const fv_text_layer *w = &dec->w.layer[l];
    if (dec->cfg->d_input) FV_TRY(fv_layer_inputs_add(dec, &s->inputs, l, s->adapters, s->h, x));
    return w->scale.data ? scale_rows(dec, x, w->scale, x, false) : FV_OK;
}

/* Runs a layer that shares keys and values over rows x, all or the wanted ones. */
static fv_status shared_layer(fv_decoder *dec, const fv_forward_batch *pass, fv_forward_tables *t,
                              int32_t l, bool few, const layer_scratch *s, fv_tensor x) {
    const fv_text_layer *w = &dec->w.layer[l];
    const bool placed = fv_heads_placed(dec->cfg, l);
    const int32_t rope = fv_text_rope(dec->cfg, l);
    const fv_tensor none = {0}, raw = placed ? s->raw_q : s->q;
    fv_tensor o = s->o;
    fv_linear_args a = {.x = s->h, .n_part = 1, .part = {{w->q, none, raw, false}}};
    FV_TRY(norm(dec, x, w->attn_norm, s->h));
    FV_TRY(dec->be->ops->linear(dec->be, &a));
    FV_TRY(fv_adapter_add(dec, s->adapters, w, &w->q, s->h, raw));
    FV_TRY(fv_heads_norm(dec, raw, fv_heads_of(dec->cfg, l).d, w->q_norm));
    if (placed) FV_TRY(fv_heads_put_queries(dec, l, raw, s->q));
    FV_TRY(fv_decoder_rope(dec, none, s->q, few ? t->cos_wanted[rope] : t->cos[rope],
                           few ? t->sin_wanted[rope] : t->sin[rope]));
    FV_TRY(attend(dec, pass, t, few ? t->attn_wanted : t->attn, l, s->q, s->o));
    FV_TRY(own_heads(dec, l, s, &o));
    FV_TRY(linear_add(dec, o, (layer_output){w, &w->o, none, w->attn_post_norm}, s, x));
    FV_TRY(ffn(dec, w, s, x));
    return end_layer(dec, l, s, x);
}

/* Runs those that follow layer l, which is the last one or has none. */
static fv_status shared_layers(fv_decoder *dec, const fv_forward_batch *pass, fv_forward_tables *t,
                               int32_t l, bool few, const layer_scratch *s, fv_tensor x) {
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
                                layer_of_pass at, const layer_scratch *s) {
    const fv_text_layer *w = &dec->w.layer[at.l];
    fv_tensor o = s->o;
    FV_TRY(recurrent_layers(dec, pass, at.l, s));
    FV_TRY(norm(dec, pass->x, w->attn_norm, s->h));
    FV_TRY(project(dec, pass, t, at.l, at.queries, at.keys, s));
    FV_TRY(attend(dec, pass, t, t->attn, at.l, s->q, s->o));
    FV_TRY(apply_gate(dec, s, &o));
    FV_TRY(own_heads(dec, at.l, s, &o));
    FV_TRY(linear_add(dec, o, (layer_output){w, &w->o, w->o_bias, w->attn_post_norm}, s, pass->x));
    FV_TRY(ffn(dec, w, s, pass->x));
    FV_TRY(end_layer(dec, at.l, s, pass->x));
    return shared_layers(dec, pass, t, at.l, false, s, pass->x);
}

/* Runs the last layer: every row appends its key and value, only wanted rows continue. For a prompt
 * of L rows this saves nearly all of the layer's queries, output projection and FFN. */
static fv_status layer_wanted_rows(fv_decoder *dec, fv_forward_batch *pass, fv_forward_tables *t,
                                   layer_of_pass at, const layer_scratch *s) {
    const fv_text_layer *w = &dec->w.layer[at.l];
    int32_t n = t->n_wanted;
    FV_TRY(recurrent_layers(dec, pass, at.l, s));
    FV_TRY(norm(dec, pass->x, w->attn_norm, s->h));
    FV_TRY(project(dec, pass, t, at.l, at.queries, at.keys, s));
    pass->out = fv_workspace_cut(&dec->ws, FV_F32, n, dec->cfg->d_model);
    if (n == 0) return FV_OK;
    layer_scratch few = cut_scratch(dec, n, &t->adapters_wanted);
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
    FV_TRY(linear_add(dec, o, (layer_output){w, &w->o, w->o_bias, w->attn_post_norm}, &few,
                      pass->out));
    if (dec->cfg->d_input) FV_TRY(fv_layer_inputs_pick(dec, &s->inputs, t->wanted, &few.inputs));
    FV_TRY(ffn(dec, w, &few, pass->out));
    FV_TRY(end_layer(dec, at.l, &few, pass->out));
    return shared_layers(dec, pass, t, at.l, true, &few, pass->out);
}

static size_t pass_bytes(const fv_decoder *dec, const fv_forward_batch *pass,
                         const fv_forward_tables *t) {
    const fv_text_config *c = dec->cfg;
    fv_dtype act = dec->be->ops->act;
    return scratch_bytes(c, act, t->n_rows) + scratch_bytes(c, act, t->n_wanted) +
           some_bytes(c, act, t->most) + fv_workspace_need(FV_F32, t->n_wanted, c->d_model) +
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
    layer_scratch s = cut_scratch(dec, t.n_rows, &t.adapters);
    cut_subset(dec, t.most, &s);
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
    FV_TRY(norm(dec, x, dec->w.norm, h));
    FV_TRY(dec->be->ops->linear(dec->be, &head));
    size_t bytes = (size_t)x.rows * (size_t)c->vocab * sizeof *logits;
    FV_TRY(dev->ops->copy_async(dev, logits, y.data, bytes));
    FV_TRY(dec->be->ops->sync(dec->be));
    const float cap = c->logits_cap;
    for (size_t i = 0; cap > 0 && i < bytes / sizeof *logits; i++)
        logits[i] = tanh_f32(logits[i] / cap) * cap;
    return FV_OK;
}
