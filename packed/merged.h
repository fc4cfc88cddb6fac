#ifndef FOVEA_PACKED_MERGED_H
#define FOVEA_PACKED_MERGED_H

/* DEPTH-MERGED KV: visual keys or values of two layers that share their directions (MiniCache,
 * arXiv 2405.14366; ops.h: attn_merged). Per token j and KV head g, with m1, m2 [D] those of the
 * two layers, u = m / ||m||, and W the angle between u1 and u2:
 *
 *     e = (sin((1 - t) W) u1 + sin(t W) u2) / sin W       SLERP; (1 - t) u1 + t u2 where sin W ~ 0
 *     m1 ~= ||m1|| e,  m2 ~= ||m2|| e
 *     m1, m2 of type `dtype` instead where W > W_max - gamma (W_max - W_min)
 *
 * W_max and W_min over all tokens and heads: none are stored exactly with gamma = 0, all but the most
 * alike with gamma = 1.
 *
 * A vector of zeros has no direction: then e is that of the other vector, W counts as 0, and both are
 * restored. Opposite vectors (W = pi) have no arc: the straight line between them leads through 0.
 *
 * Directions are stored with the first layer, in the KV type, in the layout of codes (codes.h:
 * `code` has elements). Each layer has its norms, F32, [Hkv, tiles * 16], and its exact vectors, as
 * outliers whose `channel` is their head; direction and norm in their place are 0. Keys are merged
 * rotated by their distance to their token's anchor (part.h); MiniCache merges them before
 * rotation.
 *
 * The least alike vectors are stored exactly, as the paper's text says: its inequality can be read
 * both ways, and the public code (xKV) stores the most alike.
 *
 * Pure functions; any thread. */
#include "packed/forms.h"

/* Sets kept[j * Hkv + g] to 1 where the vectors of row j and head g are stored exactly; returns how many.
 * m [2][n, Hkv * D]: the two layers. */
int32_t fv_merged_keep(const fv_packed_shape *s, const float *const m[2], double gamma,
                       uint8_t *kept);

/* Writes both layers' blocks: data[i] of fv_packed_bytes(&s[i]) bytes on the host, s[1].borrows,
 * and n_exact the number of exact vectors. The same numbers give the same bytes; padding is 0.
 * error[i]: ||M - M~|| / ||M|| of each, M~ the decoded matrix; 0 for zeros. FV_EINVAL when a number
 * is not finite, a vector's norm exceeds F32, or an exact one is not representable in `dtype`. */
fv_status fv_merged_write(const fv_packed_shape s[2], const float *const m[2], double t,
                          const uint8_t *kept, void *const data[2], double error[2]);

#endif
