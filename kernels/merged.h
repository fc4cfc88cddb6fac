#ifndef FOVEA_KERNELS_MERGED_H
#define FOVEA_KERNELS_MERGED_H

/* MERGED ROWS: visual keys or values of two layers that share their directions (MiniCache, arXiv
 * 2405.14366; ops.h: attn_merged). Per row j and KV head g, with m1, m2 [D] those of the two
 * layers, u = m / ||m||, and W the angle between u1 and u2:
 *
 *     e = (sin((1 - t) W) u1 + sin(t W) u2) / sin W       SLERP; (1 - t) u1 + t u2 where sin W ~ 0
 *     m1 ~= ||m1|| e,  m2 ~= ||m2|| e
 *     m1, m2 of type `dtype` instead where W > W_max - gamma (W_max - W_min)
 *
 * over all rows and heads: none are kept with gamma = 0, all but the most alike with gamma = 1.
 *
 * A vector of zeros has no direction: e is the other's then, W counts as 0, and both come back.
 * Opposite ones (W = pi) lie on no arc: the straight line between them leads through 0.
 *
 * Directions lie with the first layer, of the KV type, as codes lie (codes.h: `code` has elements);
 * norms with each layer, F32, [Hkv, tiles * 16], and so do vectors that are kept, as outliers whose
 * `channel` is their head. Direction and norm in their place are 0. Keys are merged rotated by
 * their distance to their row's anchor (packed_part.h); MiniCache has them before rotation.
 *
 * Which vectors are kept is what the paper's text says, the least alike: its inequality can be read
 * both ways, and the code that is public (xKV) keeps the most alike.
 *
 * Pure functions of any thread. */
#include "kernels/packed_part.h"

#ifdef __cplusplus
extern "C" {
#endif

/* kept[n * Hkv]: 1 where the vectors of row j and head g, at j * Hkv + g, stay as they are.
 * m [2][n, Hkv * D] of the two layers. Returns how many do. */
int32_t fv_merged_keep(const fv_packed_shape *s, const float *const m[2], double gamma,
                       uint8_t *kept);

/* Writes both layers' parts: data[i] of fv_packed_bytes(&s[i]) bytes on the host, s[1].borrows, and
 * n_outlier as many as are kept. The same numbers give the same bytes; padding becomes 0.
 * error[i]: ||M - M~|| / ||M|| of each, M~ what the bytes stand for; 0 of zeros. FV_EINVAL when a
 * number is not finite, a vector longer than F32 holds, or one that is kept not in `dtype`. */
fv_status fv_merged_write(const fv_packed_shape s[2], const float *const m[2], double t,
                          const uint8_t *kept, void *const data[2], double error[2]);

#ifdef __cplusplus
}
#endif
#endif
