/* Stretches of rows are widened on the device, through one room that is as large as the longest can
 * be, and brought to the host. */
#include "prefill-worker/read_rows.h"

#include <stdlib.h>

static fv_status read_through(fv_backend *be, const fv_kv *kv, int32_t layer, int32_t head,
                              fv_kv_segment seg, bool value, const int32_t *ids, void *room,
                              float *out) {
    const fv_kv_shape *s = fv_kv_get_shape(kv);
    int32_t n = fv_kv_len(kv, layer, head, seg);
    for (int32_t row = 0, rows; row < n; row += rows) {
        void *at;
        rows = fv_kv_stretch(kv, layer, head, seg, value, row, n, &at);
        fv_gather_args gather = {.table = fv_tensor_of(at, s->dtype, rows, s->d_head),
                                 .y = fv_tensor_of(room, FV_F32, rows, s->d_head),
                                 .ids = ids};
        FV_TRY(be->ops->gather(be, &gather));
        FV_TRY(be->device->ops->copy_async(be->device, out + (size_t)row * (size_t)s->d_head, room,
                                           (size_t)rows * (size_t)s->d_head * sizeof *out));
        FV_TRY(be->ops->sync(be));
    }
    return FV_OK;
}

fv_status fv_read_rows(fv_backend *be, const fv_kv *kv, int32_t layer, int32_t head,
                       fv_kv_segment seg, bool value, float *out) {
    int32_t n = fv_kv_len(kv, layer, head, seg), d = fv_kv_get_shape(kv)->d_head;
    fv_buf room = {0};
    if (n == 0) return FV_OK;
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    if (!ids) return FV_FAIL(FV_ENOMEM, "out of memory to read %d KV rows", n);
    for (int32_t i = 0; i < n; i++) ids[i] = i;
    fv_status st =
        fv_buf_alloc(be->device, (size_t)n * (size_t)d * sizeof *out, FV_BUF_DEVICE, &room);
    if (st == FV_OK) st = read_through(be, kv, layer, head, seg, value, ids, room.data, out);
    fv_buf_free(&room);
    free(ids);
    return st;
}
