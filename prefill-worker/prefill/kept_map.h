#ifndef FOVEA_PREFILL_WORKER_PREFILL_KEPT_MAP_H
#define FOVEA_PREFILL_WORKER_PREFILL_KEPT_MAP_H

/* KEPT-TOKEN MAP: which visual tokens each layer holds after prefill, for display.
 * A watch starts before prefill, is notified of rankings, and ends on the filled store. */
#include "common/arena.h"
#include "kv/kv.h"

/* Neighbouring layers that hold the same rows. Arrays [V] are by image row, as the vision tower
 * made them, even if fewer entered the prompt. */
typedef struct fv_kept_map_group {
    int32_t layer, n_layer;
    uint8_t *heads; /* how many KV heads hold the row, at most 255 */
    uint8_t *score; /* the row's score when rows were chosen: 255 for the highest, 0 for a row that
                     * had been dropped before; NULL: nothing was ranked */
} fv_kept_map_group;

typedef struct fv_kept_map {
    int32_t n_visual, n_group, n_kv;
    fv_kept_map_group *group; /* from the first layer to the last */
} fv_kept_map;

typedef struct fv_kept_map_watch fv_kept_map_watch; /* opaque; in its arena */

/* The origin of condensed image tokens: the prompt's i-th was source[i] of the tower's n, or was merged
 * from several (-1). */
typedef struct fv_kept_map_rows {
    int32_t n;
    const int32_t *source; /* NULL, like no rows at all: the prompt has the tower's own */
} fv_kept_map_rows;

/* Starts a watch for a prompt of n rows of segments seg[n]. The watch and the map live in the arena. */
fv_status fv_kept_map_begin(fv_arena *arena, const uint8_t *seg, int32_t n,
                            const fv_kept_map_rows *rows, fv_kept_map_watch **out);

/* Takes a layer's attention to the n image tokens at prompt positions pos[n], by which later layers
 * choose; for fv_prefill_request.ranked. */
fv_status fv_kept_map_ranked(void *watch, int32_t layer, const float *attention, const int32_t *pos,
                             int32_t n);

fv_status fv_kept_map_end(fv_kept_map_watch *watch, const fv_kv *kv, fv_kept_map *out);

#endif
