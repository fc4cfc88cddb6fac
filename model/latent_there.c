/* Latent directions on the backend's device. */
#include "model/latent_there.h"

#include <stdlib.h>
#include <string.h>

/* Copies of a layer's matrices for reading, of `bytes` each, at `to`. */
static fv_status send_layer(fv_device *dev, char *to, size_t bytes, fv_latent_layer *l) {
    FV_TRY(dev->ops->copy_async(dev, to, l->key, bytes));
    FV_TRY(dev->ops->copy_async(dev, to + fv_packed_aligned(bytes), l->value, bytes));
    l->key = (const float *)(const void *)to;
    l->value = (const float *)(const void *)(to + fv_packed_aligned(bytes));
    return FV_OK;
}

fv_status fv_latent_send(const fv_latent *l, fv_backend *be, fv_latent_there *out) {
    const fv_latent_info *i = &l->info;
    size_t n = (size_t)i->n_layer, width = (size_t)i->n_kv * (size_t)i->d_head;
    size_t bytes = (width * ((size_t)i->n_dir + 1) + FV_PACKED_TILE) * sizeof(float);
    fv_latent_there t = {.layer = l->layer};
    *out = t;
    if (be->device == fv_device_host()) return FV_OK;
    t.copies = malloc(n * sizeof *t.copies);
    if (!t.copies) return FV_FAIL(FV_ENOMEM, "out of memory for latent directions");
    memcpy(t.copies, l->layer, n * sizeof *t.copies);
    t.layer = t.copies;
    fv_status st =
        fv_buf_alloc(be->device, 2 * n * fv_packed_aligned(bytes), FV_BUF_DEVICE, &t.buf);
    char *at = t.buf.data;
    for (size_t k = 0; k < n && st == FV_OK; k++, at += 2 * fv_packed_aligned(bytes))
        st = send_layer(be->device, at, bytes, &t.copies[k]);
    if (st == FV_OK)
        *out = t;
    else
        fv_latent_there_close(&t);
    return st;
}

void fv_latent_there_close(fv_latent_there *t) {
    fv_buf_free(&t->buf);
    free(t->copies);
    *t = (fv_latent_there){0};
}
