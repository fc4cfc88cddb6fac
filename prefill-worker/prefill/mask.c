/* VisiPruner's shallow stage (its code, for one image in front of the question):
 *     layer 0:  A[i, V] = 0 for tokens i after the first visual token v0;  text tokens: A[i, v0] =
 *               their total attention to V, so that they still sum to 1
 *               or, in the code for 13B: A[i, V] = 0 for visual tokens i, and for text tokens on
 *               the first half of V, rounded down
 *     next:     A[i, V] = 0 for text tokens i;  in the paper for visual tokens, too
 * With several images, text between them is treated as the text after them. */
#include "prefill-worker/prefill/mask.h"

static uint8_t share_of(fv_plan_mask mask, const fv_mask_rows *rows, int32_t r) {
    int32_t pos = rows->pos[r];
    bool text = rows->seg[r] == FV_SEG_TEXT;
    if (pos >= rows->n_prompt || pos < rows->visual0) return FV_SHARE_KEPT;
    switch (mask) {
    case FV_MASK_MERGE:
        if (text) return FV_SHARE_ON_FIRST;
        return pos > rows->visual0 ? FV_SHARE_DROPPED : FV_SHARE_KEPT;
    case FV_MASK_HALF: return text ? FV_SHARE_WITHOUT_FIRST : FV_SHARE_DROPPED;
    case FV_MASK_ALL: return FV_SHARE_DROPPED;
    default: return text ? FV_SHARE_DROPPED : FV_SHARE_KEPT;
    }
}

fv_status fv_mask_shares(const fv_plan *plan, int32_t l0, int32_t l1, const fv_mask_rows *rows,
                         fv_arena *arena, const uint8_t *const **share) {
    const uint8_t **layers;
    bool any = false;
    *share = NULL;
    for (int32_t l = l0; l < l1; l++) any |= plan->prune.mask[l] != FV_MASK_NONE;
    if (!any) return FV_OK;
    FV_TRY(FV_ARENA_NEW(arena, l1, layers));
    for (int32_t l = l0; l < l1; l++) {
        uint8_t *row;
        if (plan->prune.mask[l] == FV_MASK_NONE) continue;
        if (l > l0 && plan->prune.mask[l] == plan->prune.mask[l - 1]) {
            layers[l] = layers[l - 1];
            continue;
        }
        FV_TRY(FV_ARENA_NEW(arena, rows->n, row));
        for (int32_t r = 0; r < rows->n; r++)
            row[r] = share_of((fv_plan_mask)plan->prune.mask[l], rows, r);
        layers[l] = row;
    }
    *share = layers;
    return FV_OK;
}
