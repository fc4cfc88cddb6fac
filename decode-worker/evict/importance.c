/* evict=importance: drops compressed tokens of low importance for good, at the first step of an answer
 * (model/net/expand.h). */
#include "decode-worker/evict/evict.h"
#include "model/net/expand.h"

static fv_status step(const fv_evict *e, fv_kv *kv, int32_t t) {
    (void)t;
    return fv_expand_keep(kv, e->params.evict_importance.keep);
}

const fv_evict_method fv_evict_importance = {.step = step};
