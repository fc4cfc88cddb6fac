/* Peer links by NCCL: a non-blocking communicator of two ranks, and a stream of its own.
 *
 * An operation completes in three steps, each detected by poll: NCCL has issued it (the first
 * one connects the ranks, which takes time), the stream has reached the event after it, and
 * for a receive the checksums of its chunks have been copied to the host.
 *
 *     send, recv --> ISSUING --poll: no longer in progress--> ON_STREAM --poll: event--> done
 *
 * ncclCommAbort always ends a communicator: ncclCommDestroy may wait for the other side, and
 * aborting an idle link loses nothing. */
#include "kernels/cuda/nccl.h"

#include <stdlib.h>
#include <string.h>

#include "common/crc32c_join.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/library/nccl_api.h"

enum {
    CHUNKS_MAX = FV_PEER_BYTES_MAX / FV_CRC_CHUNK,
    CTAS_MAX = 4, /* each takes memory for its channel, and an SM during transfers */
};

typedef struct op {
    const void *in; /* the destination of a receive; NULL: a send */
    size_t bytes;
    bool on_stream;
    cudaEvent_t over;
} op;

struct fv_peer {
    const fv_nccl *nccl;
    ncclComm_t comm;
    cudaStream_t stream;
    int number, rank;
    bool joined;
    void *buffer;
    op ring[FV_PEER_DEPTH]; /* the oldest in progress is ring[first] */
    int first, n;
    uint32_t *sums, *sums_home; /* [FV_PEER_DEPTH, CHUNKS_MAX] on the device; pinned on the host */
};

static fv_status nccl_check(void) {
    const fv_nccl *nccl;
    return fv_nccl_load(&nccl);
}

static fv_status failed(const fv_nccl *nccl, ncclComm_t comm, ncclResult_t e, const char *what) {
    const char *why = nccl->last_error(comm);
    return FV_FAIL(FV_EDEVICE, "NCCL: %s in %s%s%s", nccl->words(e), what, why && *why ? ": " : "",
                   why ? why : "");
}

static void nccl_identity(fv_device *dev, uint8_t out[FV_PEER_DEVICE_BYTES]) {
    const fv_cuda *c = dev->impl;
    _Static_assert(sizeof c->uuid == FV_PEER_DEVICE_BYTES, "an identity is a GPU's UUID");
    memcpy(out, c->uuid, sizeof c->uuid);
}

static fv_status nccl_new_id(uint8_t id[FV_PEER_ID_BYTES]) {
    const fv_nccl *nccl;
    ncclUniqueId made;
    _Static_assert(sizeof made == FV_PEER_ID_BYTES, "an id is NCCL's");
    FV_TRY(fv_nccl_load(&nccl));
    ncclResult_t e = nccl->unique_id(&made);
    if (e != ncclSuccess) return failed(nccl, NULL, e, "ncclGetUniqueId");
    memcpy(id, &made, sizeof made);
    return FV_OK;
}

/* ---- open and close -------------------------------------------------------------------- */

static void nccl_close(fv_peer *p) {
    if (!p) return;
    if (p->number >= 0) (void)cudaSetDevice(p->number);
    if (p->comm) (void)p->nccl->abort(p->comm);
    if (p->stream) (void)cudaStreamSynchronize(p->stream); /* nothing touches memory any more */
    if (p->buffer) (void)cudaFreeAsync(p->buffer, p->stream);
    if (p->sums) (void)cudaFreeAsync(p->sums, p->stream);
    for (int i = 0; i < FV_PEER_DEPTH; i++)
        if (p->ring[i].over) (void)cudaEventDestroy(p->ring[i].over);
    if (p->stream) (void)cudaStreamDestroy(p->stream);
    (void)cudaFreeHost(p->sums_home);
    free(p);
}

/* Creates the stream, with the highest priority so that transfers need not wait for the computing
 * stream's products, and the memory. */
static fv_status take_memory(fv_peer *p, size_t buffer_bytes) {
    const size_t sums = (size_t)FV_PEER_DEPTH * CHUNKS_MAX * sizeof *p->sums;
    void *memory;
    int least, greatest;
    FV_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    FV_CUDA(cudaStreamCreateWithPriority(&p->stream, cudaStreamNonBlocking, greatest));
    for (int i = 0; i < FV_PEER_DEPTH; i++)
        FV_CUDA(cudaEventCreateWithFlags(&p->ring[i].over, cudaEventDisableTiming));
    if (buffer_bytes == 0) return FV_OK;
    FV_CUDA(cudaMallocAsync(&p->buffer, buffer_bytes, p->stream));
    FV_CUDA(cudaMallocAsync(&memory, sums, p->stream));
    p->sums = memory;
    FV_CUDA(cudaHostAlloc(&memory, sums, cudaHostAllocDefault));
    p->sums_home = memory;
    return FV_OK;
}

static fv_status join(fv_peer *p, const uint8_t id[FV_PEER_ID_BYTES]) {
    ncclConfig_t config = FV_NCCL_CONFIG;
    ncclUniqueId theirs;
    memcpy(&theirs, id, sizeof theirs);
    config.minCTAs = 1;
    config.maxCTAs = CTAS_MAX;
    ncclResult_t e = p->nccl->init(&p->comm, 2, theirs, p->rank, &config);
    if (e == ncclSuccess || e == ncclInProgress) return FV_OK;
    return failed(p->nccl, NULL, e, "ncclCommInitRankConfig");
}

static fv_status nccl_open(fv_device *dev, const uint8_t id[FV_PEER_ID_BYTES], int rank,
                           size_t buffer_bytes, fv_peer **out) {
    const fv_cuda *c = fv_cuda_of_device(dev);
    const fv_nccl *nccl;
    FV_TRY(fv_nccl_load(&nccl));
    fv_peer *p = calloc(1, sizeof *p);
    if (!p) return FV_FAIL(FV_ENOMEM, "out of memory for a pair");
    p->nccl = nccl;
    p->rank = rank;
    p->number = c->number;
    fv_status st = take_memory(p, buffer_bytes);
    if (st == FV_OK) st = join(p, id);
    if (st == FV_OK)
        *out = p;
    else
        nccl_close(p);
    return st;
}

static void *nccl_buffer(const fv_peer *p) { return p->buffer; }

/* ---- operations ------------------------------------------------------------------------ */

static int place(const fv_peer *p, int i) { return (p->first + i) % FV_PEER_DEPTH; }

/* Whether NCCL is still issuing the last operation; only one may be at a time. */
static bool issuing(const fv_peer *p) { return p->n > 0 && !p->ring[place(p, p->n - 1)].on_stream; }

static fv_status begin(fv_peer *p, bool in, void *data, size_t bytes) {
    const fv_nccl *nccl = p->nccl;
    int peer = 1 - p->rank;
    if (!p->joined || issuing(p) || p->n == FV_PEER_DEPTH)
        return FV_FAIL(FV_EBUSY, "the peer link has no free operation");
    ncclResult_t e = in ? nccl->recv(data, bytes, ncclUint8, peer, p->comm, p->stream)
                        : nccl->send(data, bytes, ncclUint8, peer, p->comm, p->stream);
    if (e != ncclSuccess && e != ncclInProgress)
        return failed(nccl, p->comm, e, in ? "ncclRecv" : "ncclSend");
    op *o = &p->ring[place(p, p->n++)];
    o->in = in ? data : NULL;
    o->bytes = bytes;
    o->on_stream = false;
    return FV_OK;
}

static fv_status nccl_send(fv_peer *p, const void *data, size_t bytes) {
    return begin(p, false, (void *)(uintptr_t)data, bytes);
}

static fv_status nccl_recv(fv_peer *p, void *data, size_t bytes) {
    return begin(p, true, data, bytes);
}

/* Adds, after NCCL's work, checksums of received data and the event that marks completion. */
static fv_status follow(fv_peer *p, int i) {
    op *o = &p->ring[i];
    size_t at = (size_t)i * CHUNKS_MAX;
    if (o->in) {
        FV_TRY(fv_cuda_crc32c_sums(o->in, o->bytes, p->sums + at, p->stream));
        FV_CUDA(cudaMemcpyAsync(p->sums_home + at, p->sums + at,
                                fv_crc_chunks(o->bytes) * sizeof *p->sums, cudaMemcpyDefault,
                                p->stream));
    }
    FV_CUDA(cudaEventRecord(o->over, p->stream));
    o->on_stream = true;
    return FV_OK;
}

static uint32_t join_sums(const uint32_t *sums, size_t bytes) {
    uint32_t crc = 0, shift = fv_crc32c_shift(FV_CRC_CHUNK);
    for (; bytes > FV_CRC_CHUNK; bytes -= FV_CRC_CHUNK) crc = fv_crc32c_times(shift, crc) ^ *sums++;
    return bytes ? fv_crc32c_join(crc, *sums, bytes) : crc;
}

static fv_status nccl_poll(fv_peer *p, fv_peer_news *out) {
    ncclResult_t state;
    *out = (fv_peer_news){.joined = p->joined};
    ncclResult_t e = p->nccl->async_error(p->comm, &state);
    if (e == ncclSuccess) e = state;
    if (e != ncclSuccess && e != ncclInProgress)
        return failed(p->nccl, p->comm, e, p->joined ? "a transfer" : "joining");
    if (e == ncclSuccess) out->joined = p->joined = true;
    if (e == ncclSuccess && issuing(p)) FV_TRY(follow(p, place(p, p->n - 1)));
    op *oldest = &p->ring[p->first];
    if (p->n == 0 || !oldest->on_stream) return FV_OK;
    FV_TRY(fv_cuda_query(oldest->over, &out->done));
    if (!out->done) return FV_OK;
    if (oldest->in)
        out->crc = join_sums(p->sums_home + (size_t)p->first * CHUNKS_MAX, oldest->bytes);
    p->first = place(p, 1);
    p->n--;
    return FV_OK;
}

/* ---- checksums without a link ----------------------------------------------------------- */

static fv_status crc32c_part(fv_cuda *c, const void *data, size_t bytes, uint32_t *out) {
    uint32_t sums[CHUNKS_MAX];
    void *there;
    FV_TRY(fv_cuda_scratch(c, sizeof sums, &there));
    FV_TRY(fv_cuda_crc32c_sums(data, bytes, there, c->stream));
    FV_TRY(fv_cuda_flush(c)); /* within a step the launch is deferred, but the copy is not */
    FV_CUDA(cudaMemcpyAsync(sums, there, fv_crc_chunks(bytes) * sizeof *sums, cudaMemcpyDefault,
                            c->stream));
    FV_CUDA(cudaStreamSynchronize(c->stream));
    *out = join_sums(sums, bytes);
    return FV_OK;
}

static fv_status nccl_crc32c(fv_device *dev, const void *data, size_t bytes, uint32_t *out) {
    uint32_t crc = 0, part;
    const char *at = data;
    for (size_t n; bytes > 0; at += n, bytes -= n) {
        n = bytes < FV_PEER_BYTES_MAX ? bytes : FV_PEER_BYTES_MAX;
        FV_TRY(crc32c_part(fv_cuda_of_device(dev), at, n, &part));
        crc = fv_crc32c_join(crc, part, n);
    }
    *out = crc;
    return FV_OK;
}

const fv_peer_ops fv_cuda_peers = {.name = "nccl",
                                   .check = nccl_check,
                                   .identity = nccl_identity,
                                   .new_id = nccl_new_id,
                                   .open = nccl_open,
                                   .buffer = nccl_buffer,
                                   .send = nccl_send,
                                   .recv = nccl_recv,
                                   .poll = nccl_poll,
                                   .close = nccl_close,
                                   .crc32c = nccl_crc32c};
