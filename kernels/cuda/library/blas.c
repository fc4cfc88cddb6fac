/* cuBLAS through dlopen. */
#include "kernels/cuda/blas.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "kernels/cuda/library/blas_api.h"
#include "kernels/cuda/library/library.h"

struct fv_blas {
    void *library;
    cublasHandle_t handle;
    void *workspace;
    cublasStatus_t (*create)(cublasHandle_t *);
    cublasStatus_t (*destroy)(cublasHandle_t);
    cublasStatus_t (*set_stream)(cublasHandle_t, cudaStream_t);
    cublasStatus_t (*set_workspace)(cublasHandle_t, void *, size_t);
    cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                           const void *, const void *, cudaDataType, int, const void *,
                           cudaDataType, int, const void *, void *, cudaDataType, int,
                           cublasComputeType_t, cublasGemmAlgo_t);
    const char *(*words)(cublasStatus_t);
};

/* Finds a function; POSIX allows data pointers to hold functions. */
static bool find(fv_blas *b, const char *name, void *into) {
    *(void **)into = dlsym(b->library, name);
    return *(void **)into != NULL;
}

static fv_status load(fv_blas *b) {
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so", NULL};
    b->library = fv_cuda_library(names);
    if (!b->library)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "cannot load cuBLAS (%s): put its folder on LD_LIBRARY_PATH, or do without "
                       "by --isa exact",
                       dlerror());
    if (find(b, "cublasCreate_v2", &b->create) && find(b, "cublasDestroy_v2", &b->destroy) &&
        find(b, "cublasSetStream_v2", &b->set_stream) &&
        find(b, "cublasSetWorkspace_v2", &b->set_workspace) && find(b, "cublasGemmEx", &b->gemm) &&
        find(b, "cublasGetStatusString", &b->words))
        return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED, "this cuBLAS lacks functions: %s", dlerror());
}

static fv_status check(const fv_blas *b, cublasStatus_t s, const char *what) {
    if (s == CUBLAS_STATUS_SUCCESS) return FV_OK;
    return FV_FAIL(s == CUBLAS_STATUS_ALLOC_FAILED ? FV_ENOMEM : FV_EDEVICE, "cuBLAS: %s in %s",
                   b->words(s), what);
}

/* Gives cuBLAS a workspace of fixed address and size, so that a product in a graph (issue.h) finds the
 * workspace it was recorded with, and sums in the same order. */
static fv_status give_workspace(fv_blas *b, size_t bytes) {
    if (cudaMalloc(&b->workspace, bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        return FV_FAIL(FV_ENOMEM, "out of memory: %zu bytes for cuBLAS", bytes);
    }
    return check(b, b->set_workspace(b->handle, b->workspace, bytes), "cublasSetWorkspace");
}

fv_status fv_blas_open(cudaStream_t stream, size_t workspace, fv_blas **out) {
    fv_blas *b = calloc(1, sizeof *b);
    if (!b) return FV_FAIL(FV_ENOMEM, "out of memory for cuBLAS");
    fv_status st = load(b);
    if (st == FV_OK) st = check(b, b->create(&b->handle), "cublasCreate");
    if (st == FV_OK) st = check(b, b->set_stream(b->handle, stream), "cublasSetStream");
    if (st == FV_OK) st = give_workspace(b, workspace);
    if (st == FV_OK)
        *out = b;
    else
        fv_blas_close(b);
    return st;
}

void fv_blas_close(fv_blas *b) {
    if (!b) return;
    if (b->handle) (void)b->destroy(b->handle);
    if (b->workspace) (void)cudaFree(b->workspace);
    free(b); /* the library stays loaded, as its threads may be running */
}

static cudaDataType type_of(fv_dtype t) {
    return t == FV_F32 ? CUDA_R_32F : t == FV_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

/* Computes y^T [N, M] = w' x^T [K, M], because cuBLAS matrices are column-major; w' [N, K] is w or, by
 * `op`, its transpose. */
static fv_status product(fv_blas *b, cublasOperation_t op, cublasComputeType_t compute,
                         const fv_tensor *x, const fv_tensor *w, const fv_tensor *y, float beta) {
    const float one = 1.0f;
    cudaDataType t = type_of(x->dtype);
    return check(b,
                 b->gemm(b->handle, op, CUBLAS_OP_N, y->cols, x->rows, x->cols, &one, w->data, t,
                         w->ld, x->data, t, x->ld, &beta, y->data, CUDA_R_32F, y->ld, compute,
                         CUBLAS_GEMM_DEFAULT),
                 "cublasGemmEx");
}

fv_status fv_blas_gemm(fv_blas *b, const fv_tensor *x, const fv_tensor *w, const fv_tensor *y,
                       float beta) {
    return product(b, CUBLAS_OP_T, CUBLAS_COMPUTE_32F, x, w, y, beta);
}

fv_status fv_blas_matmul_nn(fv_blas *b, const fv_tensor *x, const fv_tensor *w,
                            const fv_tensor *y) {
    return product(b, CUBLAS_OP_N, CUBLAS_COMPUTE_32F, x, w, y, 0.0f);
}

fv_status fv_blas_gram(fv_blas *b, const fv_tensor *x, const fv_tensor *y) {
    return product(b, CUBLAS_OP_T, CUBLAS_COMPUTE_32F_FAST_TF32, x, x, y, 0.0f);
}
