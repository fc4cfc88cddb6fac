#ifndef FOVEA_HANDOFF_TRANSPORT_H
#define FOVEA_HANDOFF_TRANSPORT_H

/* TRANSPORTS: how frames get from a prefill worker to a decode worker.
 *
 *   prefill-worker/export/export.c ---- fv_transport_ops ----> in-process: a call; else: a network
 *                               open, push, commit, end                 |
 *   decode-worker/receive/receive.c <-- fv_sink_ops ------------------------- <-+
 *                               offer, frame, commit, abort
 *
 * A transport is one const table of functions plus its state; so is a sink. Nothing blocks: results
 * come through a callback, before the call returns where that is possible, and push takes frames
 * without sending them at once. So a computing thread can use a transport that belongs to
 * another thread, and a silent peer blocks nobody.
 *
 * Frames on a device may go directly to the other side's device, out of band, if both sides can
 * (common/peer.h); if that fails, the transport sends them in the stream.
 *
 * A hand-off is: open; after the grant, push frames in order; commit; end, in every case.
 * The memory of frames stays untouched until end has completed. */
#include "common/peer.h"
#include "common/trace_context.h"
#include "handoff/grant.h"
#include "handoff/kv_sections.h"

typedef struct fv_transport fv_transport; /* the way to one decode worker */
typedef struct fv_transfer fv_transfer;   /* one hand-off on it */
typedef struct fv_sink fv_sink;

/* ---- the receiving side, as a transport sees it ---------------------------------------- */

/* Where a function refuses, the sentence is in fv_last_error. */
typedef struct fv_sink_ops {
    fv_status (*offer)(fv_sink *sink, const fv_hello *hello, fv_grant *out);
    /* Consumes the frame before it returns. A refusal ends the hand-off that it belongs to. */
    fv_status (*frame)(fv_sink *sink, const fv_ticket *ticket, uint64_t seq, const fv_piece *piece,
                       int32_t n_piece);
    /* The same for a frame on the sink's device: n bytes with this CRC32C. */
    fv_status (*oob)(fv_sink *sink, const fv_ticket *ticket, uint64_t seq, const void *bytes,
                     size_t n, uint32_t crc);
    fv_status (*commit)(fv_sink *sink, const fv_ticket *ticket, uint64_t n_frame);
    fv_status (*renew)(fv_sink *sink, const fv_ticket *ticket); /* the sender is still there */
    /* Also of one that is committed, unless it was attached to. */
    void (*abort)(fv_sink *sink, const fv_ticket *ticket);
} fv_sink_ops;

struct fv_sink {
    const fv_sink_ops *ops;
};

/* ---- the sending side ------------------------------------------------------------------ */

/* The answer to open or to commit. */
typedef struct fv_reply {
    fv_refusal refusal; /* FV_REFUSED_NONE: granted; or committed */
    fv_status status;   /* FV_OK, the refusal's status, or the transport's own failure */
    char text[512];     /* the sentence, when status is not FV_OK */
    fv_grant grant;     /* after open */
    double at_s;        /* when it came, by fv_clock_s: it may be delivered later */
} fv_reply;

/* What has gone which way, so far. */
typedef struct fv_transfer_ways {
    uint64_t bytes_oob;  /* from device to device */
    uint64_t n_fallback; /* frames that were to go so, and did not */
} fv_transfer_ways;

/* Called once, unless the transfer is ended before. `reply` is borrowed for the call. */
typedef void (*fv_on_reply)(void *user, const fv_reply *reply);

/* The request that the memory is for, and how long it may wait for it. {0}: no request, and a
 * refusal comes at once. */
typedef struct fv_asking {
    const char *request_id; /* NULL: none */
    uint32_t age_ms;        /* since the request came to its router: the oldest is served first */
    uint32_t wait_ms;       /* to wait for memory, at most */
    const char *tenant;     /* whose request it is; NULL: "" */
    uint64_t tenant_bytes;  /* of KV that its requests may have together; 0: no limit */
    /* The router's token, which authorizes the request for memory and for a peer link; NULL:
     * none. */
    const char *open_token, *pair_token;
    fv_trace_context trace; /* that the hand-off belongs to; {0}: none */
} fv_asking;

typedef struct fv_transport_ops {
    const char *name; /* "inproc", "grpc", ...: in reports and metrics */
    /* *out is owned by the caller until `end`, also when the answer is a refusal. `asking` is
     * borrowed for the call; NULL is {0}. */
    fv_status (*open)(fv_transport *t, const fv_hello *hello, const fv_asking *asking,
                      fv_on_reply done, void *user, fv_transfer **out);
    /* Takes frame number seq; the array is borrowed for the call, the bytes until the end. A
     * failure (of this frame or of one before it) means that the hand-off is lost. */
    fv_status (*push)(fv_transfer *x, uint64_t seq, const fv_piece *piece, int32_t n_piece);
    /* (optional) How frames on a device can be sent from there now; NULL: not at all, copy them to
     * the host. */
    const fv_peer_ops *(*oob)(fv_transfer *x);
    /* (with it) Takes frame number seq, which the buffer on that device is, at most
     * FV_PEER_BYTES_MAX bytes; its contents are there. The buffer is the transport's, also when it
     * fails, which is as with push. */
    fv_status (*push_oob)(fv_transfer *x, uint64_t seq, fv_buf buf);
    fv_transfer_ways (*ways)(const fv_transfer *x); /* (with it) */
    void (*commit)(fv_transfer *x, uint64_t n_frame, fv_on_reply done, void *user);
    /* Gives the hand-off up; with `keep` not one that is committed. No answer comes after it.
     * `gone` (or NULL) is called, perhaps at once, when nothing of the sender's is touched any
     * more. */
    void (*end)(fv_transfer *x, bool keep, void (*gone)(void *user), void *user);
    /* All its transfers have ended. `closed` (or NULL) is called, perhaps at once, when nothing of
     * it is under way any more. */
    void (*close)(fv_transport *t, void (*closed)(void *user), void *user);
} fv_transport_ops;

struct fv_transport {
    const fv_transport_ops *ops;
};

struct fv_transfer {
    const fv_transport_ops *ops;
};

/* NULL is fine: `closed` runs at once. */
void fv_transport_close(fv_transport *t, void (*closed)(void *user), void *user);

size_t fv_pieces_bytes(const fv_piece *piece, int32_t n);

/* ---- in this process ------------------------------------------------------------------- */

/* Calls the sink directly, on the caller's thread: rows are copied once, from the sender's memory
 * into what the grant set aside. */
fv_status fv_transport_inproc(fv_sink *sink, fv_transport **out); /* borrows the sink */

#endif
