#ifndef FOVEA_PREFILL_WORKER_PREFILL_KEPT_MAP_H
#define FOVEA_PREFILL_WORKER_PREFILL_KEPT_MAP_H

/* KEPT-TOKEN MAP: which visual tokens each layer holds after prefill, for display.
 * A watch starts before prefill, is notified of rankings, and ends on the filled store. */
#include "common/arena.h"
#include "model/net/kv.h"

/* Neighbouring layers that hold the same rows. Arrays are by image row, [V]: as the vision tower
 * made them, also where fewer entered the prompt. */
typedef struct fv_kept_map_group {
    int32_t layer, n_layer;
    uint8_t *heads; /* in how many KV heads the row is held, at most 255 */
    uint8_t *score; /* what it was ranked by when rows were chosen, of 255 for the most wanted and 0
                     * for one that was not there any more; NULL: nothing was ranked */
} fv_kept_map_group;

typedef struct fv_kept_map {
    int32_t n_visual, n_group, n_kv;
    fv_kept_map_group *group; /* from the first layer to the last */
} fv_kept_map;

typedef struct fv_kept_map_watch fv_kept_map_watch; /* opaque; in its arena */

/* The image tokens that the prompt's are of: condensed, the i-th of the prompt was source[i] of n,
 * or made of several (-1). */
typedef struct fv_kept_map_rows {
    int32_t n;
    const int32_t *source; /* NULL: as rows NULL, the prompt has the tower's own */
} fv_kept_map_rows;

/* For a prompt of n rows of segments seg[n]. The arena must stay until what the end gives is gone.
 */
fv_status fv_kept_map_begin(fv_arena *arena, const uint8_t *seg, int32_t n,
                            const fv_kept_map_rows *rows, fv_kept_map_watch **out);

/* A layer's attention on the n image tokens at prompt positions pos[n], by which later ones choose;
 * as fv_prefill_request.ranked. */
fv_status fv_kept_map_ranked(void *watch, int32_t layer, const float *attention, const int32_t *pos,
                             int32_t n);

fv_status fv_kept_map_end(fv_kept_map_watch *watch, const fv_kv *kv, fv_kept_map *out);

#endif
