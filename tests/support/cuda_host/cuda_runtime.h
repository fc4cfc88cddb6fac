#ifndef FOVEA_TESTS_SUPPORT_CUDA_HOST_CUDA_RUNTIME_H
#define FOVEA_TESTS_SUPPORT_CUDA_HOST_CUDA_RUNTIME_H

/* CUDA's runtime as far as kernels/cuda/ uses it, on the CPU: this folder precedes the toolkit's in
 * the include path of the emulated plugin, so that its sources compile unchanged with a C and a C++
 * compiler. README.md says what runs that way and what it proves.
 *
 * Streams are lazy on purpose: an operation is kept with its arguments and runs when somebody
 * waits. So host memory that was freed or overwritten too early is detected. Threads alternate, a
 * call at a time. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorECCUncorrectable = 214,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchTimeout = 702,
    cudaErrorContextIsDestroyed = 709,
    cudaErrorAssert = 710,
    cudaErrorHardwareStackError = 714,
    cudaErrorIllegalInstruction = 715,
    cudaErrorMisalignedAddress = 716,
    cudaErrorInvalidAddressSpace = 717,
    cudaErrorInvalidPc = 718,
    cudaErrorLaunchFailure = 719,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorUnknown = 999,
} cudaError_t;

typedef struct fv_emu_stream *cudaStream_t;
typedef struct fv_emu_event *cudaEvent_t;
typedef struct fv_emu_pool *cudaMemPool_t;
typedef struct fv_emu_graph *cudaGraph_t;
typedef struct fv_emu_graph *cudaGraphExec_t;

enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
enum {
    cudaStreamNonBlocking = 1,
    cudaEventDefault = 0,
    cudaEventDisableTiming = 2,
    cudaHostAllocDefault = 0
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
enum cudaMemoryType {
    cudaMemoryTypeUnregistered = 0,
    cudaMemoryTypeHost = 1,
    cudaMemoryTypeDevice = 2,
};
enum cudaMemPoolAttr { cudaMemPoolAttrReleaseThreshold = 4 };

typedef struct cudaUUID_st {
    char bytes[16];
} cudaUUID_t;

struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    size_t totalGlobalMem, sharedMemPerBlockOptin;
    int major, minor, multiProcessorCount, l2CacheSize;
};

struct cudaFuncAttributes {
    size_t sharedSizeBytes;
    int maxDynamicSharedSizeBytes;
};

struct cudaPointerAttributes {
    enum cudaMemoryType type;
};

cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorString(cudaError_t e);
const char *cudaGetErrorName(cudaError_t e);

cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaMallocAsync(void **p, size_t bytes, cudaStream_t s);
cudaError_t cudaFreeAsync(void *p, cudaStream_t s);
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr, void *value);

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t s);
cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t s);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventQuery(cudaEvent_t e);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaEventDestroy(cudaEvent_t e);

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

/* For tests only: graphs launched so far, a device that makes none, streams of the highest priority
 * made so far, and launches of kernels with `part` in their name. */
uint64_t fv_emu_launches(const char *part);
uint64_t fv_emu_graphs_launched(void);
void fv_emu_refuse_graphs(bool refuse);
uint64_t fv_emu_urgent_streams(void);

#ifdef __cplusplus
}
#include "kernel.h"

/* Launches a kernel registered with fv_emu::know. */
cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                             cudaStream_t s);
#endif
#endif
