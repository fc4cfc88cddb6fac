#ifndef FOVEA_PREFILL_WORKER_PACK_PACK_LAYER_H
#define FOVEA_PREFILL_WORKER_PACK_PACK_LAYER_H

/* A LAYER'S ROWS ON THEIR WAY into a packed block: their order, the matrices that are packed
 * and the block at the end. What pack methods share; a method's own is what it makes of a matrix.
 *
 *   rows of the store --begin: order by anchor block--> --matrix--> M [n, Hkv D] --the method-->
 *       bytes of a part --end--> the store
 *
 * Keys of M are Rot(p_j - a) k_j, a the start of their block of `block` positions, which is a
 * parameter of the method (kernels/packed_part.h): the store has Rot(p_j) k_j, so they are turned
 * back by a. Threads as pack.h has them. */
#include "prefill-worker/pack/pack.h"

/* The state of a job. */
typedef struct fv_pack_layer {
    int32_t n, n_anchor;
    int32_t *row;    /* [n] of the store */
    int32_t *rank;   /* [n] their rank, where the store is ranked */
    int32_t *pos;    /* [n] */
    int32_t *first;  /* [n_anchor + 1] */
    int32_t *anchor; /* [n_anchor] */
    bool anchored;
    fv_packed_shape shape[2]; /* as the plan has them; the method may lower ranks */
    void *data[2];            /* the bytes of the parts, for the method to write */
} fv_pack_layer;

/* The order of a layer's rows, without memory for parts yet: by anchor block, and in a block as the
 * store has them, with `rank` being `row`. NULL: it has too few rows by now. */
fv_status fv_pack_layer_order(const fv_pack_context *ctx, const fv_pack_job *job,
                              fv_pack_layer **out);

/* fv_pack_method's begin and end. A layer that has too few rows by now stays raw. */
fv_status fv_pack_layer_begin(const fv_pack_context *ctx, fv_pack_job *job);
fv_status fv_pack_layer_end(const fv_pack_context *ctx, fv_pack_job *job);

/* M [n, Hkv D] F32 of keys or values, among the matrices that `part` has. */
fv_status fv_pack_layer_matrix(const fv_pack_context *ctx, const fv_pack_job *job,
                               fv_packed_kind kind, fv_tensor *m);

/* The failure st with what it happened to ahead of it. */
fv_status fv_pack_layer_fail(fv_status st, const fv_pack_job *job, fv_packed_kind kind);

#endif
