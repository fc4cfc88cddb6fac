#ifndef FOVEA_MODEL_NET_CAPTURES_H
#define FOVEA_MODEL_NET_CAPTURES_H

/* Attention captures of a forward batch (fv_forward_capture): device memory for one layer's
 * captures, and the second computation of its scores that fills them. Used by the decoder only, on
 * its thread and in its memory. */
#include "common/arena.h"
#include "model/net/decoder.h"
#include "model/net/workspace.h"

typedef struct fv_captures {
    fv_tensor lse;     /* [rows, H] */
    fv_tensor sums;    /* [1, floats] sums of one layer's captures, one after another */
    fv_tensor o;       /* [1, H D] */
    fv_score_sum *sum; /* [captures of the layer that has most] */
} fv_captures;

/* Bytes that fv_captures_cut takes; 0 without captures. */
size_t fv_captures_bytes(const fv_text_config *cfg, const fv_forward_batch *pass);

fv_status fv_captures_cut(fv_workspace *ws, fv_arena *arena, const fv_text_config *cfg,
                          const fv_forward_batch *pass, fv_captures *out);

/* Memory in which attention of layer l writes its log-sum-exp for `rows` tokens; absent if no
 * capture is of this layer. */
fv_tensor fv_captures_lse(const fv_captures *t, const fv_forward_batch *pass, int32_t l,
                          int32_t rows);

/* Fills the layer's captures; call it after its attention. */
fv_status fv_captures_read(const fv_captures *t, fv_backend *be, const fv_forward_batch *pass,
                           int32_t l, const fv_attn_args *attn);

#endif
