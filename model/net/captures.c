/* Captures are sums that continue from chunk to chunk: the host's sums are copied to the device,
 * added to in row order, and copied back. All layers use the same memory in turn. */
#include "model/net/captures.h"

#include <assert.h>

static int32_t lines_of(const fv_forward_capture *capture, int32_t n_head) {
    return (capture->head_max ? 1 : n_head) * (capture->by_segment ? FV_N_SEG : 1);
}

/* Number of captures and of the floats they hold: the maximum over layers. */
typedef struct capture_size {
    int32_t n, floats;
} capture_size;

static capture_size size_of_layer(const fv_text_config *cfg, const fv_forward_batch *pass,
                                  int32_t l) {
    capture_size size = {0, 0};
    for (int32_t b = 0; b < pass->n_seq; b++)
        for (int32_t i = 0; i < pass->seq[b].n_capture; i++) {
            const fv_forward_capture *capture = &pass->seq[b].capture[i];
            if (capture->layer != l) continue;
            size.n++;
            size.floats += lines_of(capture, cfg->n_head) * capture->n_key;
        }
    return size;
}

static capture_size largest(const fv_text_config *cfg, const fv_forward_batch *pass) {
    capture_size most = {0, 0};
    bool any = false;
    for (int32_t b = 0; b < pass->n_seq; b++) any |= pass->seq[b].n_capture > 0;
    for (int32_t l = 0; any && l < cfg->n_layer; l++) {
        capture_size size = size_of_layer(cfg, pass, l);
        if (size.n > most.n) most.n = size.n;
        if (size.floats > most.floats) most.floats = size.floats;
    }
    return most;
}

size_t fv_captures_bytes(const fv_text_config *cfg, const fv_forward_batch *pass) {
    capture_size most = largest(cfg, pass);
    if (most.n == 0) return 0;
    return fv_workspace_need(FV_F32, pass->x.rows, cfg->n_head) +
           fv_workspace_need(FV_F32, 1, most.floats) +
           fv_workspace_need(FV_F32, 1, cfg->n_head * cfg->d_head);
}

fv_status fv_captures_cut(fv_workspace *ws, fv_arena *arena, const fv_text_config *cfg,
                          const fv_forward_batch *pass, fv_captures *out) {
    capture_size most = largest(cfg, pass);
    *out = (fv_captures){0};
    if (most.n == 0) return FV_OK;
    out->lse = fv_workspace_cut(ws, FV_F32, pass->x.rows, cfg->n_head);
    out->sums = fv_workspace_cut(ws, FV_F32, 1, most.floats);
    out->o = fv_workspace_cut(ws, FV_F32, 1, cfg->n_head * cfg->d_head);
    return FV_ARENA_NEW(arena, most.n, out->sum);
}

static bool captures_layer(const fv_forward_batch *pass, int32_t l) {
    for (int32_t b = 0; b < pass->n_seq; b++)
        for (int32_t i = 0; i < pass->seq[b].n_capture; i++)
            if (pass->seq[b].capture[i].layer == l) return true;
    return false;
}

fv_tensor fv_captures_lse(const fv_captures *t, const fv_forward_batch *pass, int32_t l,
                          int32_t rows) {
    return captures_layer(pass, l) ? fv_tensor_rows(t->lse, 0, rows) : (fv_tensor){0};
}

static fv_score_sum sum_of(const fv_forward_seq *seq, int32_t b, const fv_forward_capture *capture,
                           float *at) {
    return (fv_score_sum){.seq = b,
                          .n_row = capture->n_row,
                          .n = capture->n,
                          .low = capture->low,
                          .n_kind = capture->by_segment ? FV_N_SEG : 1,
                          .kind =
                              capture->by_segment ? seq->seg + seq->n_rows - capture->n_row : NULL,
                          .ld = capture->n_key,
                          .weight = capture->weight,
                          .head_max = capture->head_max,
                          .fresh = capture->fresh,
                          .column = {[FV_SEG_VISUAL] = 0, [FV_SEG_TEXT] = capture->text},
                          .sum = at};
}

/* Copies the attention output of the last row, [H D], to the host as F32. */
static fv_status bring_o(const fv_captures *t, fv_backend *be, const fv_attn_args *attn, int32_t b,
                         float *o) {
    int32_t row = attn->seqs[b].row0 + attn->seqs[b].n_rows - 1;
    fv_index_select_args pick = {.table = attn->o, .y = t->o, .ids = &row};
    FV_TRY(be->ops->index_select(be, &pick));
    return be->device->ops->copy_async(be->device, o, t->o.data, (size_t)t->o.cols * sizeof(float));
}

fv_status fv_captures_read(const fv_captures *t, fv_backend *be, const fv_forward_batch *pass,
                           int32_t l, const fv_attn_args *attn) {
    fv_device *dev = be->device;
    fv_score_sums_args args = {.attn = attn, .sums = t->sum};
    float *at = t->sums.data;
    const fv_forward_capture *capture;
    if (!captures_layer(pass, l)) return FV_OK;
    for (int32_t b = 0; b < pass->n_seq; b++)
        for (int32_t i = 0; i < pass->seq[b].n_capture; i++) {
            capture = &pass->seq[b].capture[i];
            if (capture->layer != l) continue;
            assert(capture->n_row <= attn->seqs[b].n_rows);
            size_t n = (size_t)(lines_of(capture, attn->n_head) * capture->n_key);
            if (!capture->fresh) FV_TRY(dev->ops->copy_async(dev, at, capture->p, n * sizeof *at));
            t->sum[args.n_sum++] = sum_of(&pass->seq[b], b, capture, at);
            at += n;
            if (capture->o) FV_TRY(bring_o(t, be, attn, b, capture->o));
        }
    FV_TRY(be->ops->score_sums(be, &args));
    at = t->sums.data;
    for (int32_t b = 0; b < pass->n_seq; b++)
        for (int32_t i = 0; i < pass->seq[b].n_capture; i++) {
            capture = &pass->seq[b].capture[i];
            if (capture->layer != l) continue;
            size_t n = (size_t)(lines_of(capture, attn->n_head) * capture->n_key);
            FV_TRY(dev->ops->copy_async(dev, capture->p, at, n * sizeof *at));
            at += n;
        }
    return FV_OK;
}
