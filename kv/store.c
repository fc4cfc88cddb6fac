/* Opens and closes stores, and says what they hold. One thread at a time. */
#include <stdlib.h>
#include <string.h>

#include "kv/internal.h"

static fv_status take_arrays(fv_kv *kv) {
    size_t n_layer = (size_t)kv->account.shape->n_layer,
           heads = n_layer * (size_t)kv->account.shape->n_kv;
    fv_arena *a = &kv->arena;
    FV_TRY(FV_ARENA_NEW(a, heads * FV_N_SEG, kv->run));
    FV_TRY(FV_ARENA_NEW(a, heads * FV_N_SEG, kv->state));
    FV_TRY(FV_ARENA_NEW(a, n_layer, kv->extent));
    FV_TRY(FV_ARENA_NEW(a, heads, kv->ranked));
    FV_TRY(FV_ARENA_NEW(a, n_layer, kv->masked));
    FV_TRY(FV_ARENA_NEW(a, n_layer * FV_N_SEG, kv->packed));
    FV_TRY(FV_ARENA_NEW(a, n_layer, kv->source_layer));
    FV_TRY(FV_ARENA_NEW(a, 1, kv->sequence));
    return FV_ARENA_NEW(a, n_layer, kv->reused_text);
}

fv_status fv_kv_open(fv_kv_pool *pool, fv_kv **out) {
    fv_kv *kv = malloc(sizeof *kv);
    if (!kv) return FV_FAIL(FV_ENOMEM, "out of memory for a KV store");
    *kv = (fv_kv){.column_bytes[FV_KV_POSITION] = sizeof(int32_t)};
    fv_kv_account_open(&kv->account, pool);
    fv_status st = take_arrays(kv);
    if (st != FV_OK) {
        fv_kv_account_close(&kv->account);
        fv_arena_fini(&kv->arena);
        free(kv);
        return st;
    }
    for (int32_t l = 0; l < kv->account.shape->n_layer; l++) kv->source_layer[l] = l;
    *out = kv;
    return FV_OK;
}

fv_status fv_kv_set_owner(fv_kv *kv, const char *owner) {
    char *copy;
    FV_TRY(fv_arena_strndup(&kv->arena, owner, strlen(owner), &copy));
    kv->account.owner = copy;
    return FV_OK;
}

const char *fv_kv_owner(const fv_kv *kv) { return kv->account.owner; }

void fv_kv_close(fv_kv *kv) {
    if (!kv) return;
    const fv_kv_shape *s = kv->account.shape;
    size_t n = (size_t)s->n_layer * (size_t)s->n_kv * FV_N_SEG;
    for (int32_t l = 0; l < s->n_layer; l++) {
        for (int32_t g = 0; g < s->n_kv; g++) (void)fv_kv_text_pages(kv, l, g, 0, 0);
        fv_kv_give(&kv->account, &kv->extent[l]);
    }
    fv_kv_part_from_share(kv);
    fv_kv_give(&kv->account, &kv->recurrent);
    for (size_t i = 0; i < n; i++) {
        free(kv->run[i].block);
        fv_kv_columns_free(&kv->state[i]);
    }
    for (int32_t l = 0; l < s->n_layer; l++)
        for (int seg = 0; seg < FV_N_SEG; seg++) fv_kv_packed_drop(kv, l, (fv_kv_segment)seg);
    fv_kv_account_close(&kv->account);
    fv_kv_moves_fini(kv);
    fv_arena_fini(&kv->arena);
    free(kv);
}

const fv_kv_shape *fv_kv_get_shape(const fv_kv *kv) { return kv->account.shape; }

fv_kv_sequence *fv_kv_get_sequence(const fv_kv *kv) { return kv->sequence; }

fv_status fv_kv_set_rope_map(fv_kv *kv, const fv_rope_map *map) {
    fv_rope_grid *grid;
    FV_TRY(FV_ARENA_NEW(&kv->arena, map->n_grid, grid));
    if (map->n_grid) memcpy(grid, map->grid, (size_t)map->n_grid * sizeof *grid);
    kv->rope_map = *map;
    kv->rope_map.grid = grid;
    return FV_OK;
}

const fv_rope_map *fv_kv_rope_map(const fv_kv *kv) { return &kv->rope_map; }

fv_kv_pool *fv_kv_get_pool(const fv_kv *kv) { return kv->account.pool; }

fv_device *fv_kv_get_device(const fv_kv *kv) { return kv->account.device; }

fv_status fv_kv_reserve_bytes(fv_kv *kv, size_t bytes) {
    return fv_kv_account_reserve(&kv->account, bytes);
}

size_t fv_kv_release_unused(fv_kv *kv, int32_t rows) {
    size_t before = kv->account.held;
    fv_kv_account_release(&kv->account);
    for (int32_t l = 0; l < kv->account.shape->n_layer; l++)
        for (int32_t g = 0; g < kv->account.shape->n_kv; g++)
            (void)fv_kv_text_pages(kv, l, g, 0, fv_kv_len(kv, l, g, FV_SEG_TEXT) + rows);
    fv_kv_check(kv, -1);
    return before - kv->account.held;
}

size_t fv_kv_bytes(const fv_kv *kv, fv_kv_segment seg) {
    const fv_kv_shape *s = kv->account.shape;
    size_t bytes = 0;
    for (int32_t l = 0; l < s->n_layer; l++) {
        bytes += fv_kv_packed_bytes(kv, l, seg);
        if (seg == FV_SEG_VISUAL)
            bytes += kv->extent[l].bytes +
                     2 * (size_t)s->n_kv * (size_t)kv->shared_visual * fv_kv_row_bytes(s);
        for (int32_t g = 0; seg == FV_SEG_TEXT && g < s->n_kv; g++)
            bytes += (fv_kv_borrows(kv, l, seg) ? 1 : 2) * (size_t)fv_kv_len(kv, l, g, seg) *
                     fv_kv_row_bytes(s);
    }
    return bytes;
}

size_t fv_kv_bytes_held(const fv_kv *kv) { return kv->account.held; }
