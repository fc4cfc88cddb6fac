/* Orders rows by scores that were captured in other layers, and moves them. Scores are by
 * prompt position, so that they serve whatever rows a layer, or after the select stage a head,
 * still has. */
#include "prefill-worker/prefill/rank.h"

#include <assert.h>
#include <string.h>

#include "common/top.h"

int32_t fv_rank_ready(const int32_t *from, int32_t n_layer) {
    for (int32_t l = 0; l < n_layer; l++)
        if (from[l] >= n_layer) return l;
    return n_layer;
}

/* Orders one head's rows. */
static fv_status order_head(const fv_kv *kv, int32_t layer, int32_t head, const float *score,
                            fv_arena *arena, int32_t **out) {
    int32_t n = fv_kv_len(kv, layer, head, FV_SEG_VISUAL);
    const int32_t *pos = fv_kv_positions(kv, layer, head, FV_SEG_VISUAL);
    float *of_row;
    FV_TRY(FV_ARENA_NEW(arena, n, of_row));
    FV_TRY(FV_ARENA_NEW(arena, n, *out));
    for (int32_t j = 0; j < n; j++) of_row[j] = score[pos[j]];
    return fv_top_sort(of_row, n, *out);
}

/* Whether a head holds the first head's rows, as it does unless a method selects per head; such heads share
 * an order. */
static bool as_first_head(const fv_kv *kv, int32_t layer, int32_t head) {
    int32_t n = fv_kv_len(kv, layer, 0, FV_SEG_VISUAL);
    return n == fv_kv_len(kv, layer, head, FV_SEG_VISUAL) &&
           (n == 0 || memcmp(fv_kv_positions(kv, layer, 0, FV_SEG_VISUAL),
                             fv_kv_positions(kv, layer, head, FV_SEG_VISUAL),
                             (size_t)n * sizeof(int32_t)) == 0);
}

static fv_status rank_layer(fv_kv *kv, int32_t layer, const float *score, fv_arena *arena) {
    int32_t **order, n_kv = fv_kv_get_shape(kv)->n_kv;
    FV_TRY(FV_ARENA_NEW(arena, n_kv, order));
    for (int32_t g = 0; g < n_kv; g++)
        if (g > 0 && as_first_head(kv, layer, g))
            order[g] = order[0];
        else
            FV_TRY(order_head(kv, layer, g, score, arena, &order[g]));
    return fv_kv_rank(kv, layer, (const int32_t *const *)order);
}

/* The last layer that must have run before a layer's rows can move: the one that ranks it, and
 * those that borrow its keys, whose rows move with its own. */
static int32_t last_needed(const fv_kv *kv, int32_t layer, int32_t from) {
    int32_t last = from;
    for (int32_t l = layer; l < fv_kv_get_shape(kv)->n_layer; l++)
        if (fv_kv_source_layer(kv, l) == layer && l > last) last = l;
    return last;
}

static bool is_ranked(const fv_kv *kv, int32_t layer) {
    bool ranked = false;
    for (int32_t g = 0; g < fv_kv_get_shape(kv)->n_kv; g++)
        ranked |= fv_kv_ranked(kv, layer, g) > 0;
    return ranked;
}

fv_status fv_rank_run(const int32_t *from, fv_kv *kv, int32_t n_layer,
                      const float *const *attention) {
    fv_arena arena = {0};
    fv_status st = FV_OK;
    for (int32_t l = 0; l < n_layer && st == FV_OK; l++) {
        if (from[l] < 0 || fv_kv_borrows(kv, l, FV_SEG_VISUAL) || is_ranked(kv, l)) continue;
        if (last_needed(kv, l, from[l]) >= n_layer) continue;
        assert(attention[from[l]]);
        fv_arena_reset(&arena);
        st = rank_layer(kv, l, attention[from[l]], &arena);
    }
    fv_arena_fini(&arena);
    return st;
}
