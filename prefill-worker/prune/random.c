/* prune=random: the baseline that every attention-based choice must beat. A uniform subset by
 * selection sampling (Knuth, TAOCP 2, 3.4.2 S): one walk over the rows, each taken with
 * probability (still needed) / (still left), which yields ascending indices directly. The subset
 * depends on `seed` and the counts only. */
#include "prefill-worker/prune.h"

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static fv_status keep(const fv_prune_context *ctx, int32_t *kept) {
    uint64_t state = (uint64_t)fv_choice_value(ctx->choice, "seed");
    int32_t taken = 0;
    for (int32_t i = 0; i < ctx->n_visual && taken < ctx->keep; i++) {
        double u = (double)(next_random(&state) >> 11) * 0x1p-53;
        if (u * (ctx->n_visual - i) < ctx->keep - taken) kept[taken++] = i;
    }
    return FV_OK;
}

extern const fv_prune_method fv_prune_random;
const fv_prune_method fv_prune_random = {.name = "random", .keep = keep};
