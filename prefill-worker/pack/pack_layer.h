#ifndef FOVEA_PREFILL_WORKER_PACK_PACK_LAYER_H
#define FOVEA_PREFILL_WORKER_PACK_PACK_LAYER_H

/* A LAYER'S ROWS ON THEIR WAY into a packed block: their order, the matrices that are packed
 * and the block at the end. Pack methods share this; each adds how it compresses a matrix.
 *
 *   rows of the store --begin: order by anchor block--> --matrix--> M [n, Hkv D] --the method-->
 *       bytes of a part --end--> the store
 *
 * Keys of M are Rot(p_j - a) k_j, a the start of their block of `block` positions, which is a
 * parameter of the method (packed/part.h): the store has Rot(p_j) k_j, so keys are rotated
 * back by a. Threads: see pack.h. */
#include "prefill-worker/pack/pack.h"

/* The state of a job. */
typedef struct fv_pack_layer {
    int32_t n, n_anchor;
    int32_t *row;    /* [n] rows of the store */
    int32_t *rank;   /* [n] their ranks, if the layer is ranked */
    int32_t *pos;    /* [n] */
    int32_t *first;  /* [n_anchor + 1] */
    int32_t *anchor; /* [n_anchor] */
    bool anchored;
    fv_packed_shape shape[2]; /* initially the plan's; the method may lower ranks */
    void *data[2];            /* the bytes of the parts, for the method to write */
} fv_pack_layer;

/* Orders a layer's rows, without memory for parts yet: by anchor block, and in a block as the
 * store has them, with `rank` being `row`. *out is NULL if too few rows are left to pack. */
fv_status fv_pack_layer_order(const fv_pack_context *ctx, const fv_pack_job *job,
                              fv_pack_layer **out);

/* A method's `begin` and `end` (fv_pack_method). A layer with too few rows left stays raw. */
fv_status fv_pack_layer_begin(const fv_pack_context *ctx, fv_pack_job *job);
fv_status fv_pack_layer_end(const fv_pack_context *ctx, fv_pack_job *job);

/* Builds M [n, Hkv D] F32 of keys or values in the context's matrices. */
fv_status fv_pack_layer_matrix(const fv_pack_context *ctx, const fv_pack_job *job,
                               fv_packed_kind kind, fv_tensor *m);

/* Puts "visual keys of layer 3" and the like ahead of the text of failure st. */
fv_status fv_pack_layer_fail(fv_status st, const fv_pack_job *job, fv_packed_kind kind);

#endif
