/* The state of recurrent layers: one buffer of the pool for all layers of a sequence. One thread at a
 * time. */
#include <stdlib.h>
#include <string.h>

#include "kv/internal.h"

size_t fv_kv_state_bytes(const fv_kv_shape *s) { return (size_t)s->n_layer * s->state_bytes; }

void *fv_kv_state(const fv_kv *kv, int32_t layer) {
    if (!kv->recurrent.data) return NULL;
    return (char *)kv->recurrent.data + (size_t)layer * kv->account.shape->state_bytes;
}

/* Zeros a buffer: through the host's memory where the device has its own. */
static fv_status clear(const fv_buf *buf) {
    if (buf->device == fv_device_host()) {
        memset(buf->data, 0, buf->bytes);
        return FV_OK;
    }
    void *zeros = calloc(1, buf->bytes);
    if (!zeros) return FV_FAIL(FV_ENOMEM, "out of memory for a state of %zu bytes", buf->bytes);
    fv_status st = fv_device_copy(buf->device, buf->data, zeros, buf->bytes);
    free(zeros);
    return st;
}

fv_status fv_kv_take_state(fv_kv *kv) {
    size_t bytes = fv_kv_state_bytes(kv->account.shape);
    fv_buf buf;
    if (bytes == 0 || kv->recurrent.data) return FV_OK;
    FV_TRY(fv_kv_take(&kv->account, bytes, &buf));
    fv_status st = clear(&buf);
    if (st == FV_OK)
        kv->recurrent = buf;
    else
        fv_kv_give(&kv->account, &buf);
    return st;
}
