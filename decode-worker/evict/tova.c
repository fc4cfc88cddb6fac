/* evict=tova: token omission via attention (arXiv 2401.06104). Each layer keeps the entries to
 * which the last token attends most, mean over all heads, the same in every head: after the prompt
 * as many as the budget allows; then each token evicts one entry, of whatever age. */
#include "decode-worker/evict/evict.h"
#include "model/net/accum.h"

static fv_status step(const fv_evict *e, fv_kv *kv, int32_t t) {
    (void)t;
    return fv_accum_evict(kv, &e->accum, e->answers);
}

const fv_evict_method fv_evict_tova = {.step = step};
