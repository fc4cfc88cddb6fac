/* Widens contiguous rows on the device, through one buffer that is large enough for all rows, and copies
 * them to the host. */
#include "prefill-worker/select/store_rows.h"

#include <stdlib.h>

static fv_status read_through(fv_backend *be, const fv_kv *kv, int32_t layer, int32_t head,
                              fv_kv_segment seg, bool value, const int32_t *ids, void *buffer,
                              float *out) {
    const fv_kv_shape *s = fv_kv_get_shape(kv);
    int32_t n = fv_kv_len(kv, layer, head, seg);
    for (int32_t row = 0, rows; row < n; row += rows) {
        void *at;
        rows = fv_kv_contiguous(kv, layer, head, seg, value, row, n, &at);
        fv_index_select_args pick = {.table = fv_tensor_of(at, s->dtype, rows, s->d_head),
                                     .y = fv_tensor_of(buffer, FV_F32, rows, s->d_head),
                                     .ids = ids};
        FV_TRY(be->ops->index_select(be, &pick));
        FV_TRY(be->device->ops->copy_async(be->device, out + (size_t)row * (size_t)s->d_head,
                                           buffer, (size_t)rows * (size_t)s->d_head * sizeof *out));
        FV_TRY(be->ops->sync(be));
    }
    return FV_OK;
}

fv_status fv_read_rows(fv_backend *be, const fv_kv *kv, int32_t layer, int32_t head,
                       fv_kv_segment seg, bool value, float *out) {
    int32_t n = fv_kv_len(kv, layer, head, seg), d = fv_kv_get_shape(kv)->d_head;
    fv_buf buffer = {0};
    if (n == 0) return FV_OK;
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    if (!ids) return FV_FAIL(FV_ENOMEM, "out of memory to read %d KV entries", n);
    for (int32_t i = 0; i < n; i++) ids[i] = i;
    fv_status st =
        fv_buf_alloc(be->device, (size_t)n * (size_t)d * sizeof *out, FV_BUF_DEVICE, &buffer);
    if (st == FV_OK) st = read_through(be, kv, layer, head, seg, value, ids, buffer.data, out);
    fv_buf_free(&buffer);
    free(ids);
    return st;
}

static fv_status write_through(fv_backend *be, const fv_kv_write_args *a, const float *k,
                               const float *v) {
    fv_device *dev = be->device;
    size_t bytes = (size_t)a->k.rows * (size_t)a->k.cols * sizeof *k;
    FV_TRY(dev->ops->copy_async(dev, a->k.data, k, bytes));
    FV_TRY(dev->ops->copy_async(dev, a->v.data, v, bytes));
    FV_TRY(be->ops->kv_write(be, a));
    return be->ops->sync(be);
}

/* Writes with kv_write, the operation that appends tokens. */
fv_status fv_write_rows(fv_backend *be, fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg,
                        const int32_t *at, int32_t n, const float *k, const float *v) {
    const fv_kv_shape *s = fv_kv_get_shape(kv);
    size_t bytes = (size_t)n * (size_t)s->d_head * sizeof *k;
    fv_block_table run = {.block = fv_kv_runs(kv, layer)[head * FV_N_SEG + seg].block};
    fv_buf buffer[2] = {{0}, {0}};
    if (n == 0) return FV_OK;
    uint8_t *first = calloc((size_t)n, 1); /* segment 0, the only one in `seq` */
    if (!first) return FV_FAIL(FV_ENOMEM, "out of memory to write %d KV entries", n);
    fv_kv_write_seq seq = {.n_rows = n, .n_seg = 1, .tables = &run, .seg = first, .slot = at};
    fv_status st = fv_buf_alloc(be->device, bytes, FV_BUF_DEVICE, &buffer[0]);
    if (st == FV_OK) st = fv_buf_alloc(be->device, bytes, FV_BUF_DEVICE, &buffer[1]);
    fv_kv_write_args a = {.k = fv_tensor_of(buffer[0].data, FV_F32, n, s->d_head),
                          .v = fv_tensor_of(buffer[1].data, FV_F32, n, s->d_head),
                          .kv_dtype = s->dtype,
                          .n_kv = 1,
                          .d_head = s->d_head,
                          .n_seq = 1,
                          .seqs = &seq};
    if (st == FV_OK) st = write_through(be, &a, k, v);
    fv_buf_free(&buffer[0]);
    fv_buf_free(&buffer[1]);
    free(first);
    return st;
}
