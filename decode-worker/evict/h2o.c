/* evict=h2o: heavy hitters (arXiv 2306.14048) while the answer grows. Per KV head
 *     s_j = sum of A_ij over all rows i so far, of the prompt and of the answer
 * goes on with each token's row. A head that holds more than heavy + recent rows lets go of those
 * of lowest s_j ahead of the last ones, and their sums with them: behind the prompt many, and from
 * then on one for each token. Rows keep their positions. */
#include "decode-worker/evict/evict.h"
#include "model/net/accum.h"

static fv_status step(const fv_evict *e, fv_kv *kv, int32_t t) {
    (void)t;
    return fv_accum_let_go(kv, &e->accum, e->answers);
}

extern const fv_evict_method fv_evict_h2o;
const fv_evict_method fv_evict_h2o = {.step = step};
