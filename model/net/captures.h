#ifndef FOVEA_MODEL_NET_CAPTURES_H
#define FOVEA_MODEL_NET_CAPTURES_H

/* The captures of a pass (fv_forward_capture): room for one layer's on the device, and the second pass over
 * a layer's scores that fills them. For the decoder, whose thread and memory they are on. */
#include "common/arena.h"
#include "model/net/decoder.h"
#include "model/net/workspace.h"

typedef struct fv_captures {
    fv_tensor lse;     /* [rows, H] */
    fv_tensor sums;    /* [1, floats] what the captures of one layer hold, one after another */
    fv_tensor o;       /* [1, H D] */
    fv_score_sum *sum; /* [as many as one layer has] */
} fv_captures;

/* Bytes that fv_captures_cut takes; none when nobody captures. */
size_t fv_captures_bytes(const fv_text_config *cfg, const fv_forward_batch *pass);

fv_status fv_captures_cut(fv_workspace *ws, fv_arena *arena, const fv_text_config *cfg,
                          const fv_forward_batch *pass, fv_captures *out);

/* Where attention of layer l leaves its lse, for `rows` rows; absent when nobody captures the layer. */
fv_tensor fv_captures_lse(const fv_captures *t, const fv_forward_batch *pass, int32_t l,
                          int32_t rows);

/* Behind the layer's attention: its captures are filled. */
fv_status fv_captures_read(const fv_captures *t, fv_backend *be, const fv_forward_batch *pass,
                           int32_t l, const fv_attn_args *attn);

#endif
