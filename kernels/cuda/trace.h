#ifndef FOVEA_KERNELS_CUDA_TRACE_H
#define FOVEA_KERNELS_CUDA_TRACE_H

/* TRACE: a GPU's time by kernel, as a table in a file (fv_backend_options.trace). */
#include <cuda_runtime.h>

#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Begins one: FV_EIO, the file cannot be written; FV_EBUSY, there is one in this process. */
fv_status fv_cuda_trace_start(const char *path);
bool fv_cuda_is_traced(void);

/* On either side of what is issued on the stream; `name` is not copied. Give to `end` what `begin`
 * returned. Nothing happens without a trace. Any thread. */
int fv_cuda_trace_begin(const char *name, cudaStream_t stream);
void fv_cuda_trace_end(int span, cudaStream_t stream);

/* Writes the table, longest time first. While the device is still open. */
void fv_cuda_trace_stop(void);

#ifdef __cplusplus
}
#endif
#endif
