#ifndef FOVEA_KERNELS_CUDA_LIBRARY_BLAS_API_H
#define FOVEA_KERNELS_CUDA_LIBRARY_BLAS_API_H

/* The part of cuBLAS's interface that products use, as in versions 11 to 13: many machines have the
 * library, which comes with PyTorch, but not its header. */
#include <cuda_runtime.h>
#include <library_types.h>

typedef struct cublasContext *cublasHandle_t;

typedef enum { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_ALLOC_FAILED = 3 } cublasStatus_t;
typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 } cublasOperation_t;
typedef enum { CUBLAS_GEMM_DEFAULT = -1 } cublasGemmAlgo_t;
typedef enum { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 } cublasComputeType_t;

#endif
