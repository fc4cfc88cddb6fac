#ifndef FOVEA_MODEL_NET_TAPS_H
#define FOVEA_MODEL_NET_TAPS_H

/* The taps of a pass (fv_pass_tap): room for one layer's on the device, and the second pass over
 * a layer's scores that fills them. For the decoder, whose thread and memory they are on. */
#include "common/arena.h"
#include "model/net/decoder.h"
#include "model/net/workspace.h"

typedef struct fv_taps {
    fv_tensor lse;     /* [rows, H] */
    fv_tensor sums;    /* [1, floats] what the taps of one layer hold, one after another */
    fv_tensor o;       /* [1, H D] */
    fv_score_sum *sum; /* [as many as one layer has] */
} fv_taps;

/* Bytes that fv_taps_cut takes; none when nobody taps. */
size_t fv_taps_bytes(const fv_text_config *cfg, const fv_pass *pass);

fv_status fv_taps_cut(fv_workspace *ws, fv_arena *arena, const fv_text_config *cfg,
                      const fv_pass *pass, fv_taps *out);

/* Where attention of layer l leaves its lse, for `rows` rows; absent when nobody taps the layer. */
fv_tensor fv_taps_lse(const fv_taps *t, const fv_pass *pass, int32_t l, int32_t rows);

/* Behind the layer's attention: its taps are filled. */
fv_status fv_taps_read(const fv_taps *t, fv_backend *be, const fv_pass *pass, int32_t l,
                       const fv_attn_args *attn);

#endif
