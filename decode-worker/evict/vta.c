/* evict=vta: visual token annealing of ST3 (arXiv 2412.20105, section "VTA", algorithm 3). After t
 * tokens, each ranked layer holds the first
 *
 *   keep_l(t) = floor(v_l0 beta(t) + 1e-9)
 *
 * of its v_l0 visual tokens, in the order of the prefill's attention; with order=ema, a compressed
 * layer holds those that have received most attention so far. beta falls, so tokens are dropped from the
 * end; text tokens stay. */
#include "policy/plan/vta.h"
#include "decode-worker/evict/evict.h"
#include "model/net/anneal.h"

static fv_status step(const fv_evict *e, fv_kv *kv, int32_t t) {
    const fv_evict_vta_params *p = &e->params.evict_vta;
    return fv_anneal(kv, fv_vta_share(p, t), p->order_ema ? FV_ANNEAL_IMPORTANCE : FV_ANNEAL_RANK);
}

const fv_evict_method fv_evict_vta = {.step = step};
