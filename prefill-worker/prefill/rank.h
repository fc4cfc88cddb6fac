#ifndef FOVEA_PREFILL_WORKER_PREFILL_RANK_H
#define FOVEA_PREFILL_WORKER_PREFILL_RANK_H

/* RANK: the visual tokens of a prefilled layer in the order of what the prompt's last row paid to
 * them, most first, where the plan says so (fv_plan.rank_from). The decode worker then lets go of a
 * layer's least wanted rows by a length. Rows move here rather than there because they are in this
 * worker's cache anyway, and cross the wire in the order in which they will lie. */
#include "common/arena.h"
#include "model/net/kv.h"

/* from [N]: the layer whose attention ranks each layer's rows; -1: they are not ranked. It begins
 * as the plan's rank_from. */

/* Layers below this one could be ranked, or need not be, when those below n_layer have run. */
int32_t fv_rank_ready(const int32_t *from, int32_t n_layer);

/* Ranks the layers that can be now that those below n_layer have run, select stage included, and
 * are not ranked yet. paid[l]: attention of layer l by prompt position, for layers that rank. */
fv_status fv_rank_run(const int32_t *from, fv_kv *kv, int32_t n_layer, const float *const *paid);

#endif
