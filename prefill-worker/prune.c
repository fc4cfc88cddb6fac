/* The table of prune methods, made from methods.def (a row without its file does not link), and
 * what several of them share. */
#include "prefill-worker/prune.h"

#include <assert.h>
#include <string.h>

#define CONDENSE(name)
#define PRUNE(name) extern const fv_prune_method fv_prune_##name;
#define LAZY(name)
#define SELECT(name)
#define PACK(name)
#define EXPAND(name)
#define EVICT(name)
#define FV_METHOD(stage, name, source, summary) stage(name)
#include "policy/methods.def"

static const fv_prune_method *const methods[] = {
#undef PRUNE
#define PRUNE(name) &fv_prune_##name,
#define FV_METHOD(stage, name, source, summary) stage(name)
#include "policy/methods.def"
};

const fv_prune_method *fv_prune_find(const char *name) {
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (strcmp(methods[i]->name, name) == 0) return methods[i];
    assert(!"a prune method without its file");
    return NULL;
}

void fv_prune_head_mean(const float *p, int32_t n_head, int32_t n_key, int32_t n, float *mean) {
    for (int32_t j = 0; j < n; j++) {
        double sum = 0;
        for (int32_t h = 0; h < n_head; h++)
            sum += (double)p[(size_t)h * (size_t)n_key + (size_t)j];
        mean[j] = (float)(sum / n_head);
    }
}

/* Floats as whole numbers of the same order, both zeros alike and NaN below all. */
static uint32_t order_of(float f) {
    uint32_t u;
    if (f != f) return 0;
    f += 0.0f; /* -0 becomes 0 */
    memcpy(&u, &f, sizeof u);
    return u >> 31 ? ~u : u | 0x80000000u;
}

/* Bit by bit from the top, the largest number that at least `keep` scores reach. No memory, no
 * sort, and the rows come out in order. */
static uint32_t threshold(const float *score, int32_t n, int32_t keep) {
    uint32_t t = 0;
    for (uint32_t bit = 0x80000000u; bit; bit >>= 1) {
        int32_t reach = 0;
        for (int32_t i = 0; i < n; i++) reach += order_of(score[i]) >= (t | bit);
        if (reach >= keep) t |= bit;
    }
    return t;
}

void fv_prune_top(const float *score, int32_t n, int32_t keep, int32_t *kept) {
    assert(keep >= 0 && keep <= n);
    uint32_t t = threshold(score, n, keep);
    int32_t equal = keep; /* places left for scores that only just reach */
    for (int32_t i = 0; i < n; i++) equal -= order_of(score[i]) > t;
    for (int32_t i = 0, k = 0; i < n && k < keep; i++) {
        uint32_t o = order_of(score[i]);
        if (o > t || (o == t && equal-- > 0)) kept[k++] = i;
    }
}

fv_status fv_prune_by_attention(const fv_prune_context *ctx, int32_t *kept) {
    assert(ctx->attention);
    fv_prune_top(ctx->attention, ctx->n_visual, ctx->keep, kept);
    return FV_OK;
}
