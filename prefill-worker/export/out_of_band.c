/* Copies pieces of a store to buffers on the device, so that many small pages become few large transfers,
 * and the store does not have to wait for the other side. */
#include "prefill-worker/export/out_of_band.h"

#include <stdlib.h>

#include "common/crc32c_join.h"

/* Fills one buffer from where the last ended: *at bytes of *piece are taken already. */
static fv_status fill(fv_device *dev, const fv_buf *buf, const fv_piece **piece, size_t *at) {
    for (size_t done = 0, take; done < buf->bytes; done += take) {
        size_t left = (*piece)->bytes - *at;
        take = buf->bytes - done < left ? buf->bytes - done : left;
        FV_TRY(dev->ops->copy_async(dev, (char *)buf->data + done,
                                    (const char *)(*piece)->data + *at, take));
        *at += take;
        if (*at == (*piece)->bytes) {
            (*piece)++;
            *at = 0;
        }
    }
    return FV_OK;
}

static fv_status fill_all(const fv_peer_ops *ops, fv_device *dev, const fv_piece *piece,
                          size_t most, fv_oob *b) {
    size_t at = 0;
    uint64_t left = b->bytes;
    for (int32_t i = 0; i < b->n; i++) {
        uint32_t crc;
        fv_buf *buf = &b->buf[i];
        FV_TRY(fv_buf_alloc(dev, left < most ? (size_t)left : most, FV_BUF_DEVICE, buf));
        FV_TRY(fill(dev, buf, &piece, &at));
        FV_TRY(ops->crc32c(dev, buf->data, buf->bytes, &crc)); /* waits for the copies */
        b->crc = fv_crc32c_join(b->crc, crc, buf->bytes);
        left -= buf->bytes;
    }
    return FV_OK;
}

fv_status fv_oob_gather(const fv_peer_ops *ops, fv_device *dev, const fv_piece *piece, int32_t n,
                        size_t most, fv_oob *out) {
    fv_oob b = {0};
    for (int32_t i = 0; i < n; i++) b.bytes += piece[i].bytes;
    b.n = (int32_t)((b.bytes + most - 1) / most);
    b.buf = calloc((size_t)b.n, sizeof *b.buf);
    if (!b.buf)
        return FV_FAIL(FV_ENOMEM, "out of memory for the buffers of a hand-off between devices");
    fv_status st = fill_all(ops, dev, piece, most, &b);
    if (st == FV_OK)
        *out = b;
    else
        fv_oob_free(&b);
    return st;
}

void fv_oob_free(fv_oob *b) {
    for (int32_t i = 0; i < b->n; i++) fv_buf_free(&b->buf[i]);
    free(b->buf);
    *b = (fv_oob){0};
}
