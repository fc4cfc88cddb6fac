/* The table of evict methods, made from methods.def (a row without its file does not link), and the
 * stage of one answer. */
#include "decode-worker/evict/evict.h"

#include <assert.h>

#include "kv/packed.h"
#include "policy/stage_rows.h"

static const fv_evict_method *const methods[] = {
#undef EVICT
#define EVICT(name) [FV_METHOD_EVICT_##name] = &fv_evict_##name,
#define FV_METHOD(stage, name, source, summary) stage(name)
#include "policy/methods.def"
};

void fv_evict_init(fv_evict *e, const fv_decode_plan *plan, int32_t n_prompt) {
    *e = (fv_evict){.method = plan->evict ? methods[plan->evict->id] : NULL,
                    .params = plan->evict_params,
                    .accum = fv_decode_accum(plan->evict, &plan->evict_params, n_prompt)};
}

fv_status fv_evict_step(fv_evict *e, fv_kv *kv, int32_t n_token) {
    int32_t t = e->before + n_token;
    if (!e->method || t == e->t) return FV_OK;
    assert(t > e->t);
    e->t = t;
    e->answers = n_token > 0;
    return e->method->step(e, kv, t);
}

/* Number of a head's ranked or packed rows that were evicted. */
static int32_t gone(const fv_kv *kv, int32_t layer, int32_t head) {
    const fv_kv_packed *packed = fv_kv_packed_of(kv, layer, FV_SEG_VISUAL);
    int32_t was = fv_kv_ranked(kv, layer, head);
    if (packed) return packed->n_first - packed->n_alive;
    return was > 0 ? was - fv_kv_len(kv, layer, head, FV_SEG_VISUAL) : 0;
}

uint64_t fv_evict_count(const fv_kv *kv) {
    const fv_kv_shape *s = fv_kv_get_shape(kv);
    uint64_t rows = fv_kv_get_sequence(kv)->n_evicted;
    for (int32_t l = 0; l < s->n_layer; l++)
        for (int32_t g = 0; g < s->n_kv; g++) rows += (uint64_t)gone(kv, l, g);
    return rows;
}
