#ifndef FOVEA_MODEL_NET_LOOKAHEAD_H
#define FOVEA_MODEL_NET_LOOKAHEAD_H

/* LOOK-AHEAD ATTENTION: the attention that a token would give to earlier tokens in a layer that has
 * not run yet. */
#include "model/net/decoder.h"

typedef struct fv_lookahead {
    int32_t layer;
    fv_tensor x; /* [n, d] the residual stream before the layer; the last token has the query */
    const int32_t *pos; /* [n] positions, and those that queries and keys are rotated by */
    const fv_rope_pos *rope_pos;
    const fv_kv *kv; /* the store that the rows will be written to: keys are rounded as there */
    float *p; /* [H, n] on the host: the last row's attention probabilities on each row, in order */
} fv_lookahead;

/* The bits of a capture in that layer, if all rows were of one segment of the store. Keys of all
 * rows and one query are computed, and forgotten. Done when it returns. */
fv_status fv_decoder_lookahead(fv_decoder *dec, const fv_lookahead *lookahead);

#endif
