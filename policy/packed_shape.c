/* What packed layers of a plan are laid as, and whether that is worth it. Any thread. */
#include "policy/packed_shape.h"

static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

static int32_t width_of(const fv_plan *plan) { return plan->shape.n_kv * plan->shape.d_head; }

/* The router's numbers: all types of 2 bytes are alike. */
static fv_dtype dtype_of(const fv_plan *plan) {
    return plan->shape.bytes_value == 4 ? FV_F32 : FV_BF16;
}

static fv_packed_form form_of(const fv_plan *plan) {
    if (plan->pack_merged) return FV_PACKED_MERGED;
    return plan->pack_coded ? FV_PACKED_CODES : FV_PACKED_FACTORS;
}

fv_packed_shape fv_plan_packed_shape(const fv_plan *plan, int32_t layer, fv_packed_kind kind,
                                     int32_t n, fv_dtype dtype) {
    const fv_plan_pack *pack = &plan->pack[layer];
    fv_packed_shape s = {.n = n,
                         .n_kv = plan->shape.n_kv,
                         .d_head = plan->shape.d_head,
                         .dtype = dtype,
                         .kind = kind,
                         .bits = plan->pack_bits,
                         .form = form_of(plan),
                         .borrows = pack->second};
    if (plan->pack_merged) return s;
    if (plan->pack_coded) {
        s.n_outlier = (int32_t)fv_codes_all_outliers(&s, plan->pack_outliers);
    } else {
        s.rank = least(least(pack->rank[kind], n), width_of(plan));
        s.rank2 = least(pack->rank2[kind], s.rank);
    }
    return s;
}

uint64_t fv_plan_packed_bytes(const fv_plan *plan, int32_t layer, int32_t n, bool leads) {
    bool packs = n > 0 && !plan->pack_merged && fv_plan_packs(plan, layer, n);
    uint64_t bytes = 0;
    for (int k = leads ? FV_PACKED_K : FV_PACKED_V; k < 2; k++) {
        fv_packed_shape s = fv_plan_packed_shape(plan, layer, (fv_packed_kind)k, n, dtype_of(plan));
        bytes += packs ? fv_packed_bytes(&s) : fv_packed_raw_bytes(&s);
    }
    return bytes;
}

/* Keys and values of a layer, also where it borrows its keys: a block's layers are of one form. */
static bool codes_pay(const fv_plan *plan, int32_t layer, int32_t n) {
    uint64_t codes = 0, raw = 0;
    if (n == 0 || width_of(plan) > 1 << 16) return false;
    for (int k = 0; k < 2; k++) {
        fv_packed_shape s = fv_plan_packed_shape(plan, layer, (fv_packed_kind)k, n, dtype_of(plan));
        if (fv_codes_all_outliers(&s, plan->pack_outliers) > INT32_MAX) return false;
        codes += fv_packed_bytes(&s);
        raw += fv_packed_raw_bytes(&s);
    }
    return codes < raw;
}

static bool merging_pays(const fv_plan *plan, int32_t layer, int32_t n) {
    int32_t first = fv_plan_pair(plan, layer);
    uint64_t merged = 0, raw = 0;
    if (n == 0 || width_of(plan) > 1 << 16) return false;
    for (int i = 0; i < 4; i++) {
        fv_packed_shape s =
            fv_plan_packed_shape(plan, first + i / 2, (fv_packed_kind)(i % 2), n, dtype_of(plan));
        merged += fv_packed_bytes(&s);
        raw += fv_packed_raw_bytes(&s);
    }
    return merged < raw;
}

bool fv_plan_packs(const fv_plan *plan, int32_t layer, int32_t n) {
    int32_t k = plan->pack[layer].rank[FV_PACKED_K], v = plan->pack[layer].rank[FV_PACKED_V];
    if (plan->pack_coded) return v > 0 && codes_pay(plan, layer, n);
    if (plan->pack_merged) return v > 0 && merging_pays(plan, layer, n);
    double gain = fv_choice_value(&plan->policy.stage[FV_STAGE_PACK], "gain");
    int32_t width = width_of(plan), rank = least(least(k > v ? k : v, n), width);
    return rank > 0 && fv_packed_gain(n, rank, width) >= gain;
}
