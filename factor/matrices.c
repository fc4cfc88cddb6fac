/* Matrices on the host or on a device: see matrices.h. */
#include "factor/matrices.h"

#include <assert.h>

typedef struct fv_matrices_piece {
    fv_buf buf;
    struct fv_matrices_piece *next;
} piece;

void fv_matrices_fini(fv_matrices *m) {
    for (piece *p = m->piece; p; p = p->next) fv_buf_free(&p->buf);
    m->piece = NULL;
}

bool fv_matrices_on_host(const fv_matrices *m) { return m->be->device == fv_device_host(); }

static size_t bytes_of(int32_t rows, int32_t cols) {
    return (size_t)rows * (size_t)cols * sizeof(float);
}

fv_status fv_matrix_new(fv_matrices *m, int32_t rows, int32_t cols, fv_tensor *out) {
    void *data;
    if (fv_matrices_on_host(m)) {
        FV_TRY(fv_arena_alloc(m->scratch, bytes_of(rows, cols), &data));
    } else {
        piece *p;
        FV_TRY(FV_ARENA_NEW(m->scratch, 1, p));
        FV_TRY(fv_buf_alloc(m->be->device, bytes_of(rows, cols), FV_BUF_DEVICE, &p->buf));
        p->next = m->piece;
        m->piece = p;
        data = p->buf.data;
    }
    *out = fv_tensor_of(data, FV_F32, rows, cols);
    return FV_OK;
}

fv_status fv_matrix_send(fv_matrices *m, const float *numbers, int32_t rows, int32_t cols,
                         fv_tensor *out) {
    if (fv_matrices_on_host(m)) {
        *out = fv_tensor_of((void *)(uintptr_t)numbers, FV_F32, rows, cols);
        return FV_OK;
    }
    fv_device *dev = m->be->device;
    FV_TRY(fv_matrix_new(m, rows, cols, out));
    return dev->ops->copy_async(dev, out->data, numbers, bytes_of(rows, cols));
}

fv_status fv_matrix_fetch(fv_matrices *m, const fv_tensor *t, float **numbers) {
    assert(t->dtype == FV_F32 && t->ld == t->cols);
    if (fv_matrices_on_host(m)) {
        *numbers = t->data;
        return m->be->ops->sync(m->be);
    }
    FV_TRY(FV_ARENA_NEW(m->scratch, (size_t)t->rows * (size_t)t->cols, *numbers));
    return fv_device_copy(m->be->device, *numbers, t->data, bytes_of(t->rows, t->cols));
}
