/* The CUDA backend's table, and the plugin's entry point.
 *
 * An operation checks dtypes and shapes next to its launcher, and returns when it has been
 * issued on the backend's one stream. Weights are uploaded as stored. Activations are F32: sums,
 * residuals and attention's inputs keep the CPU's bits, so that the two can be compared,
 * and they are only a few percent of the bytes read in a step, which are mostly weights and KV;
 * where a product runs on tensor cores its x is rounded to the weights' type on load. */
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/nccl.h"
#include "kernels/plugin.h"

static void close_state(fv_cuda *c) {
    if (!c) return;
    close_state(c->side);
    fv_cuda_enter(c);
    if (c->stream) (void)cudaStreamSynchronize(c->stream);
    if (c->traces) fv_cuda_trace_stop();
    fv_blas_close(c->blas);
    fv_cuda_device_close(c);
    free(c);
}

static void cuda_close(fv_backend *be) { close_state(fv_cuda_of(be)); }

/* Finds a device; a missing driver, or one older than the plugin, counts as no device. */
static fv_status find_device(int number, struct cudaDeviceProp *prop) {
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e != cudaSuccess || n == 0)
        return FV_FAIL(FV_EUNSUPPORTED, "no CUDA device%s%s%s", e == cudaSuccess ? "" : ": ",
                       e == cudaSuccess ? "" : cudaGetErrorString(e),
                       e == cudaErrorInsufficientDriver
                           ? "; install a driver of at least the plugin's CUDA version"
                           : "");
    if (number < 0 || number >= n)
        return FV_FAIL(FV_EINVAL, "CUDA device %d: there are devices 0 to %d", number, n - 1);
    FV_CUDA(cudaGetDeviceProperties(prop, number));
    if (prop->major < 8)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "no CUDA device: %s has compute capability %d.%d, and 8.0 "
                       "is needed",
                       prop->name, prop->major, prop->minor);
    return FV_OK;
}

static fv_status want_tier(const char *isa, fv_tier *tier) {
    *tier = FV_TIER_AUTO;
    if (!isa) return FV_OK;
    for (fv_tier t = FV_TIER_EXACT; t <= FV_TIER_FAST; t++)
        if (strcmp(isa, fv_tier_name(t)) == 0) {
            *tier = t;
            return FV_OK;
        }
    return FV_FAIL(FV_EINVAL, "isa '%s': choose auto, exact or fast for cuda", isa);
}

static fv_status open_blas(fv_cuda *c) {
    if (c->exact) return FV_OK;
    return fv_blas_open(c->stream, c->tier == FV_TIER_FAST ? FV_BLAS_MUCH : FV_BLAS_LITTLE,
                        &c->blas);
}

static const fv_backend_ops cuda_ops;

/* Names the tier that the device has: that of `auto` is `fast` where the library's products are not batch-invariant. */
static fv_status settle_tier(fv_backend *b) {
    static const char *const isa[] = {"cuda-exact", "cuda", "cuda-fast"};
    fv_cuda *c = b->impl;
    bool same = true;
    char what[64];
    if (!c->exact) FV_TRY(fv_cuda_compare_products(b, &same, what));
    if (!same && c->tier == FV_TIER_AUTO) {
        FV_LOG(WARN, KERNELS,
               "event=not-batch-invariant product=\"%s\" tier=fast reason=\"a row's bits depend on "
               "how many are computed with it; --isa exact is the CPU's bits\"",
               what);
        c->tier = FV_TIER_FAST;
    }
    b->isa = isa[c->tier];
    return FV_OK;
}

/* Says what an older device lacks. */
static void say_limits(const fv_cuda *c, const struct cudaDeviceProp *prop) {
    enum { WIDE_HEADS = 156 << 10 };
    if (c->exact || c->shared_max >= WIDE_HEADS) return;
    FV_LOG(INFO, KERNELS,
           "event=device-limits sm=%d.%d shared_kib=%zu reason=\"heads of more than 256 columns "
           "take the "
           "scalar attention, for which a block has the memory\"",
           prop->major, prop->minor, c->shared_max >> 10);
}

static fv_status cuda_open(fv_backend *be, const fv_backend_options *opt) {
    struct cudaDeviceProp prop;
    fv_tier tier;
    FV_TRY(want_tier(opt->isa, &tier));
    /* Loads all kernels now: a first launch that loads its kernel would wait for the whole device. */
    (void)setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    FV_TRY(find_device(opt->device, &prop));
    fv_cuda *c = calloc(1, sizeof *c);
    if (!c) return FV_FAIL(FV_ENOMEM, "out of memory for the CUDA backend");
    c->number = opt->device;
    memcpy(c->uuid, &prop.uuid, sizeof c->uuid);
    c->n_sm = prop.multiProcessorCount;
    c->shared_max = prop.sharedMemPerBlockOptin;
    c->tier = tier;
    c->exact = tier == FV_TIER_EXACT;
    fv_backend b = {.ops = &cuda_ops, .device = &c->device, .isa = "cuda", .impl = c};
    fv_status st = fv_cuda_device_open(c);
    if (st == FV_OK) st = open_blas(c);
    if (st == FV_OK) st = settle_tier(&b);
    if (st == FV_OK && opt->trace) {
        st = fv_cuda_trace_start(opt->trace);
        c->traces = st == FV_OK;
    }
    if (st != FV_OK) {
        cuda_close(&b);
        return st;
    }
    *be = b;
    say_limits(c, &prop);
    FV_LOG(INFO, KERNELS, "backend=cuda device=%d name=\"%s\" sm=%d.%d tier=%s", c->number,
           prop.name, prop.major, prop.minor, fv_tier_name(c->tier));
    return FV_OK;
}

static fv_status cuda_weight(fv_backend *be, const fv_tensor *host, fv_tensor *out, fv_buf *owned) {
    fv_cuda *c = fv_cuda_of(be);
    fv_buf buf;
    size_t bytes = (size_t)host->rows * (size_t)host->cols * fv_dtype_bytes(host->dtype);
    FV_TRY(fv_buf_alloc(&c->device, bytes, FV_BUF_DEVICE, &buf));
    fv_status st = c->device.ops->copy_async(&c->device, buf.data, host->data, bytes);
    if (st != FV_OK) {
        fv_buf_free(&buf);
        return st;
    }
    *out = *host;
    out->data = buf.data;
    *owned = buf;
    return FV_OK;
}

static fv_status cuda_step_begin(fv_backend *be, int32_t rows) {
    return fv_cuda_step_begin(fv_cuda_of(be), rows);
}

static fv_status cuda_step_end(fv_backend *be) { return fv_cuda_step_end(fv_cuda_of(be)); }

static fv_status cuda_sync(fv_backend *be) {
    FV_TRY(fv_cuda_flush(fv_cuda_of(be)));
    FV_CUDA(cudaStreamSynchronize(fv_cuda_of(be)->stream));
    return FV_OK;
}

/* ---- items in parallel ------------------------------------------------------------------- */

static fv_status open_side(fv_cuda *c) {
    if (c->side) return FV_OK;
    fv_cuda *s = calloc(1, sizeof *s);
    if (!s) return FV_FAIL(FV_ENOMEM, "out of memory for a stream");
    s->number = c->number;
    s->n_sm = c->n_sm;
    s->shared_max = c->shared_max;
    s->tier = c->tier;
    s->exact = c->exact;
    fv_status st = fv_cuda_device_open(s);
    if (st == FV_OK) st = open_blas(s);
    if (st != FV_OK) {
        close_state(s);
        return st;
    }
    c->side = s;
    return FV_OK;
}

/* Runs items on a stream of their own, so that they do not wait for work in progress: by the rule of
 * fv_backend_each their inputs are complete. Without memory for a stream, uses the backend's. */
static fv_status cuda_each(fv_backend *be, int32_t n, fv_each_fn *fn, void *arg) {
    fv_cuda *c = fv_cuda_of(be);
    fv_backend side = *be;
    if (open_side(c) == FV_OK)
        side = (fv_backend){
            .ops = be->ops, .device = &c->side->device, .isa = be->isa, .impl = c->side};
    for (int32_t i = 0; i < n; i++) fn(arg, &side, 0, i);
    return cuda_sync(&side);
}

static const char *cuda_lost(const fv_backend *be) {
    (void)be;
    return fv_cuda_lost();
}

/* Default for an operation without a kernel; a kernel's file overrides the weak symbol. */
#define FV_OP(name, args)                                                                          \
    __attribute__((weak)) fv_status fv_cuda_##name(fv_backend *be, const args *a) {                \
        (void)be, (void)a;                                                                         \
        return FV_FAIL(FV_EUNSUPPORTED, "the CUDA backend has no operation " #name);               \
    }
#include "kernels/ops.def"

static const fv_backend_ops cuda_ops = {
    .name = "cuda",
    .act = FV_F32,
    .open = cuda_open,
    .close = cuda_close,
    .weight = cuda_weight,
    .sync = cuda_sync,
    .step_begin = cuda_step_begin,
    .step_end = cuda_step_end,
#define FV_OP(name, args) .name = fv_cuda_##name,
#include "kernels/ops.def"
    .factorise = fv_cuda_factorise,
    .each = cuda_each,
    .lost = cuda_lost,
    .pairs = &fv_cuda_peers,
};

const fv_plugin fv_plugin_v1 = {
    .abi = FV_PLUGIN_ABI,
    .contract = FV_PLUGIN_CONTRACT,
    .ops = &cuda_ops,
};
