#ifndef FOVEA_COMMON_BUF_H
#define FOVEA_COMMON_BUF_H

/* Memory on a device, and copies between devices.
 *
 * A device is one const table of functions plus its state. The host device is here; a plugin brings
 * others. Code that moves KV (workers, hand-off) includes only this header, so it can pass device
 * memory on without any kernel.
 *
 *   alloc --> fv_buf --> copy_async on the device's queue --> record an event --> wait/query
 *
 * Copies on one device run in the order in which they were issued; an event is reached when
 * everything issued before it is done. On the host every copy is done when the call returns, so its
 * events are always reached. One thread issues work on a device. */
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fv_device fv_device;

typedef enum fv_buf_kind {
    FV_BUF_DEVICE = 0, /* memory that the device's kernels read fastest */
    FV_BUF_PINNED,     /* host memory that the device can copy to and from without staging */
} fv_buf_kind;

typedef struct fv_buf {
    void *data;        /* address on `device`; on the host 64-byte aligned */
    size_t bytes;      /* as requested */
    fv_device *device; /* borrowed; NULL in an empty buffer */
    fv_buf_kind kind;
} fv_buf; /* {0} is an empty buffer and may be freed */

/* Rows of `bytes` bytes that move within a device's memory. The moves of a chain have the effect of one after the
 * other; no chain touches a byte that another one writes. */
typedef struct fv_row_move {
    void *to;
    const void *from;
} fv_row_move;

typedef struct fv_row_moves {
    size_t bytes; /* of a row */
    int32_t n_chain;
    const int32_t *end;      /* [n_chain], ascending: the move after a chain's last */
    const fv_row_move *move; /* [end[n_chain - 1]] */
} fv_row_moves;

typedef struct fv_event {
    void *handle; /* private to the device */
} fv_event;

typedef struct fv_device_ops {
    const char *name; /* "host", "cuda" */
    fv_status (*alloc)(fv_device *dev, size_t bytes, fv_buf_kind kind, fv_buf *out);
    void (*free)(fv_buf *buf);
    /* Either address may be on the device or on the host. */
    fv_status (*copy_async)(fv_device *dev, void *dst, const void *src, size_t bytes);
    /* Moves rows in one operation, ordered with copies. NULL: by copies. The arrays are free on return. */
    fv_status (*move_rows)(fv_device *dev, const fv_row_moves *rows);
    fv_status (*event_record)(fv_device *dev, fv_event *ev); /* creates it if empty */
    fv_status (*event_query)(fv_device *dev, fv_event *ev, bool *reached);
    fv_status (*event_wait)(fv_device *dev, fv_event *ev); /* blocks this thread */
    void (*event_free)(fv_device *dev, fv_event *ev);
    /* Seconds of the device's own clock between two reached events. NULL: no clock, as on the
     * host. */
    fv_status (*event_seconds)(fv_device *dev, const fv_event *from, const fv_event *to,
                               double *seconds);
} fv_device_ops;

struct fv_device {
    const fv_device_ops *ops;
    void *impl; /* private to the device */
};

/* The host device; always open. */
fv_device *fv_device_host(void);

/* *out owns `bytes` bytes on `dev` (contents undefined); FV_ENOMEM if the device is out of memory.
 * bytes = 0 gives an empty buffer. */
fv_status fv_buf_alloc(fv_device *dev, size_t bytes, fv_buf_kind kind, fv_buf *out);
void fv_buf_free(fv_buf *buf); /* an empty buffer is fine; empties it */

/* Waits until all issued work is done. */
fv_status fv_device_wait(fv_device *dev);

/* Moves rows as copy_async copies: issued on return. */
fv_status fv_device_move_rows(fv_device *dev, const fv_row_moves *rows);

/* Copies as copy_async does, and waits. */
fv_status fv_device_copy(fv_device *dev, void *dst, const void *src, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
