/* evict=tova: token omission via attention (arXiv 2401.06104). In each layer the rows stay to which
 * the last row attends most, mean over all heads, the same in every head: behind the prompt as many
 * as the budget has, and from then on one leaves for each token, which may be any but a later one.
 */
#include "decode-worker/evict/evict.h"
#include "model/net/accum.h"

static fv_status step(const fv_evict *e, fv_kv *kv, int32_t t) {
    (void)t;
    return fv_accum_let_go(kv, &e->accum, e->answers);
}

extern const fv_evict_method fv_evict_tova;
const fv_evict_method fv_evict_tova = {.step = step};
