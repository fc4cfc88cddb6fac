#ifndef FOVEA_PREFILL_WORKER_PREFILL_RANK_H
#define FOVEA_PREFILL_WORKER_PREFILL_RANK_H

/* RANK: orders the visual tokens of a prefilled layer by the attention of the last prompt token,
 * highest first, if the plan says so (fv_plan.rank_from). The decode worker then drops a layer's
 * least important tokens by setting a length. Tokens are moved here rather than there because they are in
 * this worker's cache anyway, and are sent in their final order. */
#include "common/arena.h"
#include "kv/kv.h"

/* from [N]: the layer whose attention ranks each layer's rows; -1: they are not ranked. Initially the
 * plan's rank_from. */

/* Number of layers from the first on that are ranked, or need not be, once n_layer layers have run. */
int32_t fv_rank_ready(const int32_t *from, int32_t n_layer);

/* Ranks the layers below n_layer that are complete, select stage included, and
 * not ranked yet. attention[l]: attention of layer l by prompt position, for layers that rank. */
fv_status fv_rank_run(const int32_t *from, fv_kv *kv, int32_t n_layer,
                      const float *const *attention);

#endif
