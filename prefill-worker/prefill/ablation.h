#ifndef FOVEA_PREFILL_WORKER_PREFILL_ABLATION_H
#define FOVEA_PREFILL_WORKER_PREFILL_ABLATION_H

/* INFLUENCE of visual tokens on the attention output of a prompt's last row, before Wo, heads
 * side by side:  O = sum_j c_j,  c_j = concat_h(a^h_j v^h_j).  Without row j, and without taking
 * the softmax again, the output is O - c_j; so (VisiPruner)
 *     L2_j  = |c_j| = sqrt(sum_h (a^h_j)^2 |v^h_j|^2)
 *     cos_j = cos(O, O - c_j) = (|O|^2 - O c_j) / (|O| sqrt(|O|^2 - 2 O c_j + |c_j|^2)),
 *             O c_j = sum_h a^h_j (O^h v^h_j)
 * This takes two products per row and head instead of an output per row. cos is 1 if O = 0, and 0 if
 * O = c_j. */
#include "common/arena.h"
#include "kv/kv.h"

typedef struct fv_ablation_args {
    fv_backend *be;
    fv_kv *kv; /* holds the layer's visual tokens, as attention saw them */
    int32_t layer, n_head;
    const float *a; /* [H, ld] the last token's attention; visual tokens first */
    int32_t ld;
    const float *o; /* [H D] its output */
} fv_ablation_args;

/* l2, cos [visual tokens of the layer]; every KV head must hold the same tokens. Values are copied to the
 * host into `arena`. */
fv_status fv_ablation(const fv_ablation_args *x, fv_arena *arena, float *l2, float *cos);

#endif
