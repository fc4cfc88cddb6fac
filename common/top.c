/* Chooses the highest scores without sorting or allocating; fv_top_sort sorts all. */
#include "common/top.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Maps floats to integers of the same order, with both zeros equal and NaN below all. */
static uint32_t order_of(float f) {
    uint32_t u;
    if (f != f) return 0;
    f += 0.0f; /* -0 becomes 0 */
    memcpy(&u, &f, sizeof u);
    return u >> 31 ? ~u : u | 0x80000000u;
}

/* The largest integer that at least `keep` scores reach, found bit by bit from the top. Allocates
 * and sorts nothing. */
static uint32_t threshold(const float *score, int32_t n, int32_t keep) {
    uint32_t t = 0;
    for (uint32_t bit = 0x80000000u; bit; bit >>= 1) {
        int32_t reach = 0;
        for (int32_t i = 0; i < n; i++) reach += order_of(score[i]) >= (t | bit);
        if (reach >= keep) t |= bit;
    }
    return t;
}

void fv_top(const float *score, int32_t n, int32_t keep, int32_t *kept) {
    assert(keep >= 0 && keep <= n);
    uint32_t t = threshold(score, n, keep);
    int32_t equal = keep; /* places left for scores equal to the threshold */
    for (int32_t i = 0; i < n; i++) equal -= order_of(score[i]) > t;
    for (int32_t i = 0, k = 0; i < n && k < keep; i++) {
        uint32_t o = order_of(score[i]);
        if (o > t || (o == t && equal-- > 0)) kept[k++] = i;
    }
}

/* Keys are in front of indices, so one comparison decides both. */
static int lower_first(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

fv_status fv_top_sort(const float *score, int32_t n, int32_t *order) {
    uint64_t *key = malloc((size_t)(n ? n : 1) * sizeof *key);
    if (!key) return FV_FAIL(FV_ENOMEM, "out of memory to rank %d tokens", n);
    for (int32_t i = 0; i < n; i++) key[i] = (uint64_t)~order_of(score[i]) << 32 | (uint32_t)i;
    qsort(key, (size_t)n, sizeof *key, lower_first);
    for (int32_t i = 0; i < n; i++) order[i] = (int32_t)(uint32_t)key[i];
    free(key);
    return FV_OK;
}
