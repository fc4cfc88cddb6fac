#ifndef FOVEA_KERNELS_CUDA_CUDA_H
#define FOVEA_KERNELS_CUDA_CUDA_H

/* The state of the CUDA backend, and helpers of its operations. C and C++; no other folder
 * includes it.
 *
 * All operations and copies are issued on one stream, in the order of the calls: memory may be
 * freed and reused at once. Activations are F32. An operation returns when it has been
 * issued; its inputs on the host (tables of addresses, ids) are copied into a staging ring
 * first, so the caller's memory is free on return. Within a step, issuing may be deferred
 * (issue.h): code that uses the stream itself flushes first. */
#include <cuda_runtime.h>

#include "common/buf.h"
#include "common/status.h"
#include "kernels/cuda/blas.h"
#include "kernels/cuda/issue.h"
#include "kernels/cuda/trace.h"
#include "kernels/ops.h"
#include "kernels/tier.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Memory that grows to the largest size needed so far. */
typedef struct fv_cuda_scratch_buf {
    void *data;
    size_t bytes;
} fv_cuda_scratch_buf;

/* Host memory in two halves that are filled in turn, and as much on the device. */
typedef struct fv_cuda_ring {
    char *host, *device; /* [2 * half]; host is pinned */
    size_t half, at;     /* bytes of a half; bytes used of the current one */
    int turn;            /* the current half */
    cudaEvent_t read[2]; /* the device has read this half of host */
    bool used[2];
} fv_cuda_ring;

enum { FV_CUDA_RAISED = 64 };

struct fv_cuda {
    fv_device device; /* its address is fv_backend's device */
    cudaStream_t stream;
    int number, n_sm;
    size_t shared_max; /* bytes of shared memory that a block may ask for */
    fv_tier tier;      /* kernels/tier.h */
    bool exact;        /* its tier is: every product in the canonical order */
    fv_blas *blas;     /* NULL when exact */
    fv_cuda_scratch_buf scratch;
    fv_cuda_ring ring;
    fv_cuda_step step;
    const void *raised[FV_CUDA_RAISED]; /* [n_raised] kernels whose shared memory is shared_max */
    int32_t n_raised;
    bool traces;      /* this backend has started the trace */
    uint8_t uuid[16]; /* of the GPU */
    struct fv_cuda
        *side; /* owned; another stream of the device, with its own state; NULL at first */
};

/* Makes the backend's GPU the current device of this thread, the only one to which CUDA issues its
 * launches and events. Every entry into the plugin calls this. A failure shows in the next call to
 * CUDA. */
void fv_cuda_enter(const fv_cuda *c);

static inline fv_cuda *fv_cuda_of(fv_backend *be) {
    fv_cuda *c = (fv_cuda *)be->impl;
    if (c) fv_cuda_enter(c);
    return c;
}

static inline fv_cuda *fv_cuda_of_device(fv_device *dev) {
    fv_cuda *c = (fv_cuda *)dev->impl;
    fv_cuda_enter(c);
    return c;
}

/* FV_EDEVICE with CUDA's own message for a call that failed. Remembers failures (an illegal address, a
 * memory error) after which every later call of the process fails too: see fv_cuda_lost. */
fv_status fv_cuda_check(cudaError_t e, const char *what);

/* The failure after which nothing runs on a GPU in this process; NULL: none. Any thread. */
const char *fv_cuda_lost(void);
#define FV_CUDA(call) FV_TRY(fv_cuda_check((call), #call))

/* Whether the device has reached an event; FV_OK in either case. */
fv_status fv_cuda_query(cudaEvent_t event, bool *reached);

/* The status of the launches since the last check. */
fv_status fv_cuda_launched(const char *kernel);

/* Blocks for n items at `each` per block; at least 1. */
static inline unsigned fv_cuda_blocks(int64_t n, int64_t each) {
    return n <= 0 ? 1 : (unsigned)((n + each - 1) / each);
}

/* Compares products of few and of many rows, bit for bit (invariance.c): *same tells whether a row's bits are those that
 * it has alone, `what` names the first product that differs. */
fv_status fv_cuda_compare_products(fv_backend *be, bool *same, char what[64]);

/* ---- memory (device.c) ----------------------------------------------------------------- */

fv_status fv_cuda_device_open(fv_cuda *c);
void fv_cuda_device_close(fv_cuda *c);

/* Gives at least `bytes` of device memory, aligned to 256, contents undefined; valid until the next
 * operation calls this. Once per operation. */
fv_status fv_cuda_scratch(fv_cuda *c, size_t bytes, void **out);

/* Memory for an operation's tables, aligned to 256 bytes, once per operation: fill *host, send
 * it, and pass *device to the kernels. The host's memory is free on return; the device's is valid
 * until the next operation stages. */
fv_status fv_cuda_stage(fv_cuda *c, size_t bytes, void **host, void **device);
fv_status fv_cuda_stage_send(fv_cuda *c, const void *host, void *device, size_t bytes);

/* Stages and sends a copy of an array on the host. */
fv_status fv_cuda_stage_copy(fv_cuda *c, const void *from, size_t bytes, void **device);

/* fv_device_ops.move_rows (move_rows.cu). Rows have an even number of bytes. */
fv_status fv_cuda_move_rows(fv_device *dev, const fv_row_moves *rows);

/* ---- operations ------------------------------------------------------------------------ */

/* fv_cuda_<name>, each in <name>.cu; attention's is in attention.c, attn_lowrank's in packed.c. */
#define FV_OP(name, args) fv_status fv_cuda_##name(fv_backend *be, const args *a);
#include "kernels/ops.def"
fv_status fv_cuda_factorise(fv_backend *be, fv_factor_task *tasks, int32_t n); /* factor.c */

/* syrk with its result on the device: the part of g [M, M] on and below the diagonal. */
fv_status fv_cuda_syrk_there(fv_cuda *c, const fv_tensor *x, double *g); /* syrk.cu */

#ifdef __cplusplus
}
#endif
#endif
