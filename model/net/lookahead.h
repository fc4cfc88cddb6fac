#ifndef FOVEA_MODEL_NET_LOOKAHEAD_H
#define FOVEA_MODEL_NET_LOOKAHEAD_H

/* LOOK-AHEAD ATTENTION: the attention that a token would give to earlier tokens in a layer that has
 * not run yet. */
#include "model/net/decoder.h"

typedef struct fv_lookahead {
    int32_t layer;
    fv_tensor x;        /* [n, d] the residual stream before the layer; the last row is the query */
    const int32_t *pos; /* [n] positions, and the positions by which queries and keys are rotated */
    const fv_rope_pos *rope_pos;
    const fv_kv *kv; /* the store that the rows will be written to: keys are rounded as in it */
    float *p; /* [H, n] on the host: the last row's attention probabilities, in the order of rows */
} fv_lookahead;

/* Computes p: the bits of a capture in that layer if all rows were in one segment of the store.
 * Keys of all rows and one query are computed and discarded. Synchronous. */
fv_status fv_decoder_lookahead(fv_decoder *dec, const fv_lookahead *lookahead);

#endif
