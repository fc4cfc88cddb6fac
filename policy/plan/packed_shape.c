/* The shapes of a plan's compressed layers, and whether compression saves memory. Any thread. */
#include "policy/plan/packed_shape.h"

#include <math.h>

static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

static int32_t width_of(const fv_plan *plan) { return plan->shape.n_kv * plan->shape.d_head; }

/* Type for the router's counts: all types of 2 bytes are alike. */
static fv_dtype dtype_of(const fv_plan *plan) {
    return plan->shape.bytes_value == 4 ? FV_F32 : FV_BF16;
}

static fv_packed_form form_of(const fv_plan *plan) {
    if (plan->pack.latent) return FV_PACKED_LATENT;
    if (plan->pack.merged) return FV_PACKED_MERGED;
    return plan->pack.coded ? FV_PACKED_QUANTIZED : FV_PACKED_LOWRANK;
}

fv_packed_shape fv_plan_packed_shape(const fv_plan *plan, int32_t layer, fv_packed_kind kind,
                                     int32_t n, fv_dtype dtype) {
    const fv_plan_pack *pack = &plan->pack.layer[layer];
    fv_packed_shape s = {.n = n,
                         .n_kv = plan->shape.n_kv,
                         .d_head = plan->shape.d_head,
                         .dtype = dtype,
                         .kind = kind,
                         .form = form_of(plan)};
    int32_t rank = least(least(pack->rank[kind], n), width_of(plan));
    switch (s.form) {
    case FV_PACKED_LATENT:
        s.borrows = pack->back > 0 || kind == FV_PACKED_V;
        s.latent = (fv_latent_shape){.row_bits = pack->row_bits,
                                     .each_bits = plan->pack.bits == 16 ? 0 : plan->pack.bits,
                                     .n_own = pack->n_own,
                                     .exact = plan->pack.exact,
                                     .coded = plan->pack.coded_keys && kind == FV_PACKED_K};
        break;
    case FV_PACKED_MERGED: s.borrows = pack->back > 0; break;
    case FV_PACKED_QUANTIZED:
        s.codes.bits = plan->pack.bits;
        s.codes.n_outlier = (int32_t)fv_codes_all_outliers(&s, plan->pack.outliers);
        break;
    default:
        s.lowrank = (fv_lowrank_shape){
            .rank = rank, .rank2 = least(pack->rank2[kind], rank), .bits = plan->pack.bits};
    }
    return s;
}

/* Bytes of a layer's n visual tokens, packed or raw: of values, and of keys if it owns them
 * (`leads`). */
static uint64_t bytes_of(const fv_plan *plan, int32_t layer, int32_t n, bool leads, bool packs) {
    uint64_t bytes = 0;
    for (int k = leads ? FV_PACKED_K : FV_PACKED_V; k < 2; k++) {
        fv_packed_shape s = fv_plan_packed_shape(plan, layer, (fv_packed_kind)k, n, dtype_of(plan));
        bytes += packs ? fv_packed_bytes(&s) : fv_packed_raw_bytes(&s);
    }
    return bytes;
}

uint64_t fv_plan_packed_bytes(const fv_plan *plan, int32_t layer, int32_t n, bool leads) {
    bool packs = n > 0 && !plan->pack.merged && fv_plan_packs(plan, layer, n);
    return bytes_of(plan, layer, n, leads, packs);
}

/* Returns whether the number of outliers fits into an int32_t. */
static bool codes_fit(const fv_plan *plan, int32_t layer, int32_t n) {
    for (int k = 0; k < 2; k++) {
        fv_packed_shape s = fv_plan_packed_shape(plan, layer, (fv_packed_kind)k, n, dtype_of(plan));
        if (fv_codes_all_outliers(&s, plan->pack.outliers) > INT32_MAX) return false;
    }
    return true;
}

/* Returns whether codes are smaller, for keys and values even if the layer borrows keys: all layers
 * of a block have the same form. */
static bool codes_pay(const fv_plan *plan, int32_t layer, int32_t n) {
    return n > 0 && width_of(plan) <= 1 << 16 && codes_fit(plan, layer, n) &&
           bytes_of(plan, layer, n, true, true) < bytes_of(plan, layer, n, true, false);
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

bool fv_plan_latents_pay(const fv_plan *plan, int32_t first, const int32_t *n) {
    uint64_t packed = 0, raw = 0;
    for (int32_t i = 0; i < 2 * plan->pack.layer[first].group; i++) {
        fv_packed_shape s = fv_plan_packed_shape(plan, first + i / 2, (fv_packed_kind)(i % 2),
                                                 n[i / 2], dtype_of(plan));
        packed += s.n > 0 ? fv_packed_bytes(&s) : 0;
        raw += fv_packed_raw_bytes(&s);
    }
    return packed < raw;
}

/* Returns whether latents pay: for a single layer too few tokens may not fill a tile. */
static bool latents_pay(const fv_plan *plan, int32_t layer, int32_t n) {
    return n > 0 && (plan->pack.layer[layer].group > 1 || fv_plan_latents_pay(plan, layer, &n));
}

/* 1e-9: shares are not exact in binary. */
int32_t fv_plan_latent_rank2(const fv_plan *plan, fv_packed_kind kind, int32_t n_dir) {
    int32_t low = (int32_t)floor(plan->pack.low[kind] * n_dir + 1e-9);
    return low >= n_dir ? 0 : low < 1 ? 1 : low;
}

/* The larger of a layer's two ranks, at most its width. */
static int32_t rank_of(const fv_plan *plan, int32_t layer) {
    int32_t k = plan->pack.layer[layer].rank[FV_PACKED_K],
            v = plan->pack.layer[layer].rank[FV_PACKED_V];
    return least(k > v ? k : v, width_of(plan));
}

bool fv_plan_packs(const fv_plan *plan, int32_t layer, int32_t n) {
    int32_t v = plan->pack.layer[layer].rank[FV_PACKED_V];
    if (plan->pack.coded) return v > 0 && codes_pay(plan, layer, n);
    if (plan->pack.merged) return v > 0 && merging_pays(plan, layer, n);
    if (plan->pack.latent) return v > 0 && latents_pay(plan, layer, n);
    int32_t rank = least(rank_of(plan, layer), n);
    return rank > 0 &&
           fv_packed_gain(n, rank, width_of(plan)) >= plan->params[FV_STAGE_PACK].pack_svd.gain;
}

/* ---- ranges of the number of rows -------------------------------------------------------- */

/* The gain of factors of n rows falls up to n = rank, since fewer rows have lower rank, and grows
 * from there on. */
static fv_packs factors_pay_range(int32_t from, int32_t to, int32_t rank, int32_t width,
                                  double gain) {
    int32_t low = rank < from ? from : rank > to ? to : rank; /* where the gain is least */
    double first = fv_packed_gain(from, least(rank, from), width);
    double last = fv_packed_gain(to, least(rank, to), width);
    if (rank <= 0) return FV_PACKS_NONE;
    if (fv_packed_gain(low, least(rank, low), width) >= gain) return FV_PACKS_ALL;
    return first < gain && last < gain ? FV_PACKS_NONE : FV_PACKS_SOME;
}

fv_packs fv_text_keys_pack_range(const fv_text_keys *keys, int32_t from, int32_t to,
                                 int32_t width) {
    return factors_pay_range(from, to, least(keys->rank, width), width, keys->gain);
}

/* Codes and rows both grow with the number of rows. */
static fv_packs codes_pay_range(const fv_plan *plan, int32_t layer, int32_t from, int32_t to) {
    if (width_of(plan) > 1 << 16) return FV_PACKS_NONE;
    if (!codes_fit(plan, layer, to)) return FV_PACKS_SOME;
    if (bytes_of(plan, layer, to, true, true) < bytes_of(plan, layer, from, true, false))
        return FV_PACKS_ALL;
    return bytes_of(plan, layer, from, true, true) >= bytes_of(plan, layer, to, true, false)
               ? FV_PACKS_NONE
               : FV_PACKS_SOME;
}

/* Fewer tokens pay less. A group left raw because data prunes tokens holds less than its
 * coefficients would take, and these are at most those of the most tokens. */
static fv_packs latents_pay_range(const fv_plan *plan, int32_t layer, int32_t from, int32_t to) {
    bool all = fv_plan_packs(plan, layer, from) && fv_plan_packs(plan, layer, to);
    return all ? FV_PACKS_ALL : FV_PACKS_SOME;
}

fv_packs fv_plan_packs_range(const fv_plan *plan, int32_t layer, int32_t from, int32_t to) {
    if (to == 0 || plan->pack.layer[layer].rank[FV_PACKED_V] == 0) return FV_PACKS_NONE;
    if (from < 1) from = 1;
    if (plan->pack.coded) return codes_pay_range(plan, layer, from, to);
    if (plan->pack.merged) return FV_PACKS_NONE; /* counted as raw, as above */
    if (plan->pack.latent) return latents_pay_range(plan, layer, from, to);
    return factors_pay_range(from, to, rank_of(plan, layer), width_of(plan),
                             plan->params[FV_STAGE_PACK].pack_svd.gain);
}

uint64_t fv_plan_packed_most(const fv_plan *plan, int32_t layer, int32_t from, int32_t to,
                             bool leads) {
    fv_packs packs = fv_plan_packs_range(plan, layer, from, to);
    uint64_t raw = bytes_of(plan, layer, to, leads, false), packed = 0;
    if (packs == FV_PACKS_NONE) return raw;
    /* Codes that do not fit are not used; those that fit are smaller than rows. */
    if (plan->pack.coded && !codes_fit(plan, layer, to))
        return bytes_of(plan, layer, to, true, false);
    packed = bytes_of(plan, layer, to, leads, true);
    return packs == FV_PACKS_SOME && raw > packed ? raw : packed;
}
