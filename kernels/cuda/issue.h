#ifndef FOVEA_KERNELS_CUDA_ISSUE_H
#define FOVEA_KERNELS_CUDA_ISSUE_H

/* ISSUING: what operations want done on the backend's stream. At once, or in a step (ops.h:
 * step_begin) held back, some dozens of launches at a time, and given to the device together: as a
 * CUDA graph when the same has been issued before.
 *
 *   launch, product, copy --> list --flush--> seen before?  no: each by itself
 *                                                           a second time: recorded as a graph
 *                                                           again: that graph
 *
 * "The same" is every byte: kernels, grids, and all their arguments, addresses among them. So a
 * graph never holds an address that the step it runs in would not have used. What differs from step
 * to step (lengths, addresses of KV blocks, ids) are contents of tables, which cross ahead of the
 * list into memory of a fixed address, and sizes that grants and grids are derived from are rounded
 * up (fv_cuda_round). A batch that grows or shrinks has other arguments and so graphs of its own,
 * one set per number of rows; so does a cache that outgrows what its tables were rounded to.
 *
 * Lists are short so that the device works while the host prepares the next. C and C++. */
#include <cuda_runtime.h>

#include "common/status.h"
#include "kernels/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fv_cuda fv_cuda;

/* A list's staged tables: host memory that is filled, and device memory of the same address in
 * every step. */
typedef struct fv_cuda_slot {
    char *host, *device; /* [capacity]; host is pinned */
    size_t capacity;
    cudaEvent_t read; /* the device has read the host's */
    bool used;
    uint64_t seen; /* digest of the list that was issued here last */
} fv_cuda_slot;

typedef struct fv_cuda_graph {
    cudaGraphExec_t exec;
    char *list; /* [bytes] what it does */
    size_t bytes;
    uint64_t digest, last; /* of the list; when it ran last */
} fv_cuda_graph;

enum { FV_CUDA_GRAPHS = 512, FV_CUDA_SLOTS = 64, FV_CUDA_STEP_ROWS = 256 };

typedef struct fv_cuda_step {
    bool open;        /* in a step: what is issued is held back */
    bool refused;     /* graphs cannot be made here */
    fv_status failed; /* what became of a list that was issued on the way */
    char *list;       /* [bytes] capacity */
    size_t bytes, capacity;
    int32_t n_held;
    fv_cuda_slot slot[FV_CUDA_SLOTS];
    int32_t at; /* the present slot */
    size_t staged;
    fv_cuda_graph graph[FV_CUDA_GRAPHS];
    int32_t n_graph;
    uint64_t now, n_replayed, n_plain; /* lists so far */
} fv_cuda_step;

/* A launch; `arg` are addresses of its arguments, `size` their bytes, padding cleared. */
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

/* Launches, or holds back where the stream is in a step. cudaGetLastError has what became of it. */
void fv_cuda_issue(const fv_cuda_launch *l);

/* A product of cuBLAS (blas.h), and a copy between any two memories. */
fv_status fv_cuda_issue_gemm(fv_cuda *c, const fv_tensor *x, const fv_tensor *w, const fv_tensor *y,
                             float beta);
fv_status fv_cuda_issue_copy(fv_cuda *c, void *dst, const void *src, size_t bytes);

/* Issues what was deferred. Call it before any other use of the stream, and before memory is freed
 * that a deferred launch may use. */
fv_status fv_cuda_flush(fv_cuda *c);

/* fv_cuda_stage in a step; *host NULL: no step, or too large. */
fv_status fv_cuda_step_stage(fv_cuda *c, size_t bytes, void **host, void **device);

fv_status fv_cuda_step_begin(fv_cuda *c, int32_t rows);
fv_status fv_cuda_step_end(fv_cuda *c);
void fv_cuda_step_close(fv_cuda *c);

/* n rounded up to a number of which there are four to each doubling. */
static inline int64_t fv_cuda_round(int64_t n) {
    int64_t unit = 1;
    while (n > 8 * unit) unit *= 2;
    return (n + unit - 1) / unit * unit;
}

#ifdef __cplusplus
}
#endif
#endif
