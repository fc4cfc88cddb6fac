/* The small work of factors on the device, for all matrices of a batch together: sums of rows'
 * squares, random numbers, Cholesky factors inverted, eigenvectors. A block of threads has one
 * matrix, or one row of one.
 *
 * The p x p work is in double, as on the CPU, in an order of its own: the rule is the CPU's
 * (kernels/factor_rule.h), the bits are not. */
#include "kernels/cuda/factor.h"

#include "kernels/cuda/attention.cuh"
#include "kernels/factor_rule.h"

enum { THREADS = 128, MAX_SWEEPS = 30 };

/* A sum over the block's threads, the same for all; `scratch` [THREADS]. */
static __device__ double block_sum(double *scratch, double x) {
    __syncthreads(); /* the previous sum has been read */
    scratch[threadIdx.x] = x;
    for (int s = THREADS / 2; s > 0; s /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < s) scratch[threadIdx.x] += scratch[threadIdx.x + s];
    }
    __syncthreads();
    return scratch[0];
}

/* ---- rows -------------------------------------------------------------------------------- */

/* Measures rows: the sum of squares, and the bits of the largest absolute value, which are above
 * 0x7f7fffff where it is not finite. */
static __global__ void __launch_bounds__(THREADS)
    rows_kernel(const fv_cuda_rows *items, int32_t n, double *square, int32_t *top) {
    __shared__ double scratch[THREADS];
    __shared__ int32_t most[THREADS];
    int32_t row = (int32_t)blockIdx.x, i = 0;
    while (i + 1 < n && row >= items[i + 1].first) i++;
    const float *x = items[i].x + (size_t)(row - items[i].first) * (size_t)items[i].cols;
    double sum = 0;
    int32_t high = 0;
    for (int32_t c = (int32_t)threadIdx.x; c < items[i].cols; c += THREADS) {
        int32_t bits = __float_as_int(x[c]) & 0x7fffffff;
        sum += (double)x[c] * (double)x[c];
        high = bits > high ? bits : high;
    }
    sum = block_sum(scratch, sum);
    most[threadIdx.x] = high;
    __syncthreads();
    if (threadIdx.x) return;
    for (int t = 1; t < THREADS; t++) high = most[t] > high ? most[t] : high;
    square[row] = sum;
    top[row] = high;
}

fv_status fv_cuda_rows_measure(fv_cuda *c, const fv_cuda_rows *items, int32_t n, int32_t rows,
                               double *square, int32_t *top) {
    void *there;
    FV_TRY(fv_cuda_stage_copy(c, items, (size_t)n * sizeof *items, &there));
    FV_LAUNCH(rows_kernel, dim3((unsigned)rows), dim3(THREADS), 0, c->stream,
              static_cast<const fv_cuda_rows *>(there), n, square, top);
    return fv_cuda_launched("rows of factors");
}

/* ---- numbers ----------------------------------------------------------------------------- */

static __global__ void random_kernel(float *x, int64_t n, uint64_t seed) {
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * THREADS)
        x[i] = fv_factor_random(seed, (uint64_t)i);
}

static __global__ void scale_kernel(float *x, int64_t n, float by) {
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * THREADS)
        x[i] *= by;
}

static dim3 grid_of(int64_t n) {
    unsigned blocks = fv_cuda_blocks(n, THREADS);
    return dim3(blocks < 4096 ? blocks : 4096);
}

fv_status fv_cuda_random(fv_cuda *c, const fv_tensor *x, uint64_t seed) {
    int64_t n = (int64_t)x->rows * x->cols;
    FV_LAUNCH(random_kernel, grid_of(n), dim3(THREADS), 0, c->stream, static_cast<float *>(x->data),
              n, seed);
    return fv_cuda_launched("random numbers");
}

fv_status fv_cuda_scale(fv_cuda *c, const fv_tensor *x, float by) {
    int64_t n = (int64_t)x->rows * x->cols;
    FV_LAUNCH(scale_kernel, grid_of(n), dim3(THREADS), 0, c->stream, static_cast<float *>(x->data),
              n, by);
    return fv_cuda_launched("a matrix divided");
}

/* ---- Cholesky ---------------------------------------------------------------------------- */

/* Factors G = L L^T, with E = L^-1 by the same eliminations, column after column. Drops a row of which
 * less than `share` is new: its rows of L and E are 0, and so is the row of the product.
 * g [p, p], the lower triangle is read and overwritten; e [p, p]; to [p, p] is E in F32. */
static __global__ void __launch_bounds__(THREADS)
    cholesky_kernel(const fv_cuda_cholesky *items, double share) {
    const fv_cuda_cholesky x = items[blockIdx.x];
    FV_SHARED(double, column); /* [p] of L; [p] the original diagonal */
    int32_t p = x.p, me = (int32_t)threadIdx.x;
    double *had = column + p;
    for (int32_t i = me; i < p * p; i += THREADS) x.e[i] = i % (p + 1) == 0 ? 1 : 0;
    for (int32_t i = me; i < p; i += THREADS) had[i] = x.g[(size_t)i * p + i];
    __syncthreads();
    for (int32_t i = 0; i < p; i++) {
        double rest = x.g[(size_t)i * p + i];
        bool is_new = rest > share * had[i];
        double root = is_new ? sqrt(rest) : 1;
        for (int32_t j = i + me; j < p; j += THREADS)
            column[j] = is_new ? x.g[(size_t)j * p + i] / root : 0;
        for (int32_t k = me; k <= i; k += THREADS)
            x.e[(size_t)i * p + k] = is_new ? x.e[(size_t)i * p + k] / root : 0;
        __syncthreads();
        int32_t below = p - i - 1;
        for (int32_t y = me; y < below * (i + 1); y += THREADS) {
            int32_t j = i + 1 + y / (i + 1), k = y % (i + 1);
            x.e[(size_t)j * p + k] -= column[j] * x.e[(size_t)i * p + k];
        }
        for (int32_t y = me; y < below * below; y += THREADS) {
            int32_t j = i + 1 + y / below, k = i + 1 + y % below;
            if (k <= j) x.g[(size_t)j * p + k] -= column[j] * column[k];
        }
        __syncthreads();
    }
    for (int32_t i = me; i < p * p; i += THREADS) x.to[i] = (float)x.e[i];
}

fv_status fv_cuda_cholesky_invert(fv_cuda *c, const fv_cuda_cholesky *items, int32_t n,
                                  int32_t most, double share) {
    void *there;
    size_t scratch = 2 * (size_t)most * sizeof(double);
    FV_TRY(shared_memory(c, cholesky_kernel, scratch));
    FV_TRY(fv_cuda_stage_copy(c, items, (size_t)n * sizeof *items, &there));
    FV_LAUNCH(cholesky_kernel, dim3((unsigned)n), dim3(THREADS), scratch, c->stream,
              static_cast<const fv_cuda_cholesky *>(there), share);
    return fv_cuda_launched("Cholesky factors");
}

/* ---- eigenvectors ------------------------------------------------------------------------- */

/* The two of n (even) indices that rotation `pair` of round `round` turns: each pair occurs once in n - 1
 * rounds. */
static __device__ void planes_of(int32_t n, int32_t round, int32_t pair, int32_t *a, int32_t *b) {
    int32_t x = pair == 0 ? n - 1 : (round + pair) % (n - 1);
    int32_t y = (round + n - 1 - pair) % (n - 1);
    *a = x < y ? x : y;
    *b = x < y ? y : x;
}

/* cos and sin of the rotation that makes h_ab 0 (Golub and Van Loan, 8.4). */
static __device__ void rotation_of(double aa, double bb, double ab, double *c, double *s) {
    *c = 1;
    *s = 0;
    if (ab == 0) return;
    double tau = (bb - aa) / (2 * ab);
    double t = 1 / (fabs(tau) + sqrt(1 + tau * tau));
    if (tau < 0) t = -t;
    *c = 1 / sqrt(1 + t * t);
    *s = t * *c;
}

/* Does a round: rotates disjoint pairs, rows first and then columns. */
static __device__ void rotate(double *h, double *z, int32_t p, int32_t n, int32_t round,
                              double *turn) {
    int32_t me = (int32_t)threadIdx.x, a, b;
    for (int32_t i = me; i < n / 2; i += THREADS) {
        planes_of(n, round, i, &a, &b);
        turn[2 * i] = 1;
        turn[2 * i + 1] = 0;
        if (b < p)
            rotation_of(h[a * p + a], h[b * p + b], h[a * p + b], &turn[2 * i], &turn[2 * i + 1]);
    }
    __syncthreads();
    for (int32_t x = me; x < n / 2 * p; x += THREADS) {
        int32_t i = x / p, k = x % p;
        planes_of(n, round, i, &a, &b);
        if (b >= p) continue;
        double c = turn[2 * i], s = turn[2 * i + 1];
        double u = h[a * p + k], v = h[b * p + k];
        h[a * p + k] = c * u - s * v;
        h[b * p + k] = s * u + c * v;
        u = z[a * p + k], v = z[b * p + k];
        z[a * p + k] = c * u - s * v;
        z[b * p + k] = s * u + c * v;
    }
    __syncthreads();
    for (int32_t x = me; x < n / 2 * p; x += THREADS) {
        int32_t i = x % (n / 2), k = x / (n / 2);
        planes_of(n, round, i, &a, &b);
        if (b >= p) continue;
        double c = turn[2 * i], s = turn[2 * i + 1], u = h[k * p + a], v = h[k * p + b];
        h[k * p + a] = c * u - s * v;
        h[k * p + b] = s * u + c * v;
    }
    __syncthreads();
}

/* H = Z^T diag(w) Z, w descending: Jacobi rotations, n / 2 of them at a time, until the
 * off-diagonal elements are rounding errors. */
static __global__ void __launch_bounds__(THREADS)
    eigen_kernel(const fv_cuda_eigen *items, bool inside) {
    const fv_cuda_eigen x = items[blockIdx.x];
    FV_SHARED(double, turn); /* [p + 1] rotations; [THREADS] of sums; inside: H and Z */
    int32_t p = x.p, n = p + p % 2, me = (int32_t)threadIdx.x;
    double *scratch = turn + n, *h = inside ? scratch + THREADS : x.h,
           *z = inside ? h + p * p : x.z;
    double all = 0;
    for (int32_t i = me; i < p * p; i += THREADS) {
        /* reads one triangle, as the product may round the two differently */
        int32_t a = i / p, b = i % p;
        h[i] = (double)(a > b ? x.from[i] : x.from[b * p + a]);
        z[i] = a == b ? 1 : 0;
        all += h[i] * h[i];
    }
    all = block_sum(scratch, all);
    for (int sweep = 0; sweep < MAX_SWEEPS; sweep++) {
        double off_diagonal = 0;
        for (int32_t i = me; i < p * p; i += THREADS)
            if (i % (p + 1)) off_diagonal += h[i] * h[i];
        if (block_sum(scratch, off_diagonal) <= 0x1p-80 * all) break;
        for (int32_t round = 0; round < n - 1; round++) rotate(h, z, p, n, round, turn);
    }
    for (int32_t i = me; i < p; i += THREADS) {
        double w = h[i * p + i];
        int32_t to = 0;
        for (int32_t j = 0; j < p; j++) {
            double other = h[j * p + j];
            to += other > w || (other == w && j < i);
        }
        x.w[to] = w;
        for (int32_t k = 0; k < p; k++) x.to[to * p + k] = (float)z[i * p + k];
    }
}

fv_status fv_cuda_eigenvectors(fv_cuda *c, const fv_cuda_eigen *items, int32_t n, int32_t most) {
    void *there;
    size_t scratch = ((size_t)most + 1 + THREADS) * sizeof(double);
    size_t matrices = 2 * (size_t)most * (size_t)most * sizeof(double);
    bool inside = scratch + matrices <= c->shared_max;
    if (inside) scratch += matrices;
    FV_TRY(shared_memory(c, eigen_kernel, scratch));
    FV_TRY(fv_cuda_stage_copy(c, items, (size_t)n * sizeof *items, &there));
    FV_LAUNCH(eigen_kernel, dim3((unsigned)n), dim3(THREADS), scratch, c->stream,
              static_cast<const fv_cuda_eigen *>(there), inside);
    return fv_cuda_launched("eigenvectors");
}
