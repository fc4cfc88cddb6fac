#ifndef FOVEA_COMMON_ROPE_H
#define FOVEA_COMMON_ROPE_H

/* ROTARY ANGLES: the frequencies of a network (model/net/rope.h makes them from its config), and the
 * angles at given positions. libc only; any thread. */
#include <stdint.h>

#include "common/rope_map.h"

enum { FV_ROPE_MAX_HALF = 512 };

typedef struct fv_rope {
    int32_t half; /* D / 2 */
    float freq[FV_ROPE_MAX_HALF];
    uint8_t axis[FV_ROPE_MAX_HALF]; /* 0 t, 1 h, 2 w; all 0 without sections */
} fv_rope;

/* cos, sin [n, D/2] for positions pos[n], in f32. */
void fv_rope_angles(const fv_rope *r, const fv_rope_pos *pos, int32_t n, float *cos_out,
                    float *sin_out);

#endif
