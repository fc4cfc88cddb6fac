#ifndef FOVEA_KERNELS_CUDA_ISSUE_H
#define FOVEA_KERNELS_CUDA_ISSUE_H

/* ISSUING the operations' work on the backend's stream: at once, or in a step (ops.h: step_begin)
 * deferred in lists of some dozens of launches, each issued as a CUDA graph if the same list has been
 * issued before.
 *
 *   launch, product, copy --> list --flush--> seen before?  no: each by itself
 *                                                           a second time: recorded as a graph
 *                                                           again: that graph
 *
 * "The same" means every byte: kernels, grids, and all their arguments, addresses included. So a
 * graph never holds an address that the current step would not have used. Data that differ from step
 * to step (lengths, addresses of KV blocks, ids) are in tables, which are copied ahead of the list to
 * memory of a fixed address; sizes of tables and grids are rounded up (fv_cuda_round). A batch that
 * grows or shrinks has other arguments and so graphs of its own, one set per number of rows; so does
 * a cache that outgrows the rounded size of its tables.
 *
 * Lists are short so that the device works while the host prepares the next one. C and C++. */
#include <cuda_runtime.h>

#include "common/status.h"
#include "kernels/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fv_cuda fv_cuda;

/* A list's staged tables: host memory to fill, and device memory with the same address in every
 * step. */
typedef struct fv_cuda_slot {
    char *host, *device; /* [capacity]; host is pinned */
    size_t capacity;
    cudaEvent_t read; /* the device has read `host` */
    bool used;
    uint64_t seen; /* digest of the list last issued with this slot */
} fv_cuda_slot;

typedef struct fv_cuda_graph {
    cudaGraphExec_t exec;
    char *list; /* [bytes] the list it was recorded from */
    size_t bytes;
    uint64_t digest, last; /* of the list; when the graph ran last */
} fv_cuda_graph;

enum { FV_CUDA_GRAPHS = 512, FV_CUDA_SLOTS = 64, FV_CUDA_STEP_ROWS = 256 };

typedef struct fv_cuda_step {
    bool open;        /* in a step: work is deferred */
    bool refused;     /* recording failed: makes no more graphs */
    fv_status failed; /* status of lists issued before the step's end */
    char *list;       /* [bytes] of `capacity` */
    size_t bytes, capacity;
    int32_t n_held;
    fv_cuda_slot slot[FV_CUDA_SLOTS];
    int32_t at; /* the current slot */
    size_t staged;
    fv_cuda_graph graph[FV_CUDA_GRAPHS];
    int32_t n_graph;
    uint64_t now, n_replayed, n_plain; /* lists so far */
} fv_cuda_step;

/* A launch; `arg`: addresses of its arguments, `size`: their bytes, padding cleared. */
typedef struct fv_cuda_launch {
    const char *name;
    const void *kernel;
    uint32_t grid[3], block[3];
    size_t shared;
    cudaStream_t stream;
    uint32_t n_arg;
    void **arg;
    const uint32_t *size;
} fv_cuda_launch;

/* Launches, or defers if the stream is in a step. cudaGetLastError returns the result. */
void fv_cuda_issue(const fv_cuda_launch *l);

/* A product of cuBLAS (blas.h), and a copy between any two memories. */
fv_status fv_cuda_issue_gemm(fv_cuda *c, const fv_tensor *x, const fv_tensor *w, const fv_tensor *y,
                             float beta);
fv_status fv_cuda_issue_copy(fv_cuda *c, void *dst, const void *src, size_t bytes);

/* Issues deferred work. Call it before any other use of the stream, and before freeing memory that a
 * deferred launch may use. */
fv_status fv_cuda_flush(fv_cuda *c);

/* fv_cuda_stage in a step; *host is NULL without a step, or if the table is too large. */
fv_status fv_cuda_step_stage(fv_cuda *c, size_t bytes, void **host, void **device);

fv_status fv_cuda_step_begin(fv_cuda *c, int32_t rows);
fv_status fv_cuda_step_end(fv_cuda *c);
void fv_cuda_step_close(fv_cuda *c);

/* n rounded up to one of four sizes per doubling. */
static inline int64_t fv_cuda_round(int64_t n) {
    int64_t unit = 1;
    while (n > 8 * unit) unit *= 2;
    return (n + unit - 1) / unit * unit;
}

#ifdef __cplusplus
}
#endif
#endif
