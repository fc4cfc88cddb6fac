/* Taps are sums that go on from chunk to chunk: what the host holds is brought to the device,
 * added to in the order of rows, and brought back, layer after layer through the same room. */
#include "model/net/taps.h"

#include <assert.h>

static int32_t lines_of(const fv_pass_tap *tap, int32_t n_head) {
    return (tap->head_max ? 1 : n_head) * (tap->by_segment ? FV_N_SEG : 1);
}

/* The largest of the layers: how many taps and how many floats they hold. */
typedef struct tap_size {
    int32_t n, floats;
} tap_size;

static tap_size size_of_layer(const fv_text_config *cfg, const fv_pass *pass, int32_t l) {
    tap_size size = {0, 0};
    for (int32_t b = 0; b < pass->n_seq; b++)
        for (int32_t i = 0; i < pass->seq[b].n_tap; i++) {
            const fv_pass_tap *tap = &pass->seq[b].tap[i];
            if (tap->layer != l) continue;
            size.n++;
            size.floats += lines_of(tap, cfg->n_head) * tap->n_key;
        }
    return size;
}

static tap_size largest(const fv_text_config *cfg, const fv_pass *pass) {
    tap_size most = {0, 0};
    bool any = false;
    for (int32_t b = 0; b < pass->n_seq; b++) any |= pass->seq[b].n_tap > 0;
    for (int32_t l = 0; any && l < cfg->n_layer; l++) {
        tap_size size = size_of_layer(cfg, pass, l);
        if (size.n > most.n) most.n = size.n;
        if (size.floats > most.floats) most.floats = size.floats;
    }
    return most;
}

size_t fv_taps_bytes(const fv_text_config *cfg, const fv_pass *pass) {
    tap_size most = largest(cfg, pass);
    if (most.n == 0) return 0;
    return fv_workspace_need(FV_F32, pass->x.rows, cfg->n_head) +
           fv_workspace_need(FV_F32, 1, most.floats) +
           fv_workspace_need(FV_F32, 1, cfg->n_head * cfg->d_head);
}

fv_status fv_taps_cut(fv_workspace *ws, fv_arena *arena, const fv_text_config *cfg,
                      const fv_pass *pass, fv_taps *out) {
    tap_size most = largest(cfg, pass);
    *out = (fv_taps){0};
    if (most.n == 0) return FV_OK;
    out->lse = fv_workspace_cut(ws, FV_F32, pass->x.rows, cfg->n_head);
    out->sums = fv_workspace_cut(ws, FV_F32, 1, most.floats);
    out->o = fv_workspace_cut(ws, FV_F32, 1, cfg->n_head * cfg->d_head);
    return FV_ARENA_NEW(arena, most.n, out->sum);
}

static bool taps_layer(const fv_pass *pass, int32_t l) {
    for (int32_t b = 0; b < pass->n_seq; b++)
        for (int32_t i = 0; i < pass->seq[b].n_tap; i++)
            if (pass->seq[b].tap[i].layer == l) return true;
    return false;
}

fv_tensor fv_taps_lse(const fv_taps *t, const fv_pass *pass, int32_t l, int32_t rows) {
    return taps_layer(pass, l) ? fv_tensor_rows(t->lse, 0, rows) : (fv_tensor){0};
}

static fv_score_sum sum_of(const fv_pass_seq *seq, int32_t b, const fv_pass_tap *tap, float *at) {
    return (fv_score_sum){.seq = b,
                          .n_row = tap->n_row,
                          .n = tap->n,
                          .low = tap->low,
                          .n_kind = tap->by_segment ? FV_N_SEG : 1,
                          .kind = tap->by_segment ? seq->seg + seq->n_rows - tap->n_row : NULL,
                          .ld = tap->n_key,
                          .weight = tap->weight,
                          .head_max = tap->head_max,
                          .column = {[FV_SEG_VISUAL] = 0, [FV_SEG_TEXT] = tap->text},
                          .sum = at};
}

/* The last row's output of attention, [H D], as F32 on the host. */
static fv_status bring_o(const fv_taps *t, fv_backend *be, const fv_attn_args *attn, int32_t b,
                         float *o) {
    int32_t row = attn->seqs[b].row0 + attn->seqs[b].n_rows - 1;
    fv_index_select_args pick = {.table = attn->o, .y = t->o, .ids = &row};
    FV_TRY(be->ops->index_select(be, &pick));
    return be->device->ops->copy_async(be->device, o, t->o.data, (size_t)t->o.cols * sizeof(float));
}

fv_status fv_taps_read(const fv_taps *t, fv_backend *be, const fv_pass *pass, int32_t l,
                       const fv_attn_args *attn) {
    fv_device *dev = be->device;
    fv_score_sums_args args = {.attn = attn, .sums = t->sum};
    float *at = t->sums.data;
    const fv_pass_tap *tap;
    if (!taps_layer(pass, l)) return FV_OK;
    for (int32_t b = 0; b < pass->n_seq; b++)
        for (int32_t i = 0; i < pass->seq[b].n_tap; i++) {
            tap = &pass->seq[b].tap[i];
            if (tap->layer != l) continue;
            assert(tap->n_row <= attn->seqs[b].n_rows);
            size_t n = (size_t)(lines_of(tap, attn->n_head) * tap->n_key);
            FV_TRY(dev->ops->copy_async(dev, at, tap->p, n * sizeof *at));
            t->sum[args.n_sum++] = sum_of(&pass->seq[b], b, tap, at);
            at += n;
            if (tap->o) FV_TRY(bring_o(t, be, attn, b, tap->o));
        }
    FV_TRY(be->ops->score_sums(be, &args));
    at = t->sums.data;
    for (int32_t b = 0; b < pass->n_seq; b++)
        for (int32_t i = 0; i < pass->seq[b].n_tap; i++) {
            tap = &pass->seq[b].tap[i];
            if (tap->layer != l) continue;
            size_t n = (size_t)(lines_of(tap, attn->n_head) * tap->n_key);
            FV_TRY(dev->ops->copy_async(dev, tap->p, at, n * sizeof *at));
            at += n;
        }
    return FV_OK;
}
