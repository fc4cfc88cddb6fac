#ifndef FOVEA_KERNELS_NUMBER_TABLES_H
#define FOVEA_KERNELS_NUMBER_TABLES_H

/* The numbers that codes of 4 and 8 bits stand for: tables for fv_quant (kernels/tensor.h). Every number is
 * exact in f32, and but for those of NF4 in bf16. */

/* FP8 E4M3 as in the OCP specification of 8-bit floating point, without infinities; 0x7f and 0xff are NaN. */
extern const float fv_e4m3[256];

/* FP4 E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives (OCP microscaling formats). */
extern const float fv_e2m1[16];

/* The same for the codes of a byte, of which the lower half counts. */
extern const float fv_e2m1_bytes[256];

/* NF4: quantiles of the normal distribution, scaled to [-1, 1] (QLoRA, arXiv 2305.14314). */
extern const float fv_nf4[16];

#endif
