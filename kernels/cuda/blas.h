#ifndef FOVEA_KERNELS_CUDA_BLAS_H
#define FOVEA_KERNELS_CUDA_BLAS_H

/* Products by cuBLAS. The library is opened when a device is found, not when the plugin is loaded: it
 * takes half a gigabyte, which machines without a GPU do not need. */
#include <cuda_runtime.h>

#include "common/status.h"
#include "kernels/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fv_blas fv_blas;

/* Workspace in bytes. A kernel that splits K, and sums the pieces in an order that depends on the number of rows, needs
 * one that grows with the product: with LITTLE most of those are not taken. */
enum { FV_BLAS_LITTLE = 128 << 10, FV_BLAS_MUCH = 32 << 20 };

/* FV_EUNSUPPORTED names the library that cannot be loaded. */
fv_status fv_blas_open(cudaStream_t stream, size_t workspace, fv_blas **out);
void fv_blas_close(fv_blas *b); /* NULL is fine */

/* y = x w^T + beta y      x [M, K] and w [N, K] of one dtype, y [M, N] F32; sums are F32, F32
 * products are not rounded (no TF32). All sizes at least 1. The order of sums is the library's
 * own and depends on the shape: a row in a batch may get other bits than alone. */
fv_status fv_blas_gemm(fv_blas *b, const fv_tensor *x, const fv_tensor *w, const fv_tensor *y,
                       float beta);

/* y = x w      x [M, K], w [K, N], y [M, N], all F32; likewise. */
fv_status fv_blas_matmul_nn(fv_blas *b, const fv_tensor *x, const fv_tensor *w, const fv_tensor *y);

/* y = x x^T    x [M, K], y [M, M], F32; products in TF32, which holds bf16 exactly. */
fv_status fv_blas_gram(fv_blas *b, const fv_tensor *x, const fv_tensor *y);

#ifdef __cplusplus
}
#endif
#endif
