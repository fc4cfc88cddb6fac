/* The host device, and the entry points that every device shares. */
#include "common/buf.h"

#include <stdlib.h>
#include <string.h>

#include "common/pages.h"

static fv_status host_alloc(fv_device *dev, size_t bytes, fv_buf_kind kind, fv_buf *out) {
    if (bytes > SIZE_MAX - 64) return FV_FAIL(FV_ENOMEM, "a buffer of %zu bytes", bytes);
    void *p = fv_pages_alloc(64, (bytes + 63) / 64 * 64);
    if (!p) return FV_FAIL(FV_ENOMEM, "out of memory: %zu bytes on the host", bytes);
    *out = (fv_buf){.data = p, .bytes = bytes, .device = dev, .kind = kind};
    return FV_OK;
}

static void host_free(fv_buf *buf) { free(buf->data); }

static fv_status host_copy(fv_device *dev, void *dst, const void *src, size_t bytes) {
    (void)dev;
    if (bytes) memcpy(dst, src, bytes); /* empty buffers have no address */
    return FV_OK;
}

static fv_status host_event_record(fv_device *dev, fv_event *ev) {
    (void)dev;
    ev->handle = NULL;
    return FV_OK;
}

static fv_status host_event_query(fv_device *dev, fv_event *ev, bool *reached) {
    (void)dev;
    (void)ev;
    *reached = true;
    return FV_OK;
}

static fv_status host_event_wait(fv_device *dev, fv_event *ev) {
    (void)dev;
    (void)ev;
    return FV_OK;
}

static void host_event_free(fv_device *dev, fv_event *ev) {
    (void)dev;
    (void)ev;
}

fv_device *fv_device_host(void) {
    static const fv_device_ops ops = {
        .name = "host",
        .alloc = host_alloc,
        .free = host_free,
        .copy_async = host_copy,
        .event_record = host_event_record,
        .event_query = host_event_query,
        .event_wait = host_event_wait,
        .event_free = host_event_free,
    };
    static fv_device host = {.ops = &ops};
    return &host;
}

fv_status fv_buf_alloc(fv_device *dev, size_t bytes, fv_buf_kind kind, fv_buf *out) {
    if (bytes == 0) {
        *out = (fv_buf){.device = dev, .kind = kind};
        return FV_OK;
    }
    return dev->ops->alloc(dev, bytes, kind, out);
}

void fv_buf_free(fv_buf *buf) {
    if (buf->data) buf->device->ops->free(buf);
    *buf = (fv_buf){0};
}

fv_status fv_device_wait(fv_device *dev) {
    fv_event done = {0};
    fv_status st = dev->ops->event_record(dev, &done);
    if (st == FV_OK) st = dev->ops->event_wait(dev, &done);
    dev->ops->event_free(dev, &done);
    return st;
}

fv_status fv_device_move_rows(fv_device *dev, const fv_row_moves *rows) {
    const int32_t n = rows->n_chain ? rows->end[rows->n_chain - 1] : 0;
    if (n == 0) return FV_OK;
    if (dev->ops->move_rows) return dev->ops->move_rows(dev, rows);
    for (int32_t i = 0; i < n; i++)
        FV_TRY(dev->ops->copy_async(dev, rows->move[i].to, rows->move[i].from, rows->bytes));
    return FV_OK;
}

fv_status fv_device_copy(fv_device *dev, void *dst, const void *src, size_t bytes) {
    FV_TRY(dev->ops->copy_async(dev, dst, src, bytes));
    return fv_device_wait(dev);
}
