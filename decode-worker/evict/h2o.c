/* evict=h2o: heavy hitters (arXiv 2306.14048) while the answer grows. Per KV head
 *     s_j = sum of A_ij over all tokens i so far, of the prompt and of the answer
 * is updated with each token. A head that holds more than heavy + recent entries evicts those
 * of lowest s_j before the recent ones, with their sums: many after the prompt, then one
 * for each token. Entries keep their positions. */
#include "decode-worker/evict/evict.h"
#include "model/net/accum.h"

static fv_status step(const fv_evict *e, fv_kv *kv, int32_t t) {
    (void)t;
    return fv_accum_evict(kv, &e->accum, e->answers);
}

const fv_evict_method fv_evict_h2o = {.step = step};
