/* Computes a layer's norm, queries, keys and rotation, one row of attention, and that row's scores.
 * Runs on the thread that owns the decoder. */
#include "model/net/lookahead.h"

#include <string.h>

#include "model/net/heads_internal.h"

typedef struct peeked {
    fv_tensor h, k, q, o, lse, sum, cos, sin;
    fv_tensor q_cos, q_sin; /* [1, D / 2] of the last row's query */
    fv_tensor raw, raw_q;   /* heads of a layer, before they are placed (heads_internal.h) */
    fv_tensor kv;           /* [n Hkv, D] of the store's type: keys by head */
} peeked;

static size_t lookahead_bytes(const fv_text_config *c, fv_dtype act,
                              const fv_lookahead *lookahead) {
    int32_t n = lookahead->x.rows, half = c->d_head / 2;
    return fv_workspace_need(act, n, c->d_model) + fv_workspace_need(act, n, c->n_kv * c->d_head) +
           2 * fv_workspace_need(act, 1, c->n_head * c->d_head) +
           fv_workspace_need(FV_F32, 1, c->n_head) + fv_workspace_need(FV_F32, c->n_head, n) +
           2 * fv_workspace_need(FV_F32, n, half) + 2 * fv_workspace_need(FV_F32, 1, half) +
           (fv_heads_vary(c) ? fv_workspace_need(act, n, fv_heads_wide_kv(c)) +
                                   fv_workspace_need(act, 1, c->n_head * c->d_head)
                             : 0) +
           fv_workspace_need(fv_kv_get_shape(lookahead->kv)->dtype, n * c->n_kv, c->d_head);
}

static peeked cut(fv_decoder *dec, const fv_lookahead *lookahead) {
    const fv_text_config *c = dec->cfg;
    fv_workspace *ws = &dec->ws;
    fv_dtype act = dec->be->ops->act;
    int32_t n = lookahead->x.rows;
    peeked s;
    s.h = fv_workspace_cut(ws, act, n, c->d_model);
    s.k = fv_workspace_cut(ws, act, n, c->n_kv * c->d_head);
    s.q = fv_workspace_cut(ws, act, 1, c->n_head * c->d_head);
    s.o = fv_workspace_cut(ws, act, 1, c->n_head * c->d_head);
    s.lse = fv_workspace_cut(ws, FV_F32, 1, c->n_head);
    s.sum = fv_workspace_cut(ws, FV_F32, c->n_head, n);
    s.cos = fv_workspace_cut(ws, FV_F32, n, c->d_head / 2);
    s.sin = fv_workspace_cut(ws, FV_F32, n, c->d_head / 2);
    s.q_cos = fv_workspace_cut(ws, FV_F32, 1, c->d_head / 2);
    s.q_sin = fv_workspace_cut(ws, FV_F32, 1, c->d_head / 2);
    if (fv_heads_vary(c)) {
        s.raw = fv_workspace_cut(ws, act, n, fv_heads_wide_kv(c));
        s.raw_q = fv_workspace_cut(ws, act, 1, c->n_head * c->d_head);
    }
    s.kv = fv_workspace_cut(ws, fv_kv_get_shape(lookahead->kv)->dtype, n * c->n_kv, c->d_head);
    return s;
}

/* Adds what the sequence's adapter adds to the keys of all rows and to the query of the last. */
static fv_status adapt(fv_decoder *dec, const fv_lookahead *lookahead, const peeked *s, fv_tensor k,
                       fv_tensor q) {
    const fv_text_layer *w = &dec->w.layer[lookahead->layer];
    const int32_t n = lookahead->x.rows;
    fv_forward_seq seq = {.kv = (fv_kv *)(uintptr_t)lookahead->kv, .n_rows = n};
    fv_forward_batch pass = {.n_seq = 1, .seq = &seq};
    fv_adapter_rows all, one;
    FV_TRY(fv_adapter_rows_make(&pass, NULL, n, &dec->host, &all));
    FV_TRY(fv_adapter_rows_make(&pass, NULL, 1, &dec->host, &one));
    FV_TRY(fv_adapter_add(dec, &all, w, &w->k, s->h, k));
    return fv_adapter_add(dec, &one, w, &w->q, fv_tensor_rows(s->h, n - 1, 1), q);
}

/* The same for layers with heads of their own. */
static fv_status project_heads(fv_decoder *dec, const fv_lookahead *lookahead, const peeked *s) {
    const int32_t l = lookahead->layer, n = lookahead->x.rows;
    const fv_text_layer *w = &dec->w.layer[l];
    const fv_heads heads = fv_heads_of(dec->cfg, l);
    const fv_tensor none = {0}, last = fv_tensor_rows(s->h, n - 1, 1);
    const fv_tensor k = fv_tensor_of(s->raw.data, s->raw.dtype, n, heads.d * heads.n_kv);
    const fv_tensor q = fv_tensor_of(s->raw_q.data, s->raw_q.dtype, 1, w->q.rows);
    fv_norm_args norm = {
        .x = lookahead->x, .w = w->attn_norm, .y = s->h, .eps = dec->cfg->rms_eps, .rms = true};
    fv_linear_args keys = {.x = s->h, .n_part = 1, .part = {{w->k, none, k, false}}};
    fv_linear_args query = {.x = last, .n_part = 1, .part = {{w->q, none, q, false}}};
    FV_TRY(dec->be->ops->norm(dec->be, &norm));
    FV_TRY(dec->be->ops->linear(dec->be, &keys));
    FV_TRY(dec->be->ops->linear(dec->be, &query));
    FV_TRY(adapt(dec, lookahead, s, k, q));
    FV_TRY(fv_heads_norm(dec, k, heads.d, w->k_norm));
    FV_TRY(fv_heads_norm(dec, q, heads.d, w->q_norm));
    FV_TRY(fv_heads_put_keys(dec, l, k, s->k));
    FV_TRY(fv_heads_put_queries(dec, l, q, s->q));
    FV_TRY(fv_decoder_rope(dec, none, s->k, s->cos, s->sin));
    return fv_decoder_rope(dec, none, s->q, s->q_cos, s->q_sin);
}

/* Computes q and k as the layer does. */
static fv_status project(fv_decoder *dec, const fv_lookahead *lookahead, const peeked *s) {
    const fv_text_layer *w = &dec->w.layer[lookahead->layer];
    if (fv_heads_vary(dec->cfg)) return project_heads(dec, lookahead, s);
    const fv_backend_ops *ops = dec->be->ops;
    int32_t last = lookahead->x.rows - 1;
    fv_norm_args norm = {
        .x = lookahead->x, .w = w->attn_norm, .y = s->h, .eps = dec->cfg->rms_eps, .rms = true};
    fv_linear_args keys = {.x = s->h, .n_part = 1, .part = {{w->k, w->k_bias, s->k, false}}};
    fv_linear_args query = {
        .x = fv_tensor_rows(s->h, last, 1), .n_part = 1, .part = {{w->q, w->q_bias, s->q, false}}};
    FV_TRY(ops->norm(dec->be, &norm));
    FV_TRY(ops->linear(dec->be, &keys));
    FV_TRY(ops->linear(dec->be, &query));
    FV_TRY(adapt(dec, lookahead, s, s->k, s->q));
    FV_TRY(fv_decoder_rope(dec, w->k_norm, s->k, s->cos, s->sin));
    return fv_decoder_rope(dec, w->q_norm, s->q, s->q_cos, s->q_sin);
}

static fv_status put_angles(fv_decoder *dec, const fv_lookahead *lookahead, const peeked *s) {
    fv_device *dev = dec->be->device;
    size_t n = (size_t)lookahead->x.rows * (size_t)(dec->cfg->d_head / 2);
    float *cosine, *sine;
    FV_TRY(FV_ARENA_NEW(&dec->host, n, cosine));
    FV_TRY(FV_ARENA_NEW(&dec->host, n, sine));
    const fv_rope *rope = &dec->rope[fv_text_rope(dec->cfg, lookahead->layer)];
    fv_rope_angles(rope, lookahead->rope_pos, lookahead->x.rows, cosine, sine);
    FV_TRY(dev->ops->copy_async(dev, s->cos.data, cosine, n * sizeof *cosine));
    FV_TRY(dev->ops->copy_async(dev, s->sin.data, sine, n * sizeof *sine));
    const int32_t last = lookahead->x.rows - 1, half = rope->half;
    float *c, *q;
    FV_TRY(FV_ARENA_NEW(&dec->host, half, c));
    FV_TRY(FV_ARENA_NEW(&dec->host, half, q));
    memcpy(c, cosine + (size_t)last * (size_t)half, (size_t)half * sizeof *c);
    memcpy(q, sine + (size_t)last * (size_t)half, (size_t)half * sizeof *q);
    if (dec->cfg->rope.query_beta != 0)
        fv_rope_scale_queries(&dec->cfg->rope, &lookahead->rope_pos[last], 1, half, c, q);
    FV_TRY(dev->ops->copy_async(dev, s->q_cos.data, c, (size_t)half * sizeof *c));
    return dev->ops->copy_async(dev, s->q_sin.data, q, (size_t)half * sizeof *q);
}

/* Makes block tables of one segment over s->kv. Values are the keys again, since the output is not
 * used. */
static fv_status make_runs(fv_decoder *dec, const fv_lookahead *lookahead, const peeked *s,
                           fv_block_table **out) {
    int32_t n = lookahead->x.rows, n_block = (n + FV_KV_BLOCK - 1) / FV_KV_BLOCK;
    fv_block_table *runs;
    FV_TRY(FV_ARENA_NEW(&dec->host, dec->cfg->n_kv, runs));
    for (int32_t g = 0; g < dec->cfg->n_kv; g++) {
        FV_TRY(FV_ARENA_NEW(&dec->host, n_block, runs[g].block));
        for (int32_t b = 0; b < n_block; b++) {
            void *at = fv_tensor_rows(s->kv, g * n + b * FV_KV_BLOCK, 1).data;
            runs[g].block[b] = (fv_kv_block){at, at};
        }
    }
    *out = runs;
    return FV_OK;
}

/* Writes keys through the block tables, whose length becomes the number of rows. */
static fv_status write_keys(fv_decoder *dec, const fv_lookahead *lookahead, const peeked *s,
                            fv_block_table *runs) {
    int32_t n = lookahead->x.rows, *slot;
    uint8_t *seg;
    FV_TRY(FV_ARENA_NEW(&dec->host, n, slot));
    FV_TRY(FV_ARENA_NEW(&dec->host, n, seg));
    for (int32_t r = 0; r < n; r++) slot[r] = r;
    fv_kv_write_seq seq = {.n_rows = n, .n_seg = 1, .tables = runs, .seg = seg, .slot = slot};
    fv_kv_write_args a = {.k = s->k,
                          .v = s->k,
                          .kv_dtype = s->kv.dtype,
                          .n_kv = dec->cfg->n_kv,
                          .d_head = dec->cfg->d_head,
                          .n_seq = 1,
                          .seqs = &seq};
    FV_TRY(dec->be->ops->kv_write(dec->be, &a));
    for (int32_t g = 0; g < dec->cfg->n_kv; g++) runs[g].len = n;
    return FV_OK;
}

static fv_status attend(fv_decoder *dec, const fv_lookahead *lookahead, const peeked *s,
                        const fv_block_table *runs) {
    fv_device *dev = dec->be->device;
    int32_t n = lookahead->x.rows;
    size_t bytes = (size_t)dec->cfg->n_head * (size_t)n * sizeof(float);
    const fv_text_config *cfg = dec->cfg;
    const int32_t **position, from = lookahead->pos[n - 1] - cfg->window + 1;
    fv_attn_seq seq = {.n_rows = 1, .n_seg = 1, .tables = runs};
    FV_TRY(FV_ARENA_NEW(&dec->host, cfg->n_kv, position));
    for (int32_t g = 0; g < cfg->n_kv; g++) position[g] = lookahead->pos;
    if (cfg->slides[lookahead->layer] && from > 0) seq.window_from = &from, seq.position = position;
    fv_attn_args a = {.q = s->q,
                      .o = s->o,
                      .lse = s->lse,
                      .kv_dtype = s->kv.dtype,
                      .n_head = cfg->n_head,
                      .n_kv = cfg->n_kv,
                      .d_head = cfg->d_head,
                      .n_seq = 1,
                      .scale = fv_attention_scale(cfg),
                      .slides = cfg->slides[lookahead->layer],
                      .seqs = &seq};
    fv_score_sum sum = {.n_row = 1, .n_kind = 1, .ld = n, .sum = s->sum.data};
    fv_score_sums_args sums = {.attn = &a, .n_sum = 1, .sums = &sum};
    memset(lookahead->p, 0, bytes);
    FV_TRY(dev->ops->copy_async(dev, s->sum.data, lookahead->p, bytes));
    FV_TRY(dec->be->ops->attention(dec->be, &a));
    FV_TRY(dec->be->ops->score_sums(dec->be, &sums));
    FV_TRY(dev->ops->copy_async(dev, lookahead->p, s->sum.data, bytes));
    return dec->be->ops->sync(dec->be);
}

fv_status fv_decoder_lookahead(fv_decoder *dec, const fv_lookahead *lookahead) {
    fv_block_table *runs;
    if (lookahead->x.rows == 0) return FV_OK;
    fv_arena_reset(&dec->host);
    FV_TRY(fv_workspace_reset(&dec->ws, lookahead_bytes(dec->cfg, dec->be->ops->act, lookahead)));
    peeked s = cut(dec, lookahead);
    FV_TRY(put_angles(dec, lookahead, &s));
    FV_TRY(project(dec, lookahead, &s));
    FV_TRY(make_runs(dec, lookahead, &s, &runs));
    FV_TRY(write_keys(dec, lookahead, &s, runs));
    return attend(dec, lookahead, &s, runs);
}
