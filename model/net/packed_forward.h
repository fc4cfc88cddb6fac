#ifndef FOVEA_MODEL_NET_PACKED_FORWARD_H
#define FOVEA_MODEL_NET_PACKED_FORWARD_H

/* Compressed layers in a forward batch: attention to uncompressed entries first, as in any layer;
 * then to compressed tokens, for the sequences that have some; then both are merged
 * (kernels/ops.h). An uncompressed sequence keeps its bits, whatever else is in the batch. Inside
 * model/net only. */
#include "common/arena.h"
#include "kv/packed.h"
#include "model/net/decoder.h"
#include "model/net/workspace.h"

typedef struct fv_packed_forward {
    bool any;           /* some sequence has a packed layer among the pass's layers */
    fv_tensor lse;      /* [rows, H] over raw rows; absent: attention need not write it */
    fv_tensor o2, lse2; /* [rows, H D], [rows, H] over packed rows */
    int32_t *n_score;   /* [n_seq] columns of its scores; 0: no scores needed */
    fv_tensor *score;   /* [n_seq] [H * rows, columns] */
    fv_packed_seq *seq; /* [n_seq] */
    int32_t *owner;     /* [n_seq] index of the sequence in the pass */
} fv_packed_forward;

/* Makes the host's part in `arena`, for layers [l0, l1). */
fv_status fv_packed_forward_make(const fv_forward_batch *pass, int32_t l0, int32_t l1,
                                 fv_arena *arena, fv_packed_forward *p);

/* Bytes of scratch that the next call cuts, for `rows` rows in the pass. */
size_t fv_packed_forward_bytes(const fv_text_config *cfg, const fv_forward_batch *pass,
                               const fv_packed_forward *p, int32_t rows);
void fv_packed_forward_put(const fv_text_config *cfg, const fv_forward_batch *pass,
                           fv_packed_forward *p, int32_t rows, fv_workspace *ws);

/* Adds attention to the compressed tokens of layer l; call it after `attention`, which wrote
 * log-sum-exps for `a`. */
fv_status fv_packed_forward_attend(const fv_packed_forward *p, fv_backend *be, const fv_rope *rope,
                                   const fv_forward_batch *pass, int32_t l, const fv_attn_args *a);

#endif
