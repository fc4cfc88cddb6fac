/* Whether the library's products are batch-invariant: it chooses a kernel by the number of rows, and another kernel may sum
 * in another order. So this is tried, on this device and with this library, and not taken for granted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"

enum { MOST = 256, SHAPES = 3 };

typedef struct shape {
    int32_t N, K;
} shape;

static uint16_t number(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    const float f = (float)((int32_t)(*state >> 40) - (1 << 23)) * 0x1p-23f;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* Random numbers in bf16, on the device. */
static fv_status random_matrix(fv_backend *be, int32_t rows, int32_t cols, fv_dtype dtype,
                               fv_buf *buf) {
    const size_t n = (size_t)rows * (size_t)cols, size = fv_dtype_bytes(dtype);
    uint64_t state = n;
    char *host = malloc(n * size);
    if (!host) return FV_FAIL(FV_ENOMEM, "out of memory to compare products");
    for (size_t i = 0; i < n; i++) {
        const uint16_t half = number(&state);
        const uint32_t whole = (uint32_t)half << 16;
        memcpy(host + i * size, size == 2 ? (const void *)&half : &whole, size);
    }
    fv_status st = fv_buf_alloc(be->device, n * size, FV_BUF_DEVICE, buf);
    if (st == FV_OK) st = be->device->ops->copy_async(be->device, buf->data, host, n * size);
    if (st == FV_OK) st = be->ops->sync(be);
    free(host);
    return st;
}

/* y [M, N] of the first M rows of x, to the host. */
static fv_status product(fv_backend *be, shape s, int32_t M, const fv_buf *x, const fv_buf *w,
                         const fv_buf *y, float *out) {
    fv_linear_args a = {.x = fv_tensor_of(x->data, FV_F32, M, s.K), .n_part = 1};
    a.part[0].w = fv_tensor_of(w->data, FV_BF16, s.N, s.K);
    a.part[0].y = fv_tensor_of(y->data, FV_F32, M, s.N);
    FV_TRY(be->ops->linear(be, &a));
    FV_TRY(be->device->ops->copy_async(be->device, out, y->data,
                                       (size_t)M * (size_t)s.N * sizeof *out));
    return be->ops->sync(be);
}

static fv_status compare(fv_backend *be, shape s, const fv_buf *x, const fv_buf *w, const fv_buf *y,
                         float *out[2], bool *same, char what[64]) {
    static const int32_t rows[] = {1, 8, 64};
    FV_TRY(product(be, s, MOST, x, w, y, out[0]));
    for (size_t i = 0; i < sizeof rows / sizeof *rows && *same; i++) {
        FV_TRY(product(be, s, rows[i], x, w, y, out[1]));
        *same = memcmp(out[0], out[1], (size_t)rows[i] * (size_t)s.N * sizeof(float)) == 0;
        if (!*same) snprintf(what, 64, "%d rows of %d -> %d against %d", rows[i], s.K, s.N, MOST);
    }
    return FV_OK;
}

static fv_status try_shape(fv_backend *be, shape s, bool *same, char what[64]) {
    const size_t bytes = (size_t)MOST * (size_t)s.N * sizeof(float);
    fv_buf x = {0}, w = {0}, y = {0};
    float *out[2] = {malloc(bytes), malloc(bytes)};
    fv_status st =
        out[0] && out[1] ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory to compare products");
    if (st == FV_OK) st = random_matrix(be, MOST, s.K, FV_F32, &x);
    if (st == FV_OK) st = random_matrix(be, s.N, s.K, FV_BF16, &w);
    if (st == FV_OK) st = fv_buf_alloc(be->device, bytes, FV_BUF_DEVICE, &y);
    if (st == FV_OK) st = compare(be, s, &x, &w, &y, out, same, what);
    fv_buf_free(&x);
    fv_buf_free(&w);
    fv_buf_free(&y);
    free(out[0]);
    free(out[1]);
    return st;
}

/* Shapes as wide as the device: few columns and many numbers to sum are what a library splits. */
fv_status fv_cuda_compare_products(fv_backend *be, bool *same, char what[64]) {
    const int32_t sm = fv_cuda_of(be)->n_sm < 128 ? fv_cuda_of(be)->n_sm : 128;
    const shape shapes[SHAPES] = {{8 * sm, 32 * sm}, {32 * sm, 32 * sm}, {32 * sm, 86 * sm}};
    *same = true;
    what[0] = 0;
    for (int i = 0; i < SHAPES && *same; i++) FV_TRY(try_shape(be, shapes[i], same, what));
    return FV_OK;
}
