/* Masked tokens: from a layer on nothing attends to them, but they run on and are held. They run
 * separately, one group of layers after the list of the other tokens, so that those are computed, bit
 * for bit, as if the masked ones had been pruned. Their keys and values are stored after the others',
 * past the length that attention reads. A masked token itself attends to the tokens before it that are
 * not masked, and not to itself. The thread that owns the decoder. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "prefill-worker/prefill/internal.h"

fv_status fv_prefill_mask_rows(fv_prefill *p, int32_t b, int32_t layer, const int32_t *row,
                               int32_t n) {
    fv_prefill_mask *mask = &p->mask[b];
    fv_backend *be = fv_decoder_backend(p->dec);
    fv_index_select_args pick = {.table = p->rows.x, .ids = row};
    assert(mask->n == 0 && n > 0);
    FV_TRY(FV_ARENA_NEW(&p->arena, n, mask->pos));
    for (int32_t i = 0; i < n; i++) mask->pos[i] = p->rows.pos[row[i]];
    FV_TRY(fv_buf_alloc(be->device, (size_t)n * (size_t)p->d * sizeof(float), FV_BUF_DEVICE,
                        &mask->x));
    mask->n = n;
    pick.y = fv_tensor_of(mask->x.data, FV_F32, n, p->d);
    snprintf(
        p->visual[b].pruner.said, FV_PLAN_NOTE_MAX,
        "%d of %d visual tokens are masked from layer %d on: they are held but not attended to", n,
        p->visual[b].n, layer);
    return be->ops->index_select(be, &pick);
}

/* Counts those of n ascending positions that are before `pos`. */
static int32_t count_before(const int32_t *of, int32_t n, int32_t pos) {
    int32_t i = 0;
    while (i < n && of[i] < pos) i++;
    return i;
}

/* Hides masked rows from masked rows [a, e), whichever pass they are in: sets for each segment how many of
 * the last entries each row does not see. */
static fv_status hide_masked(fv_prefill *p, int32_t b, int32_t layer, int32_t a, int32_t e,
                             const int32_t **out) {
    const fv_kv *kv = p->req[b].kv;
    int32_t n = e - a, *masked_tail;
    FV_TRY(FV_ARENA_NEW(&p->group, (size_t)n * FV_N_SEG, masked_tail));
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        const int32_t *pos = fv_kv_positions(kv, layer, 0, (fv_kv_segment)seg);
        int32_t len = fv_kv_len(kv, layer, 0, (fv_kv_segment)seg);
        int32_t seen = seg == FV_SEG_VISUAL ? p->visual[b].n : len;
        for (int32_t i = 0; i < n; i++)
            masked_tail[seg * n + i] = len + (seg == FV_SEG_VISUAL ? n : 0) -
                                       count_before(pos, seen, p->mask[b].pos[a + i]);
    }
    *out = masked_tail;
    return FV_OK;
}

static fv_status run_some(fv_prefill *p, int32_t b, int32_t l0, int32_t l1, int32_t a, int32_t e) {
    const fv_prefill_mask *mask = &p->mask[b];
    fv_tensor x = fv_tensor_of(mask->x.data, FV_F32, mask->n, p->d);
    fv_forward_seq seq = {.kv = p->req[b].kv,
                          .n_rows = e - a,
                          .pos = mask->pos + a,
                          .embeds = p->req[b].embeds,
                          .embed_at = p->visual[b].row_at};
    fv_forward_batch pass = {.x = fv_tensor_rows(x, a, e - a), .n_seq = 1, .seq = &seq};
    uint8_t *image;
    FV_TRY(FV_ARENA_NEW(&p->group, e - a, image));
    memset(image, FV_SEG_VISUAL, (size_t)(e - a));
    seq.seg = image;
    FV_TRY(hide_masked(p, b, l0, a, e, &seq.masked_tail));
    return fv_decoder_layers(p->dec, &pass, l0, l1);
}

fv_status fv_prefill_run_masked(fv_prefill *p, int32_t b, int32_t l0, int32_t l1) {
    int32_t n = p->mask[b].n, chunk = p->opt->chunk > 0 ? p->opt->chunk : n;
    for (int32_t a = 0; a < n; a += chunk)
        FV_TRY(run_some(p, b, l0, l1, a, a + chunk < n ? a + chunk : n));
    for (int32_t l = l0; n > 0 && l < l1; l++) fv_kv_mask(p->req[b].kv, l, n);
    return FV_OK;
}
