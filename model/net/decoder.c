/* Decoder layers over a ragged pass. Per pass the host works out once what every layer shares
 * (angles, slots, how many of a segment's last rows each query must not see); per layer it only
 * fills argument structs. */
#include "model/net/decoder.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "model/net/rope.h"
#include "model/net/taps.h"
#include "model/net/workspace.h"

struct fv_decoder {
    fv_backend *be;
    const fv_text_config *cfg;
    fv_text_weights w;
    fv_workspace ws;      /* activations of a pass */
    fv_workspace head_ws; /* of the head, which reads rows that lie in ws */
    fv_rope rope;
    fv_arena host; /* the pass's tables */
    atomic_ullong n_layer_run;
};

/* What all layers of one pass share. */
typedef struct pass_tables {
    int32_t n_rows;
    fv_tensor cos, sin;            /* [rows, D/2] on the device */
    fv_kv_write_seq *write;        /* [n_seq] */
    fv_attn_seq *attn;             /* [n_seq], every row a query */
    int32_t (*seg_rows)[FV_N_SEG]; /* [n_seq] rows per segment */
    int32_t **seg_pos[FV_N_SEG];   /* [n_seq] positions of those rows */
    /* the last layer: wanted rows only */
    int32_t n_wanted, *wanted; /* row numbers */
    fv_attn_seq *attn_wanted;  /* [n_seq] */
    fv_tensor cos_wanted, sin_wanted;
    fv_taps taps;
} pass_tables;

/* Activations of one layer. */
typedef struct layer_scratch {
    fv_tensor h, q, k, v, o, gate, up;
} layer_scratch;

/* ---- opening --------------------------------------------------------------------------- */

static fv_status load_layer(fv_workspace *ws, const fv_text_layer *in, fv_text_layer *out) {
    /* A layer is nothing but tensors, so both sides are walked as arrays of them. */
    _Static_assert(sizeof(fv_text_layer) % sizeof(fv_tensor) == 0, "tensors only");
    const fv_tensor *from = (const fv_tensor *)in;
    fv_tensor *to = (fv_tensor *)out;
    for (size_t i = 0; i < sizeof *in / sizeof *from; i++)
        FV_TRY(fv_workspace_weight(ws, &from[i], &to[i]));
    return FV_OK;
}

static fv_status load_weights(fv_decoder *dec, const fv_text_weights *host) {
    FV_TRY(fv_workspace_weight(&dec->ws, &host->embed, &dec->w.embed));
    FV_TRY(fv_workspace_weight(&dec->ws, &host->norm, &dec->w.norm));
    if (host->head.data == host->embed.data)
        dec->w.head = dec->w.embed;
    else
        FV_TRY(fv_workspace_weight(&dec->ws, &host->head, &dec->w.head));
    dec->w.layer = calloc((size_t)dec->cfg->n_layer, sizeof *dec->w.layer);
    if (!dec->w.layer) return FV_FAIL(FV_ENOMEM, "out of memory for the list of layers");
    for (int32_t l = 0; l < dec->cfg->n_layer; l++)
        FV_TRY(load_layer(&dec->ws, &host->layer[l], &dec->w.layer[l]));
    return FV_OK;
}

fv_status fv_decoder_open(fv_backend *be, const fv_text_config *cfg, const fv_text_weights *host,
                          fv_decoder **out) {
    fv_decoder *dec = calloc(1, sizeof *dec);
    if (!dec) return FV_FAIL(FV_ENOMEM, "out of memory for the decoder");
    *dec = (fv_decoder){.be = be, .cfg = cfg, .ws = {.be = be}, .head_ws = {.be = be}};
    fv_rope_init(&dec->rope, &cfg->rope, cfg->d_head);
    fv_status st = load_weights(dec, host);
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
    fv_arena_fini(&dec->host);
    free(dec->w.layer);
    free(dec);
}

const fv_text_config *fv_decoder_config(const fv_decoder *dec) { return dec->cfg; }

fv_backend *fv_decoder_backend(const fv_decoder *dec) { return dec->be; }

fv_status fv_decoder_embed(fv_decoder *dec, const int32_t *ids, int32_t n, fv_tensor y) {
    for (int32_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= dec->cfg->vocab)
            return FV_FAIL(FV_EINVAL, "token id %d at %d: the vocabulary has %d", ids[i], i,
                           dec->cfg->vocab);
    fv_gather_args a = {.table = dec->w.embed, .y = y, .ids = ids};
    return dec->be->ops->gather(dec->be, &a);
}

/* ---- tables of a pass ------------------------------------------------------------------ */

/* hidden[s][i]: rows of segment s that stand behind query i in this pass; slot[r]: how many rows
 * of r's segment stand before r. */
static fv_status seq_tables(fv_decoder *dec, const fv_pass_seq *seq, int32_t b, int32_t row0,
                            pass_tables *t) {
    int32_t n = seq->n_rows, *slot, *hidden;
    FV_TRY(FV_ARENA_NEW(&dec->host, n, slot));
    FV_TRY(FV_ARENA_NEW(&dec->host, (size_t)n * FV_N_SEG, hidden));
    for (int s = 0; s < FV_N_SEG; s++) FV_TRY(FV_ARENA_NEW(&dec->host, n, t->seg_pos[s][b]));
    int32_t *count = t->seg_rows[b];
    for (int32_t r = 0; r < n; r++) {
        assert(seq->seg[r] < FV_N_SEG);
        slot[r] = count[seq->seg[r]]++;
        t->seg_pos[seq->seg[r]][b][slot[r]] = seq->pos[r];
    }
    int32_t behind[FV_N_SEG] = {0};
    for (int32_t r = n - 1; r >= 0; r--) {
        for (int s = 0; s < FV_N_SEG; s++) hidden[(size_t)s * (size_t)n + (size_t)r] = behind[s];
        behind[seq->seg[r]]++;
    }
    t->write[b] = (fv_kv_write_seq){
        .row0 = row0, .n_rows = n, .n_seg = FV_N_SEG, .seg = seq->seg, .slot = slot};
    t->attn[b] = (fv_attn_seq){.row0 = row0, .n_rows = n, .n_seg = FV_N_SEG, .hidden = hidden};

    int32_t w = seq->wanted, *hidden_wanted;
    assert(w >= 0 && w <= n);
    FV_TRY(FV_ARENA_NEW(&dec->host, (size_t)w * FV_N_SEG, hidden_wanted));
    for (int s = 0; s < FV_N_SEG; s++)
        for (int32_t i = 0; i < w; i++)
            hidden_wanted[s * w + i] = hidden[(size_t)s * (size_t)n + (size_t)(n - w + i)];
    t->attn_wanted[b] =
        (fv_attn_seq){.row0 = t->n_wanted, .n_rows = w, .n_seg = FV_N_SEG, .hidden = hidden_wanted};
    for (int32_t i = 0; i < w; i++) t->wanted[t->n_wanted++] = row0 + n - w + i;
    return FV_OK;
}

static fv_status put_angles(fv_decoder *dec, const int32_t *pos, int32_t n, fv_tensor *cos_out,
                            fv_tensor *sin_out) {
    int32_t half = dec->rope.half;
    float *c, *s;
    FV_TRY(FV_ARENA_NEW(&dec->host, (size_t)n * (size_t)half, c));
    FV_TRY(FV_ARENA_NEW(&dec->host, (size_t)n * (size_t)half, s));
    fv_rope_angles(&dec->rope, pos, n, c, s);
    *cos_out = fv_workspace_cut(&dec->ws, FV_F32, n, half);
    *sin_out = fv_workspace_cut(&dec->ws, FV_F32, n, half);
    fv_device *dev = dec->be->device;
    size_t bytes = (size_t)n * (size_t)half * sizeof *c;
    FV_TRY(dev->ops->copy_async(dev, cos_out->data, c, bytes));
    return dev->ops->copy_async(dev, sin_out->data, s, bytes);
}

static size_t scratch_bytes(const fv_text_config *c, fv_dtype act, int32_t rows) {
    size_t head = fv_workspace_need(act, rows, c->n_head * c->d_head);
    size_t kv = fv_workspace_need(act, rows, c->n_kv * c->d_head);
    return fv_workspace_need(act, rows, c->d_model) + 2 * head + 2 * kv +
           2 * fv_workspace_need(act, rows, c->d_ffn);
}

static layer_scratch cut_scratch(fv_decoder *dec, int32_t rows) {
    const fv_text_config *c = dec->cfg;
    fv_dtype act = dec->be->ops->act;
    layer_scratch s;
    s.h = fv_workspace_cut(&dec->ws, act, rows, c->d_model);
    s.q = fv_workspace_cut(&dec->ws, act, rows, c->n_head * c->d_head);
    s.k = fv_workspace_cut(&dec->ws, act, rows, c->n_kv * c->d_head);
    s.v = fv_workspace_cut(&dec->ws, act, rows, c->n_kv * c->d_head);
    s.o = fv_workspace_cut(&dec->ws, act, rows, c->n_head * c->d_head);
    s.gate = fv_workspace_cut(&dec->ws, act, rows, c->d_ffn);
    s.up = fv_workspace_cut(&dec->ws, act, rows, c->d_ffn);
    return s;
}

static fv_status make_tables(fv_decoder *dec, const fv_pass *pass, pass_tables *t) {
    *t = (pass_tables){0};
    int32_t n_wanted = 0, *pos, *pos_wanted;
    for (int32_t b = 0; b < pass->n_seq; b++) {
        t->n_rows += pass->seq[b].n_rows;
        n_wanted += pass->seq[b].wanted;
    }
    assert(t->n_rows == pass->x.rows);
    FV_TRY(FV_ARENA_NEW(&dec->host, pass->n_seq, t->write));
    FV_TRY(FV_ARENA_NEW(&dec->host, pass->n_seq, t->attn));
    FV_TRY(FV_ARENA_NEW(&dec->host, pass->n_seq, t->attn_wanted));
    FV_TRY(FV_ARENA_NEW(&dec->host, pass->n_seq, t->seg_rows));
    for (int s = 0; s < FV_N_SEG; s++) FV_TRY(FV_ARENA_NEW(&dec->host, pass->n_seq, t->seg_pos[s]));
    FV_TRY(FV_ARENA_NEW(&dec->host, n_wanted, t->wanted));
    FV_TRY(FV_ARENA_NEW(&dec->host, t->n_rows, pos));
    FV_TRY(FV_ARENA_NEW(&dec->host, n_wanted, pos_wanted));
    for (int32_t b = 0, row0 = 0; b < pass->n_seq; row0 += pass->seq[b++].n_rows) {
        FV_TRY(seq_tables(dec, &pass->seq[b], b, row0, t));
        memcpy(pos + row0, pass->seq[b].pos, (size_t)pass->seq[b].n_rows * sizeof *pos);
    }
    for (int32_t i = 0; i < t->n_wanted; i++) pos_wanted[i] = pos[t->wanted[i]];
    FV_TRY(fv_taps_cut(&dec->ws, &dec->host, dec->cfg, pass, &t->taps));
    FV_TRY(put_angles(dec, pos, t->n_rows, &t->cos, &t->sin));
    return put_angles(dec, pos_wanted, t->n_wanted, &t->cos_wanted, &t->sin_wanted);
}

/* ---- one layer ------------------------------------------------------------------------- */

static fv_status norm(fv_decoder *dec, fv_tensor x, fv_tensor w, fv_tensor y) {
    fv_norm_args a = {.x = x, .w = w, .y = y, .eps = dec->cfg->rms_eps, .rms = true};
    return dec->be->ops->norm(dec->be, &a);
}

static fv_status rope(fv_decoder *dec, fv_tensor x, fv_tensor c, fv_tensor s, int32_t n_head) {
    fv_rope_args a = {.x = x, .cos = c, .sin = s, .n_head = n_head};
    return dec->be->ops->rope(dec->be, &a);
}

/* y += x w^T + bias */
static fv_status linear_add(fv_decoder *dec, fv_tensor x, fv_tensor w, fv_tensor bias,
                            fv_tensor y) {
    fv_linear_args a = {.x = x, .n_part = 1, .part = {{w, bias, y, true}}};
    return dec->be->ops->linear(dec->be, &a);
}

/* Keys and values of all rows go into the stores. */
static fv_status write_kv(fv_decoder *dec, const fv_pass *pass, const pass_tables *t, int32_t l,
                          const layer_scratch *s) {
    for (int32_t b = 0; b < pass->n_seq; b++) {
        fv_kv *kv = pass->seq[b].kv;
        FV_TRY(fv_kv_reserve(kv, l, t->seg_rows[b][FV_SEG_TEXT]));
        t->write[b].runs = fv_kv_runs(kv, l);
    }
    fv_kv_write_args a = {.k = s->k,
                          .v = s->v,
                          .kv_dtype = fv_kv_get_shape(pass->seq[0].kv)->dtype,
                          .n_kv = dec->cfg->n_kv,
                          .d_head = dec->cfg->d_head,
                          .n_seq = pass->n_seq,
                          .seqs = t->write};
    FV_TRY(dec->be->ops->kv_write(dec->be, &a));
    for (int32_t b = 0; b < pass->n_seq; b++)
        for (int seg = 0; seg < FV_N_SEG; seg++)
            FV_TRY(fv_kv_append(pass->seq[b].kv, l, (fv_kv_segment)seg, t->seg_pos[seg][b],
                                t->seg_rows[b][seg]));
    return FV_OK;
}

/* seqs: all rows, or the wanted ones, which are the last. */
static fv_status attend(fv_decoder *dec, const fv_pass *pass, const pass_tables *t,
                        fv_attn_seq *seqs, int32_t l, fv_tensor q, fv_tensor o) {
    for (int32_t b = 0; b < pass->n_seq; b++) {
        const fv_pass_seq *seq = &pass->seq[b];
        const uint8_t *share = seq->share ? seq->share[l] : NULL;
        seqs[b].runs = fv_kv_runs(seq->kv, l);
        seqs[b].share = share ? share + seq->n_rows - seqs[b].n_rows : NULL;
        seqs[b].n = seq->n;
    }
    fv_attn_args a = {.q = q,
                      .o = o,
                      .lse = fv_taps_lse(&t->taps, pass, l, q.rows),
                      .kv_dtype = fv_kv_get_shape(pass->seq[0].kv)->dtype,
                      .n_head = dec->cfg->n_head,
                      .n_kv = dec->cfg->n_kv,
                      .d_head = dec->cfg->d_head,
                      .n_seq = pass->n_seq,
                      .scale = 1.0f / sqrtf((float)dec->cfg->d_head),
                      .seqs = seqs};
    FV_TRY(dec->be->ops->attention(dec->be, &a));
    return fv_taps_read(&t->taps, dec->be, pass, l, &a);
}

static fv_status ffn(fv_decoder *dec, const fv_text_layer *w, const layer_scratch *s, fv_tensor x) {
    FV_TRY(norm(dec, x, w->mlp_norm, s->h));
    fv_linear_args in = {
        .x = s->h,
        .n_part = 2,
        .part = {{w->gate, w->gate_bias, s->gate, false}, {w->up, w->up_bias, s->up, false}}};
    FV_TRY(dec->be->ops->linear(dec->be, &in));
    fv_activate_args act = {.act = dec->cfg->act, .x = s->gate, .gate = s->up, .y = s->gate};
    FV_TRY(dec->be->ops->activate(dec->be, &act));
    return linear_add(dec, s->gate, w->down, w->down_bias, x);
}

static fv_status layer_all_rows(fv_decoder *dec, const fv_pass *pass, pass_tables *t, int32_t l,
                                const layer_scratch *s) {
    const fv_text_layer *w = &dec->w.layer[l];
    FV_TRY(norm(dec, pass->x, w->attn_norm, s->h));
    fv_linear_args in = {.x = s->h,
                         .n_part = 3,
                         .part = {{w->q, w->q_bias, s->q, false},
                                  {w->k, w->k_bias, s->k, false},
                                  {w->v, w->v_bias, s->v, false}}};
    FV_TRY(dec->be->ops->linear(dec->be, &in));
    FV_TRY(rope(dec, s->q, t->cos, t->sin, dec->cfg->n_head));
    FV_TRY(rope(dec, s->k, t->cos, t->sin, dec->cfg->n_kv));
    FV_TRY(write_kv(dec, pass, t, l, s));
    FV_TRY(attend(dec, pass, t, t->attn, l, s->q, s->o));
    FV_TRY(linear_add(dec, s->o, w->o, w->o_bias, pass->x));
    return ffn(dec, w, s, pass->x);
}

/* The last layer: every row leaves its key and value, only the wanted ones go on. For a prompt
 * of L rows this saves nearly all of the layer's queries, output projection and FFN. */
static fv_status layer_wanted_rows(fv_decoder *dec, fv_pass *pass, pass_tables *t, int32_t l,
                                   const layer_scratch *s) {
    const fv_text_layer *w = &dec->w.layer[l];
    FV_TRY(norm(dec, pass->x, w->attn_norm, s->h));
    fv_linear_args kv = {.x = s->h,
                         .n_part = 2,
                         .part = {{w->k, w->k_bias, s->k, false}, {w->v, w->v_bias, s->v, false}}};
    FV_TRY(dec->be->ops->linear(dec->be, &kv));
    FV_TRY(rope(dec, s->k, t->cos, t->sin, dec->cfg->n_kv));
    FV_TRY(write_kv(dec, pass, t, l, s));
    int32_t n = t->n_wanted;
    pass->out = fv_workspace_cut(&dec->ws, FV_F32, n, dec->cfg->d_model);
    if (n == 0) return FV_OK;
    layer_scratch few = cut_scratch(dec, n);
    fv_gather_args rows = {.table = pass->x, .y = pass->out, .ids = t->wanted};
    FV_TRY(dec->be->ops->gather(dec->be, &rows));
    /* The norm of a row does not depend on the others, so it is taken again from the few. */
    FV_TRY(norm(dec, pass->out, w->attn_norm, few.h));
    fv_linear_args q = {.x = few.h, .n_part = 1, .part = {{w->q, w->q_bias, few.q, false}}};
    FV_TRY(dec->be->ops->linear(dec->be, &q));
    FV_TRY(rope(dec, few.q, t->cos_wanted, t->sin_wanted, dec->cfg->n_head));
    FV_TRY(attend(dec, pass, t, t->attn_wanted, l, few.q, few.o));
    FV_TRY(linear_add(dec, few.o, w->o, w->o_bias, pass->out));
    return ffn(dec, w, &few, pass->out);
}

fv_status fv_decoder_layers(fv_decoder *dec, fv_pass *pass, int32_t l0, int32_t l1) {
    const fv_text_config *c = dec->cfg;
    assert(l0 >= 0 && l0 <= l1 && l1 <= c->n_layer);
    pass->out = (fv_tensor){0};
    if (pass->x.rows == 0) return FV_OK;
    int32_t rows = pass->x.rows, wanted = 0;
    for (int32_t b = 0; b < pass->n_seq; b++) wanted += pass->seq[b].wanted;
    fv_dtype act = dec->be->ops->act;
    FV_TRY(fv_workspace_reset(&dec->ws, scratch_bytes(c, act, rows) +
                                            scratch_bytes(c, act, wanted) + fv_taps_bytes(c, pass) +
                                            fv_workspace_need(FV_F32, wanted, c->d_model) +
                                            2 * fv_workspace_need(FV_F32, rows, dec->rope.half) +
                                            2 * fv_workspace_need(FV_F32, wanted, dec->rope.half)));
    fv_arena_reset(&dec->host);
    pass_tables t;
    FV_TRY(make_tables(dec, pass, &t));
    layer_scratch s = cut_scratch(dec, rows);
    for (int32_t l = l0; l < l1; l++) {
        if (l == c->n_layer - 1 && wanted < rows)
            FV_TRY(layer_wanted_rows(dec, pass, &t, l, &s));
        else
            FV_TRY(layer_all_rows(dec, pass, &t, l, &s));
        atomic_fetch_add_explicit(&dec->n_layer_run, 1, memory_order_relaxed);
    }
    if (l1 == c->n_layer && wanted == rows) pass->out = pass->x;
    return FV_OK;
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
    return dec->be->ops->sync(dec->be);
}
