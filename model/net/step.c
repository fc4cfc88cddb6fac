/* Builds a pass from new tokens, runs it, reads logits. Buffers are kept from step to step. Runs on
 * the thread that owns the decoder. */
#include "model/net/step.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "model/net/accum.h"
#include "model/net/expand.h"
#include "model/net/rope.h"
#include "model/net/unpack.h"

struct fv_model_runner {
    fv_decoder *dec;
    fv_rope rope;
    fv_buf x; /* [rows, d] */
    fv_arena arena;
};

fv_status fv_model_runner_open(fv_decoder *dec, fv_model_runner **out) {
    fv_model_runner *st = calloc(1, sizeof *st);
    if (!st) return FV_FAIL(FV_ENOMEM, "out of memory for the decode step");
    st->dec = dec;
    fv_rope_init(&st->rope, &fv_decoder_config(dec)->rope, fv_decoder_config(dec)->d_head);
    *out = st;
    return FV_OK;
}

void fv_model_runner_close(fv_model_runner *st) {
    if (!st) return;
    fv_buf_free(&st->x);
    fv_arena_fini(&st->arena);
    free(st);
}

static fv_status rows_for(fv_model_runner *st, int32_t rows, fv_tensor *out) {
    int32_t d = fv_decoder_config(st->dec)->d_model;
    size_t bytes = (size_t)rows * (size_t)d * sizeof(float);
    if (bytes > st->x.bytes) {
        fv_buf_free(&st->x);
        FV_TRY(fv_buf_alloc(fv_decoder_backend(st->dec)->device, bytes, FV_BUF_DEVICE, &st->x));
    }
    *out = fv_tensor_of(st->x.data, FV_F32, rows, d);
    return FV_OK;
}

/* Selects the rows whose logits are wanted, contiguous, when accumulators wanted more rows of the last layer. */
static fv_status last_rows(fv_model_runner *st, const fv_step_seq *seq,
                           const fv_forward_batch *pass, fv_tensor *out) {
    fv_device *dev = fv_decoder_backend(st->dec)->device;
    int32_t n = 0, end = 0;
    for (int32_t b = 0; b < pass->n_seq; b++) {
        end += pass->seq[b].wanted;
        if (seq[b].partial) continue;
        for (int32_t at = end - 1 - seq[b].n_before; at < end; at++, n++) {
            fv_tensor to = fv_tensor_rows(pass->out, n, 1);
            if (n == at) continue;
            FV_TRY(dev->ops->copy_async(dev, to.data, fv_tensor_rows(pass->out, at, 1).data,
                                        (size_t)to.cols * sizeof(float)));
        }
    }
    *out = fv_tensor_rows(pass->out, 0, n);
    return FV_OK;
}

static fv_status read_accums(fv_model_runner *st, const fv_forward_batch *pass) {
    fv_backend *be = fv_decoder_backend(st->dec);
    bool any = false;
    for (int32_t b = 0; b < pass->n_seq; b++) any |= pass->seq[b].n_capture > 0;
    if (any) FV_TRY(be->ops->sync(be));
    for (int32_t b = 0; any && b < pass->n_seq; b++) fv_accum_store(&pass->seq[b]);
    return FV_OK;
}

static fv_status run(fv_model_runner *st, const fv_step_seq *seq, int32_t n_seq, int32_t rows,
                     float *logits) {
    fv_arena_reset(&st->arena);
    int32_t n_whole = 0, *ids, *pos;
    uint8_t *seg;
    fv_forward_seq *pass_seq;
    FV_TRY(FV_ARENA_NEW(&st->arena, rows, ids));
    FV_TRY(FV_ARENA_NEW(&st->arena, rows, pos));
    FV_TRY(FV_ARENA_NEW(&st->arena, rows, seg));
    FV_TRY(FV_ARENA_NEW(&st->arena, n_seq, pass_seq));
    memset(seg, FV_SEG_TEXT, (size_t)rows);
    for (int32_t b = 0, at = 0; b < n_seq; at += seq[b++].n) {
        assert(seq[b].n > 0 && seq[b].n_before < seq[b].n && !(seq[b].partial && seq[b].n_before));
        memcpy(ids + at, seq[b].ids, (size_t)seq[b].n * sizeof *ids);
        for (int32_t i = 0; i < seq[b].n; i++) pos[at + i] = seq[b].pos + i;
        pass_seq[b] = (fv_forward_seq){.kv = seq[b].kv,
                                       .n_rows = seq[b].n,
                                       .pos = pos + at,
                                       .seg = seg + at,
                                       .ids = ids + at,
                                       .ids_from = seq[b].pos,
                                       .wanted = seq[b].partial ? 0 : 1 + seq[b].n_before,
                                       .observe = fv_kv_get_sequence(seq[b].kv)->expand.on,
                                       .n = fv_kv_get_sequence(seq[b].kv)->n};
        n_whole += !seq[b].partial;
        FV_TRY(fv_accum_add_captures(&st->arena, fv_decoder_config(st->dec)->n_head,
                                     !seq[b].partial, &pass_seq[b]));
    }
    fv_forward_batch pass = {.n_seq = n_seq, .seq = pass_seq};
    FV_TRY(rows_for(st, rows, &pass.x));
    FV_TRY(fv_decoder_embed(st->dec, ids, rows, pass.x));
    const fv_text_config *cfg = fv_decoder_config(st->dec);
    for (int32_t b = 0; b < n_seq; b++) {
        FV_TRY(fv_unpack(seq[b].kv, fv_decoder_backend(st->dec), &st->rope));
        FV_TRY(fv_expand_regroup(seq[b].kv));
    }
    FV_TRY(fv_decoder_layers(st->dec, &pass, 0, cfg->n_layer));
    FV_TRY(read_accums(st, &pass));
    for (int32_t b = 0; b < n_seq; b++)
        if (!seq[b].partial) FV_TRY(fv_expand_end_turn(seq[b].kv));
    if (n_whole == 0) return FV_OK;
    fv_tensor last;
    FV_TRY(last_rows(st, seq, &pass, &last));
    return fv_decoder_logits(st->dec, last, logits);
}

fv_status fv_model_runner_run(fv_model_runner *st, const fv_step_seq *seq, int32_t n_seq,
                              float *logits) {
    fv_backend *be = fv_decoder_backend(st->dec);
    int32_t rows = 0;
    for (int32_t b = 0; b < n_seq; b++) rows += seq[b].n;
    if (rows == 0) return FV_OK;
    FV_TRY(fv_backend_step_begin(be, rows));
    fv_status ran = run(st, seq, n_seq, rows, logits), ended = fv_backend_step_end(be);
    return ran == FV_OK ? ended : ran;
}
