/* evict=scissorhands: persistence of importance (arXiv 2305.17118, algorithm 2), with a budget. Per
 * KV head
 *     low_j = number of tokens i with A_ij < 1 / n_i,  n_i the entries that i attends to
 * over the tokens since the last eviction, and at first over the prompt's last `window`. A head
 * that holds more entries than its budget evicts those with the highest low_j until 1 - drop of the
 * budget is left; the last `recent` are always kept. The paper counts over a separate window at
 * each eviction; between evictions drop * budget tokens run, which serve as the window here.
 * Budgets that differ from layer to layer are not supported. The published code has another rule,
 * for prompts of OPT only and without a budget: in layers 5 to 35 token i attends to j when one of
 * the last 100 tokens gave j more than the 90th percentile of its attention, or j is one of the
 * last 10. */
#include "decode-worker/evict/evict.h"
#include "model/net/accum.h"

static fv_status step(const fv_evict *e, fv_kv *kv, int32_t t) {
    (void)t;
    return fv_accum_evict(kv, &e->accum, e->answers);
}

const fv_evict_method fv_evict_scissorhands = {.step = step};
