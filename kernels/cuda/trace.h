#ifndef FOVEA_KERNELS_CUDA_TRACE_H
#define FOVEA_KERNELS_CUDA_TRACE_H

/* TRACE: a GPU's time by kernel, as a table in a file (fv_backend_options.trace). */
#include <cuda_runtime.h>

#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Begins a trace. FV_EIO: the file cannot be written; FV_EBUSY: this process already has a trace. */
fv_status fv_cuda_trace_start(const char *path);
bool fv_cuda_is_traced(void);

/* Call begin before, and end after, issuing work on the stream; `name` is not copied. `span` is begin's
 * result. Both do nothing without a trace. Any thread. */
int fv_cuda_trace_begin(const char *name, cudaStream_t stream);
void fv_cuda_trace_end(int span, cudaStream_t stream);

/* Writes the table, longest time first. Call it while the device is still open. */
void fv_cuda_trace_stop(void);

#ifdef __cplusplus
}
#endif
#endif
