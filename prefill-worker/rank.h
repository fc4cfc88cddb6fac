#ifndef FOVEA_PREFILL_WORKER_RANK_H
#define FOVEA_PREFILL_WORKER_RANK_H

/* RANK: the visual rows of a prefilled layer in the order of what the prompt's last row paid to
 * them, most first, where the plan says so (fv_plan.rank_from). The decode worker then lets go of a
 * layer's least wanted rows by a length. Rows move here rather than there because they are in this
 * worker's cache anyway, and cross the wire in the order in which they will lie. */
#include "common/arena.h"
#include "model/net/kv.h"
#include "policy/plan.h"

/* Whether some layer's rows are ranked by the attention of `layer`. */
bool fv_rank_asks(const fv_plan *plan, int32_t layer);

/* Layers below this one could be ranked, or need not be, when those below n_layer have run. */
int32_t fv_rank_ready(const fv_plan *plan, int32_t n_layer);

/* Ranks the layers that can be now that [l0, l1) have run, select stage included, and could not
 * before. paid[l]: attention of layer l by prompt position, for layers that are asked. */
fv_status fv_rank_run(const fv_plan *plan, fv_kv *kv, int32_t l0, int32_t l1,
                      const float *const *paid);

#endif
