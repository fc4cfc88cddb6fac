/* Latent directions on the backend's device. */
#include "model/latent_there.h"

#include <stdlib.h>
#include <string.h>

/* A copy at `to` of what attention reads of a layer: it lies in one piece. */
static fv_status send_layer(fv_device *dev, char *to, const fv_latent_bytes_laid *n,
                            fv_latent_layer *l) {
    FV_TRY(dev->ops->copy_async(dev, to, l->key, n->key + n->affine + n->value));
    l->key = (const int8_t *)to;
    l->affine = (const float *)(const void *)(to + n->key);
    l->value = (const float *)(const void *)(to + n->key + n->affine);
    return FV_OK;
}

fv_status fv_latent_send(const fv_latent *l, fv_backend *be, fv_latent_there *out) {
    size_t n = (size_t)l->info.n_layer;
    fv_latent_bytes_laid laid = fv_latent_laid(&l->info);
    size_t each = laid.key + laid.affine + laid.value;
    fv_latent_there t = {.layer = l->layer};
    *out = t;
    if (be->device == fv_device_host()) return FV_OK;
    t.copies = malloc(n * sizeof *t.copies);
    if (!t.copies) return FV_FAIL(FV_ENOMEM, "out of memory for latent directions");
    memcpy(t.copies, l->layer, n * sizeof *t.copies);
    t.layer = t.copies;
    fv_status st = fv_buf_alloc(be->device, n * each, FV_BUF_DEVICE, &t.buf);
    char *at = t.buf.data;
    for (size_t k = 0; k < n && st == FV_OK; k++, at += each)
        st = send_layer(be->device, at, &laid, &t.copies[k]);
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
