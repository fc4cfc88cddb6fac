#ifndef FOVEA_MODEL_NET_ROW_MATRIX_H
#define FOVEA_MODEL_NET_ROW_MATRIX_H

/* KV ENTRIES AS A MATRIX, all KV heads side by side: the input of compression, and the result of
 * decompression.
 *
 *   entries of the store --gather--> M [n, Hkv D] <--rebuild-- a compressed block
 *                                    keys: --rotate--> from positions to anchors, or back
 *
 * Matrices are F32 in the backend's memory. Any thread may call this with its own backend and
 * scratch; the store is only read. No function waits for the work that it issues: call
 * be->ops->sync. */
#include "factor/matrices.h"
#include "kv/packed.h"

/* Rows of one segment of a layer, keys or values. */
typedef struct fv_row_set {
    int32_t layer;
    fv_kv_segment seg;
    bool value;
    int32_t n;
    const int32_t *row; /* [n] indices, counted from row0; in text, which is in blocks, 0, 1, ... */
    int32_t row0;       /* 0 for visual tokens */
} fv_row_set;

/* Copies these rows to m [n, Hkv D]. */
fv_status fv_rows_gather(fv_kv *kv, fv_backend *be, const fv_row_set *rows, fv_tensor m);

/* Rotates keys m [n, Hkv D] by their anchors, or back: anchor[n] are positions in the prompt, for
 * which the map has RoPE positions. */
fv_status fv_rows_rotate(fv_matrices *in, const fv_rope *rope, const fv_rope_map *map,
                         const int32_t *anchor, bool back, int32_t n_kv, fv_tensor m);

/* The same in two steps, for keys of several layers with the same tokens: fv_rows_angles computes
 * cosines and sines [n, D / 2] of the anchors, fv_rows_rotate_by rotates by the first m.rows of
 * these. */
typedef struct fv_row_angles {
    fv_tensor cos, sin;
} fv_row_angles;

fv_status fv_rows_angles(fv_matrices *in, const fv_rope *rope, const fv_rope_map *map,
                         const int32_t *anchor, bool back, int32_t n, fv_row_angles *out);
fv_status fv_rows_rotate_by(fv_backend *be, const fv_row_angles *by, int32_t n_kv, fv_tensor m);

/* Decompresses rows row[n] of a part, at full rank, into m [n, Hkv D]. The part is on the host. */
fv_status fv_rows_rebuild(fv_matrices *in, const fv_packed_part *part, const int32_t *row,
                          fv_tensor m);

#endif
