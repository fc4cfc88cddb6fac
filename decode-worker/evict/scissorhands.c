/* evict=scissorhands: persistence of importance (arXiv 2305.17118, algorithm 2), with a budget. Per
 * KV head
 *     low_j = number of rows i that paid A_ij < 1 / n_i,  n_i the rows that i sees
 * over the rows since rows were last let go, and at first over the prompt's last `window`. A head
 * that holds more rows than its budget lets go of those with the highest low_j until 1 - drop of
 * the budget is left; the last `recent` stay in any case. The paper counts over a window of its own
 * at each cut; between cuts run drop * budget rows, which stand for it here. Budgets that differ
 * from layer to layer are not done. The published code is another rule, for prompts of OPT alone
 * and without a budget: in layers 5 to 35 row i sees j when one of the last 100 rows paid j more
 * than the 90th percentile of what it paid, or j is one of the last 10. */
#include "decode-worker/evict/evict.h"
#include "model/net/accum.h"

static fv_status step(const fv_evict *e, fv_kv *kv, int32_t t) {
    (void)t;
    return fv_accum_let_go(kv, &e->accum, e->answers);
}

extern const fv_evict_method fv_evict_scissorhands;
const fv_evict_method fv_evict_scissorhands = {.step = step};
