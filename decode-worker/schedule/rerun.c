/* Finds text tokens by position and assumes no order, because evict methods do not keep one. */
#include "decode-worker/schedule/rerun.h"

/* Makes head g of a layer hold the row at `pos` want[g] times; leaves all other rows. */
static fv_status hold_with(fv_kv *kv, int32_t layer, int32_t pos, const uint8_t *want,
                           fv_arena *arena) {
    int32_t n_kv = fv_kv_get_shape(kv)->n_kv, *n, *rows;
    const int32_t **idx;
    FV_TRY(FV_ARENA_NEW(arena, n_kv, n));
    FV_TRY(FV_ARENA_NEW(arena, n_kv, idx));
    for (int32_t g = 0; g < n_kv; g++) {
        const int32_t *at = fv_kv_positions(kv, layer, g, FV_SEG_TEXT);
        int32_t len = fv_kv_len(kv, layer, g, FV_SEG_TEXT), held = 0;
        FV_TRY(FV_ARENA_NEW(arena, len + 1, rows));
        idx[g] = rows;
        for (int32_t j = 0; j < len; j++) {
            int32_t times = 1;
            if (at[j] == pos) times = held++ == 0 ? want[g] : 0;
            while (times-- > 0) rows[n[g]++] = j;
        }
    }
    return fv_kv_keep(kv, layer, FV_SEG_TEXT, idx, n);
}

static fv_status hold(fv_kv *kv, int32_t layer, int32_t pos, const uint8_t *want) {
    fv_arena arena = {0};
    fv_status st = hold_with(kv, layer, pos, want, &arena);
    fv_arena_fini(&arena);
    return st;
}

static uint8_t times_held(const fv_kv *kv, int32_t layer, int32_t head, int32_t pos) {
    const int32_t *at = fv_kv_positions(kv, layer, head, FV_SEG_TEXT);
    uint8_t times = 0;
    for (int32_t j = 0; j < fv_kv_len(kv, layer, head, FV_SEG_TEXT); j++) times += at[j] == pos;
    return times;
}

fv_status fv_rerun_take_out(fv_rerun *a, fv_kv *kv, int32_t pos) {
    const fv_kv_shape *s = fv_kv_get_shape(kv);
    uint8_t *none;
    if (s->state_bytes)
        return FV_FAIL(FV_EUNSUPPORTED, "the prompt's last token cannot run again: this model has "
                                        "recurrent layers, in whose state it is already");
    a->pos = pos;
    FV_TRY(FV_ARENA_NEW(&a->arena, s->n_kv, none));
    FV_TRY(FV_ARENA_NEW(&a->arena, s->n_layer * s->n_kv, a->times));
    for (int32_t l = 0; l < s->n_layer; l++) {
        for (int32_t g = 0; g < s->n_kv; g++) a->times[l * s->n_kv + g] = times_held(kv, l, g, pos);
        if (!fv_kv_borrows(kv, l, FV_SEG_TEXT)) FV_TRY(hold(kv, l, pos, none));
    }
    return FV_OK;
}

fv_status fv_rerun_put_back(fv_rerun *a, fv_kv *kv) {
    const fv_kv_shape *s = fv_kv_get_shape(kv);
    for (int32_t l = 0; l < s->n_layer; l++) {
        const uint8_t *times = a->times + (size_t)l * (size_t)s->n_kv;
        bool once = true;
        for (int32_t g = 0; g < s->n_kv; g++) once &= times[g] == 1;
        if (!once && !fv_kv_borrows(kv, l, FV_SEG_TEXT)) FV_TRY(hold(kv, l, a->pos, times));
    }
    return FV_OK;
}

void fv_rerun_free(fv_rerun *a) {
    fv_arena_fini(&a->arena);
    *a = (fv_rerun){0};
}
