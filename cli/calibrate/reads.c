/* Feeds rows of the decoder, layer by layer, to the weights; see reads.h. */
#include "cli/calibrate/reads.h"

#include <stdlib.h>

#include "common/arena.h"
#include "common/convert.h"
#include "model/net/rope.h"
#include "prefill-worker/select/store_rows.h"

struct fv_calibrate_reads {
    fv_engine *engine;
    fv_latent_reads *reads;
    fv_rope rope[2]; /* [fv_text_rope] */
    fv_arena arena;  /* for one layer of one pass */
};

/* Copies row `row` of a matrix on the device to the host, as F32. */
static fv_status bring(fv_calibrate_reads *r, fv_tensor m, int32_t row, float **out) {
    fv_device *dev = r->engine->be.device;
    size_t n = (size_t)m.cols;
    char *raw;
    FV_TRY(FV_ARENA_NEW(&r->arena, n * fv_dtype_bytes(m.dtype), raw));
    FV_TRY(FV_ARENA_NEW(&r->arena, n, *out));
    FV_TRY(dev->ops->copy_async(dev, raw, fv_tensor_rows(m, row, 1).data,
                                n * fv_dtype_bytes(m.dtype)));
    FV_TRY(r->engine->be.ops->sync(&r->engine->be));
    widen_row(raw, m.dtype, n, *out);
    return FV_OK;
}

/* Copies the layer's visual tokens to the host. */
static fv_status bring_tokens(fv_calibrate_reads *r, const fv_kv *kv, int32_t l,
                              fv_latent_query *q) {
    const fv_text_config *t = fv_decoder_config(r->engine->dec);
    const fv_rope *rope = &r->rope[fv_text_rope(t, l)];
    size_t n = (size_t)q->n, head = n * (size_t)t->d_head, half = (size_t)rope->half;
    const int32_t *pos = fv_kv_positions(kv, l, 0, FV_SEG_VISUAL);
    float *k, *v, *cosine, *sine;
    fv_rope_pos *at;
    FV_TRY(FV_ARENA_NEW(&r->arena, (size_t)t->n_kv * head, k));
    FV_TRY(FV_ARENA_NEW(&r->arena, (size_t)t->n_kv * head, v));
    FV_TRY(FV_ARENA_NEW(&r->arena, n * half, cosine));
    FV_TRY(FV_ARENA_NEW(&r->arena, n * half, sine));
    FV_TRY(FV_ARENA_NEW(&r->arena, n, at));
    q->k = k;
    q->v = v;
    for (int32_t g = 0; g < t->n_kv; g++, k += head, v += head) {
        FV_TRY(fv_read_rows(&r->engine->be, kv, l, g, FV_SEG_VISUAL, false, k));
        FV_TRY(fv_read_rows(&r->engine->be, kv, l, g, FV_SEG_VISUAL, true, v));
    }
    for (size_t j = 0; j < n; j++) at[j] = fv_rope_map_at(fv_kv_rope_map(kv), pos[j]);
    fv_rope_angles(rope, at, q->n, cosine, sine);
    q->half = rope->half;
    q->cosine = cosine;
    q->sine = sine;
    return FV_OK;
}

/* Number of tokens before a row's window; positions ascend. */
static int32_t unseen(const fv_attn_seq *seq, const int32_t *pos, int32_t n, int32_t row) {
    int32_t j = 0;
    while (seq->window_from && j < n && pos[j] < seq->window_from[row]) j++;
    return j;
}

/* Adds row `back` from the end of sequence b. */
static fv_status add_row(fv_calibrate_reads *r, const fv_forward_batch *pass, int32_t l,
                         const fv_attn_args *a, int32_t b, int32_t back, fv_latent_query *q) {
    const fv_attn_seq *seq = &a->seqs[b];
    int32_t row = seq->row0 + seq->n_rows - back;
    float *query, *o, *lse;
    FV_TRY(bring(r, a->q, row, &query));
    FV_TRY(bring(r, a->o, row, &o));
    FV_TRY(bring(r, a->lse, row, &lse));
    q->q = query;
    q->o = o;
    q->lse = lse;
    q->first = unseen(seq, fv_kv_positions(pass->seq[b].kv, l, 0, FV_SEG_VISUAL), q->n,
                      seq->n_rows - back);
    fv_latent_reads_add(r->reads, l, q);
    return FV_OK;
}

/* The wanted rows are those after which a token is sampled; all visual tokens are before them. */
static fv_status on_layer(void *user, const fv_forward_batch *pass, int32_t l,
                          const fv_attn_args *attn) {
    fv_calibrate_reads *r = user;
    for (int32_t b = 0; b < pass->n_seq; b++) {
        const fv_forward_seq *seq = &pass->seq[b];
        fv_latent_query q = {.scale = attn->scale, .n = fv_kv_len(seq->kv, l, 0, FV_SEG_VISUAL)};
        fv_arena_reset(&r->arena);
        if (q.n == 0 || seq->wanted == 0) continue;
        FV_TRY(bring_tokens(r, seq->kv, l, &q));
        for (int32_t i = seq->wanted; i > 0; i--) FV_TRY(add_row(r, pass, l, attn, b, i, &q));
    }
    return FV_OK;
}

static fv_status open_reads(fv_calibrate_reads *r) {
    const fv_text_config *t = fv_decoder_config(r->engine->dec);
    const fv_text_weights *w = fv_checkpoint_text(r->engine->ck);
    fv_rope_init(&r->rope[0], &t->rope, t->d_head);
    if (t->two_ropes) fv_rope_init(&r->rope[1], &t->rope_slides, t->d_head);
    FV_TRY(fv_latent_reads_open(t->n_layer, t->n_head, t->n_kv, t->d_head, &r->reads));
    for (int32_t l = 0; l < t->n_layer; l++) {
        if (w->layer[l].o.quant)
            return FV_FAIL(FV_EINVAL, "weights in integers cannot say what reads visual KV: give "
                                      "--latent-weights none");
        FV_TRY(fv_latent_reads_output(r->reads, l, &w->layer[l].o));
    }
    return FV_OK;
}

fv_status fv_calibrate_reads_open(fv_local *local, fv_calibrate_reads **out) {
    fv_calibrate_reads *r = calloc(1, sizeof *r);
    if (!r) return FV_FAIL(FV_ENOMEM, "out of memory for weights of latent directions");
    r->engine = fv_local_engine(local);
    fv_status st = open_reads(r);
    if (st != FV_OK) {
        fv_calibrate_reads_close(r);
        return st;
    }
    fv_decoder_watch(r->engine->dec, on_layer, r);
    *out = r;
    return FV_OK;
}

void fv_calibrate_reads_close(fv_calibrate_reads *r) {
    if (!r) return;
    fv_decoder_watch(r->engine->dec, NULL, NULL);
    fv_latent_reads_close(r->reads);
    fv_arena_fini(&r->arena);
    free(r);
}

fv_status fv_calibrate_reads_found(const fv_calibrate_reads *r, const fv_latent_reads **out) {
    if (fv_latent_reads_count(r->reads, 0) == 0)
        return FV_FAIL(FV_EINVAL, "no row read a visual token");
    *out = r->reads;
    return FV_OK;
}
