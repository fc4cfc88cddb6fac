#ifndef FOVEA_MODEL_NET_ROPE_H
#define FOVEA_MODEL_NET_ROPE_H

/* Frequencies of the rotary position embedding (RoFormer, arXiv 2104.09864), computed in f32 as in
 * transformers:
 *     f_i = theta^(-2i/D), i < D/2;   angle[p,i] = p f_i;   cos and sin of that
 * Type linear divides every f_i by `factor`. llama3 (Llama 3.1) divides low frequencies only:
 * wavelengths above original/low are scaled, below original/high unchanged, between them
 * interpolated. yarn (arXiv 2309.00071, NTK-by-parts) interpolates by the number of turns that a
 * dimension makes in the original context, from beta_fast to beta_slow. Its attention factor m, by
 * which transformers multiplies cos and sin, is in the scale of the scores,
 *     (m q)(m k) / sqrt(D) = q k m^2 / sqrt(D)
 * so that stored keys and rotations of them are free of it.
 *
 * Ministral 3 multiplies the query of position p by a number that grows with p. Cosines and sines of
 * queries are multiplied by it, as a rotation is linear; keys have tables of their own.
 *
 * M-RoPE (Qwen2-VL, arXiv 2409.12191) divides the frequencies among the coordinates (t, h, w) of a
 * position: angle[p,i] = p[axis_i] f_i. Sections are contiguous: t, then h, then w; or interleaved
 * (Qwen3-VL): t h w t h w ..., until h and w have as many as they need, and t the rest. A rotation
 * is still by a sum of angles, so keys relative to an anchor triple factor like keys relative to an
 * anchor position. Any thread. */
#include "common/rope.h"
#include "model/net/config.h"

/* D even, at most 2 * FV_ROPE_MAX_HALF (config reading has checked that). */
void fv_rope_init(fv_rope *r, const fv_rope_config *cfg, int32_t d_head);

/* Scale by which scores q k are multiplied. */
float fv_attention_scale(const fv_text_config *cfg);

/* Multiplies cosines and sines [rows, half] of queries by 1 + query_beta ln(1 + floor(p /
 * query_span)). */
void fv_rope_scale_queries(const fv_rope_config *cfg, const fv_rope_pos *pos, int32_t rows,
                           int32_t half, float *c, float *s);

/* Returns whether positions have three coordinates. */
bool fv_rope_has_sections(const fv_rope_config *cfg);

#endif
