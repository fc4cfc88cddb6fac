/* Operations whose rows know nothing of each other. They give the bits of the CPU in every mode:
 * sums in 16 lanes and their tree, the same functions, one rounding per operation. */
#include <assert.h>

#include "kernels/cuda/gpu.h"

#include "kernels/activations.h"

enum { BLOCK = 256, MOST_HELD = 32 << 10 }; /* bytes of a row in shared memory */
static const unsigned MAX_GRID = 1 << 20;

static __device__ float *f32_at(const fv_tensor &t, int64_t row, int64_t col) {
    return static_cast<float *>(t.data) + row * t.ld + col;
}

/* A grid that covers n elements; kernels walk on in its strides. */
static dim3 grid_of(int64_t n) {
    unsigned blocks = fv_cuda_blocks(n, BLOCK);
    return dim3(blocks < MAX_GRID ? blocks : MAX_GRID);
}

static __device__ int64_t first_element() { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
static __device__ int64_t element_stride() { return (int64_t)gridDim.x * blockDim.x; }

static fv_status need_f32(const fv_tensor *t, const char *what) {
    if (!t->data || t->dtype == FV_F32) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED, "the CUDA backend has activations in f32: %s is %s", what,
                   fv_dtype_name(t->dtype));
}

/* ---- norm: a block is one row ---------------------------------------------------------- */

/* sum of x - mean (squares: of its square) over a row, by each half of the first warp: the lanes'
 * order is the CPU's, so only 16 threads of the row can add. They need not wait for memory: all of
 * the block has fetched the row to where they read it. */
static __device__ float row_sum(const float *x, int n, float mean, bool squares) {
    int lane = (int)threadIdx.x % FV_LANES;
    float acc = 0.0f;
#pragma unroll 8
    for (int k = lane; k < n; k += FV_LANES) {
        float d = squares ? x[k] - mean : x[k];
        acc = squares ? fmaf(d, d, acc) : acc + d;
    }
    return fv_lanes_tree(acc);
}

/* held: shared memory has room for a row. */
static __global__ void norm_kernel(fv_norm_args a, int held) {
    FV_SHARED(float, row);
    __shared__ float of_row[2]; /* mean, scale */
    int n = a.x.cols;
    const float *x = f32_at(a.x, blockIdx.x, 0);
    float *y = f32_at(a.y, blockIdx.x, 0);
    if (held) {
        for (int k = (int)threadIdx.x; k < n; k += BLOCK) row[k] = x[k];
        __syncthreads();
        x = row;
    }
    if (threadIdx.x < FV_WARP) {
        float mean = 0.0f;
        if (!a.rms) mean = __shfl_sync(FV_ALL_LANES, row_sum(x, n, 0.0f, false), 0) / (float)n;
        float squares = row_sum(x, n, mean, true);
        if (threadIdx.x == 0) {
            of_row[0] = mean;
            of_row[1] = sqrtf(squares / (float)n + a.eps);
        }
    }
    __syncthreads(); /* y may be x: all of the row has been read */
    for (int k = (int)threadIdx.x; k < n; k += BLOCK) {
        float t = (x[k] - of_row[0]) / of_row[1] * widened(a.w.data, a.w.dtype, (size_t)k);
        if (a.b.data) t += widened(a.b.data, a.b.dtype, (size_t)k);
        y[k] = t;
    }
}

extern "C" fv_status fv_cuda_norm(fv_backend *be, const fv_norm_args *a) {
    FV_TRY(need_f32(&a->x, "norm's x"));
    FV_TRY(need_f32(&a->y, "norm's y"));
    assert(a->x.rows == a->y.rows && a->x.cols == a->y.cols && a->w.data);
    if (a->x.rows == 0 || a->x.cols == 0) return FV_OK;
    size_t bytes = (size_t)a->x.cols * sizeof(float);
    bool held = bytes <= MOST_HELD;
    FV_LAUNCH(norm_kernel, dim3((unsigned)a->x.rows), dim3(BLOCK), held ? bytes : 0,
              fv_cuda_of(be)->stream, *a, held);
    return fv_cuda_launched("norm");
}

/* ---- activate -------------------------------------------------------------------------- */

static __device__ float activated(fv_activation act, float x) {
    switch (act) {
    case FV_ACT_SILU: return act_silu(x);
    case FV_ACT_GELU: return act_gelu(x);
    case FV_ACT_GELU_TANH: return act_gelu_tanh(x);
    case FV_ACT_QUICK_GELU: return act_quick_gelu(x);
    default: return act_relu(x);
    }
}

static __global__ void activate_kernel(fv_activate_args a) {
    int64_t n = (int64_t)a.x.rows * a.x.cols;
    for (int64_t i = first_element(); i < n; i += element_stride()) {
        int64_t row = i / a.x.cols, col = i % a.x.cols;
        float y = activated(a.act, *f32_at(a.x, row, col));
        if (a.gate.data) y *= *f32_at(a.gate, row, col);
        *f32_at(a.y, row, col) = y;
    }
}

extern "C" fv_status fv_cuda_activate(fv_backend *be, const fv_activate_args *a) {
    FV_TRY(need_f32(&a->x, "activate's x"));
    FV_TRY(need_f32(&a->gate, "activate's gate"));
    FV_TRY(need_f32(&a->y, "activate's y"));
    assert(a->act >= 0 && a->act < FV_N_ACT);
    assert(a->x.rows == a->y.rows && a->x.cols == a->y.cols);
    int64_t n = (int64_t)a->x.rows * a->x.cols;
    if (n == 0) return FV_OK;
    FV_LAUNCH(activate_kernel, grid_of(n), dim3(BLOCK), 0, fv_cuda_of(be)->stream, *a);
    return fv_cuda_launched("activate");
}

/* ---- rope: a thread is one pair -------------------------------------------------------- */

static __global__ void rope_kernel(fv_rope_args a) {
    int64_t half = a.cos.cols, pairs = a.n_head * half, n = a.x.rows * pairs;
    for (int64_t i = first_element(); i < n; i += element_stride()) {
        int64_t row = i / pairs, head = i % pairs / half, d = i % half;
        float *lo = f32_at(a.x, row, head * 2 * half + d), *hi = lo + half;
        float c = *f32_at(a.cos, row, d), s = *f32_at(a.sin, row, d), x = *lo, y = *hi;
        *lo = fmaf(x, c, -(y * s));
        *hi = fmaf(y, c, x * s);
    }
}

extern "C" fv_status fv_cuda_rope(fv_backend *be, const fv_rope_args *a) {
    FV_TRY(need_f32(&a->x, "rope's x"));
    FV_TRY(need_f32(&a->cos, "rope's cos"));
    FV_TRY(need_f32(&a->sin, "rope's sin"));
    assert(a->x.cols == a->n_head * 2 * a->cos.cols);
    int64_t n = (int64_t)a->x.rows * a->n_head * a->cos.cols;
    if (n == 0) return FV_OK;
    FV_LAUNCH(rope_kernel, grid_of(n), dim3(BLOCK), 0, fv_cuda_of(be)->stream, *a);
    return fv_cuda_launched("rope");
}

/* ---- index_select: a block is one row -------------------------------------------------------- */

static __global__ void index_select_kernel(fv_tensor table, fv_tensor y, const int32_t *ids) {
    size_t from = (size_t)ids[blockIdx.x] * (size_t)table.ld;
    for (int k = (int)threadIdx.x; k < y.cols; k += BLOCK)
        *f32_at(y, blockIdx.x, k) = widened(table.data, table.dtype, from + (size_t)k);
}

extern "C" fv_status fv_cuda_index_select(fv_backend *be, const fv_index_select_args *a) {
    fv_cuda *c = fv_cuda_of(be);
    void *ids;
    FV_TRY(need_f32(&a->y, "index_select's y"));
    assert(a->table.cols == a->y.cols);
    if (a->y.rows == 0 || a->y.cols == 0) return FV_OK;
    FV_TRY(fv_cuda_stage_copy(c, a->ids, (size_t)a->y.rows * sizeof *a->ids, &ids));
    FV_LAUNCH(index_select_kernel, dim3((unsigned)a->y.rows), dim3(BLOCK), 0, c->stream, a->table,
              a->y, static_cast<const int32_t *>(ids));
    return fv_cuda_launched("index_select");
}
