/* The device of the CUDA backend: memory from the driver's pool, copies and events on the
 * backend's stream, scratch and the staging ring.
 *
 * Memory comes from cudaMallocAsync with a pool that never shrinks: after a warm-up an
 * allocation is a list operation in the driver's library, ordered with the stream, and a pool of
 * our own would be no better. Runs on the thread that owns the backend. */
#include "kernels/cuda/cuda.h"

#include <stdatomic.h>
#include <string.h>

enum { ALIGN = 256, RING_HALF = 4 << 20 };

static const char *_Atomic lost;

const char *fv_cuda_lost(void) { return atomic_load(&lost); }

/* Whether a failure ends the context, which a process cannot recreate. */
static bool is_final(cudaError_t e) {
    switch (e) {
    case cudaErrorECCUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorUnknown: return true;
    default: return false;
    }
}

fv_status fv_cuda_check(cudaError_t e, const char *what) {
    if (e == cudaSuccess) return FV_OK;
    if (is_final(e)) atomic_store(&lost, cudaGetErrorString(e));
    fv_status st = e == cudaErrorMemoryAllocation ? FV_ENOMEM : FV_EDEVICE;
    return FV_FAIL(st, "CUDA: %s (%s) in %s", cudaGetErrorString(e), cudaGetErrorName(e), what);
}

fv_status fv_cuda_launched(const char *kernel) { return fv_cuda_check(cudaGetLastError(), kernel); }

void fv_cuda_enter(const fv_cuda *c) {
    static _Thread_local int here = -1;
    if (here == c->number) return;
    if (cudaSetDevice(c->number) == cudaSuccess) here = c->number;
}

static fv_cuda *of(fv_device *dev) { return fv_cuda_of_device(dev); }

/* ---- the device's table ---------------------------------------------------------------- */

static fv_status cuda_alloc(fv_device *dev, size_t bytes, fv_buf_kind kind, fv_buf *out) {
    fv_cuda *c = of(dev);
    void *p = NULL;
    cudaError_t e = kind == FV_BUF_PINNED ? cudaHostAlloc(&p, bytes, cudaHostAllocDefault)
                                          : cudaMallocAsync(&p, bytes, c->stream);
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError(); /* clears the error, which is reported here */
        return FV_FAIL(FV_ENOMEM, "out of memory: %zu bytes on the GPU", bytes);
    }
    FV_TRY(fv_cuda_check(e, "an allocation"));
    *out = (fv_buf){.data = p, .bytes = bytes, .device = dev, .kind = kind};
    return FV_OK;
}

static void cuda_free(fv_buf *buf) {
    fv_cuda *c = of(buf->device);
    (void)fv_cuda_flush(c); /* deferred launches may use the memory */
    if (buf->kind == FV_BUF_PINNED)
        (void)cudaFreeHost(buf->data); /* waits for work that still uses it */
    else
        (void)cudaFreeAsync(buf->data, c->stream);
}

static fv_status cuda_copy(fv_device *dev, void *dst, const void *src, size_t bytes) {
    if (bytes == 0) return FV_OK;
    return fv_cuda_issue_copy(of(dev), dst, src, bytes);
}

static fv_status cuda_event_record(fv_device *dev, fv_event *ev) {
    FV_TRY(fv_cuda_flush(of(dev)));
    if (!ev->handle) {
        cudaEvent_t e;
        FV_CUDA(cudaEventCreateWithFlags(&e, cudaEventDefault));
        ev->handle = e;
    }
    FV_CUDA(cudaEventRecord(ev->handle, of(dev)->stream));
    return FV_OK;
}

fv_status fv_cuda_query(cudaEvent_t event, bool *reached) {
    cudaError_t e = cudaEventQuery(event);
    *reached = e == cudaSuccess;
    if (e != cudaErrorNotReady) return fv_cuda_check(e, "cudaEventQuery");
    (void)cudaGetLastError(); /* not a failure, and must not be taken for the next launch's */
    return FV_OK;
}

static fv_status cuda_event_query(fv_device *dev, fv_event *ev, bool *reached) {
    (void)of(dev);
    *reached = true;
    return ev->handle ? fv_cuda_query(ev->handle, reached) : FV_OK;
}

static fv_status cuda_event_wait(fv_device *dev, fv_event *ev) {
    (void)of(dev);
    if (ev->handle) FV_CUDA(cudaEventSynchronize(ev->handle));
    return FV_OK;
}

static void cuda_event_free(fv_device *dev, fv_event *ev) {
    (void)dev;
    if (ev->handle) (void)cudaEventDestroy(ev->handle);
    ev->handle = NULL;
}

static fv_status cuda_event_seconds(fv_device *dev, const fv_event *from, const fv_event *to,
                                    double *seconds) {
    float ms;
    (void)of(dev);
    FV_CUDA(cudaEventElapsedTime(&ms, from->handle, to->handle));
    *seconds = (double)ms * 1e-3;
    return FV_OK;
}

/* ---- scratch, staging ------------------------------------------------------------------ */

fv_status fv_cuda_scratch(fv_cuda *c, size_t bytes, void **out) {
    if (bytes > c->scratch.bytes) {
        size_t want = bytes + bytes / 2;
        void *p;
        FV_TRY(fv_cuda_flush(c));
        FV_CUDA(cudaMallocAsync(&p, want, c->stream));
        if (c->scratch.data) FV_CUDA(cudaFreeAsync(c->scratch.data, c->stream));
        c->scratch = (fv_cuda_scratch_buf){p, want};
    }
    *out = c->scratch.data;
    return FV_OK;
}

static void ring_close(fv_cuda *c) {
    fv_cuda_ring *r = &c->ring;
    if (r->device) (void)cudaFreeAsync(r->device, c->stream);
    if (r->host) (void)cudaFreeHost(r->host);
    for (int i = 0; i < 2; i++)
        if (r->read[i]) (void)cudaEventDestroy(r->read[i]);
    *r = (fv_cuda_ring){0};
}

/* Replaces the ring by one with halves of at least `half` bytes. */
static fv_status ring_open(fv_cuda *c, size_t half) {
    if (c->ring.host) FV_CUDA(cudaStreamSynchronize(c->stream));
    ring_close(c);
    fv_cuda_ring *r = &c->ring;
    void *p;
    FV_CUDA(cudaHostAlloc(&p, 2 * half, cudaHostAllocDefault));
    r->host = p;
    FV_CUDA(cudaMallocAsync(&p, 2 * half, c->stream));
    r->device = p;
    for (int i = 0; i < 2; i++)
        FV_CUDA(cudaEventCreateWithFlags(&r->read[i], cudaEventDisableTiming));
    r->half = half;
    return FV_OK;
}

/* Switches to the other half, after the copies out of it are done. Device memory that kernels still
 * read is overwritten only after them, because copies and kernels are on one stream. */
static fv_status ring_turn(fv_cuda *c) {
    fv_cuda_ring *r = &c->ring;
    FV_CUDA(cudaEventRecord(r->read[r->turn], c->stream));
    r->used[r->turn] = true;
    r->turn = 1 - r->turn;
    r->at = 0;
    if (r->used[r->turn]) FV_CUDA(cudaEventSynchronize(r->read[r->turn]));
    return FV_OK;
}

fv_status fv_cuda_stage(fv_cuda *c, size_t bytes, void **host, void **device) {
    FV_TRY(fv_cuda_step_stage(c, bytes, host, device));
    if (*host) return FV_OK;
    FV_TRY(fv_cuda_flush(c)); /* deferred launches may read memory that the ring overwrites */
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (bytes > c->ring.half) FV_TRY(ring_open(c, 2 * bytes));
    if (c->ring.at + bytes > c->ring.half) FV_TRY(ring_turn(c));
    size_t at = (size_t)c->ring.turn * c->ring.half + c->ring.at;
    *host = c->ring.host + at;
    *device = c->ring.device + at;
    c->ring.at += bytes;
    return FV_OK;
}

/* Sends a table in the ring; in a step the tables of a list are sent together, by the flush. */
fv_status fv_cuda_stage_send(fv_cuda *c, const void *host, void *device, size_t bytes) {
    bool rings =
        (const char *)host >= c->ring.host && (const char *)host < c->ring.host + 2 * c->ring.half;
    if (bytes && rings) FV_CUDA(cudaMemcpyAsync(device, host, bytes, cudaMemcpyDefault, c->stream));
    return FV_OK;
}

fv_status fv_cuda_stage_copy(fv_cuda *c, const void *from, size_t bytes, void **device) {
    void *host;
    FV_TRY(fv_cuda_stage(c, bytes, &host, device));
    if (bytes) memcpy(host, from, bytes);
    return fv_cuda_stage_send(c, host, *device, bytes);
}

/* ---- open, close ----------------------------------------------------------------------- */

/* Makes the pool keep freed memory. */
static fv_status keep_memory(int number) {
    cudaMemPool_t pool;
    uint64_t all = UINT64_MAX;
    FV_CUDA(cudaDeviceGetDefaultMemPool(&pool, number));
    FV_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
    return FV_OK;
}

fv_status fv_cuda_device_open(fv_cuda *c) {
    static const fv_device_ops ops = {
        .name = "cuda",
        .alloc = cuda_alloc,
        .free = cuda_free,
        .copy_async = cuda_copy,
        .move_rows = fv_cuda_move_rows,
        .event_record = cuda_event_record,
        .event_query = cuda_event_query,
        .event_wait = cuda_event_wait,
        .event_free = cuda_event_free,
        .event_seconds = cuda_event_seconds,
    };
    c->device = (fv_device){.ops = &ops, .impl = c};
    fv_cuda_enter(c);
    FV_TRY(keep_memory(c->number));
    FV_CUDA(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking));
    return ring_open(c, RING_HALF);
}

void fv_cuda_device_close(fv_cuda *c) {
    if (!c->stream) return;
    fv_cuda_step_close(c);
    ring_close(c);
    if (c->scratch.data) (void)cudaFreeAsync(c->scratch.data, c->stream);
    (void)cudaStreamSynchronize(c->stream);
    (void)cudaStreamDestroy(c->stream);
}
