/* prune=sparsevlm: after each of three layers a share of the visual tokens is kept, and at least
 * one is dropped. Shares are the authors' numbers for 576 tokens (score.py). Version 1 restores
 * some of n dropped tokens: m = floor(0.3 n) + 1 of them are merged into floor(m / 10) + 1. */
#include <stdlib.h>

#include "policy/plan/contribute.h"

enum { STEPS = 3, OF = 576 };

/* Tokens of 576 that stay after each step. */
static const int32_t *counts_of(const fv_prune_sparsevlm_params *p) {
    static const int32_t keep[4][2][STEPS] = {{{300, 200, 110}, {300, 200, 118}}, /* v1, v2 */
                                              {{303, 110, 36}, {238, 108, 60}},
                                              {{238, 48, 26}, {246, 54, 28}},
                                              {{66, 30, 17}, {66, 34, 20}}};
    return keep[p->tokens_192 ? 0 : p->tokens_128 ? 1 : p->tokens_96 ? 2 : 3][p->version_v2];
}

/* Number of rows that n dropped rows are merged into. */
static int32_t merged_of(int32_t n) { return (fv_plan_share(0.3, n) + 1) / 10 + 1; }

/* Adds a pruning step after `layer`, in which *n tokens remain so far. */
static void step(fv_plan *plan, bool merges, int32_t layer, int32_t share, int32_t *n) {
    int32_t keep = share < *n ? share : *n - 1, merged = merges ? merged_of(*n - keep) : 0;
    int32_t n_edit = plan->prune.n_edit;
    fv_plan_drop(plan, layer + 1, keep + merged);
    if (plan->prune.n_edit == n_edit) return; /* otherwise each row would be merged into itself */
    plan->prune.edit[n_edit].merged = merged;
    plan->capture[layer] |= merges ? FV_CAPTURE_SCORERS : FV_CAPTURE_SCORERS | FV_CAPTURE_UNROTATED;
    plan->prune.renumbers = merges;
    *n = keep + merged;
}

fv_status fv_plan_prune_sparsevlm(fv_plan *plan, const fv_prune_sparsevlm_params *p) {
    const int32_t *keep = counts_of(p), after[STEPS] = {p->first, p->second, p->third};
    int32_t n = plan->shape.n_visual;
    for (int s = 1; s < STEPS; s++)
        if (after[s] < after[s - 1])
            return FV_FAIL(FV_EINVAL, "policy: prune=sparsevlm: layers %d and %d must ascend",
                           after[s - 1], after[s]);
    if (fv_plan_text_only(plan, FV_STAGE_PRUNE)) return FV_OK;
    for (int s = 0; s < STEPS; s++) {
        if (s < STEPS - 1 && after[s + 1] == after[s]) continue; /* few layers: steps coincide */
        if (after[s] + 1 == plan->shape.n_layer || n == 0) break;
        step(plan, p->version_v1, after[s],
             fv_plan_share((double)keep[s] / OF, plan->shape.n_visual), &n);
    }
    if (plan->prune.n_edit == 0)
        fv_plan_note(plan, FV_STAGE_PRUNE, "there are too few visual tokens, or too few layers");
    return FV_OK;
}
