#ifndef FOVEA_HANDOFF_TRANSPORT_H
#define FOVEA_HANDOFF_TRANSPORT_H

/* TRANSPORTS carry frames from a prefill worker to a decode worker.
 *
 *   prefill-worker/export/export.c ---- fv_transport_ops ----> in-process: a call; else: a network
 *                               open, push, commit, end                 |
 *   decode-worker/receive/receive.c <-- fv_sink_ops ------------------------- <-+
 *                               offer, frame, commit, abort
 *
 * A transport is one const table of functions plus its state; so is a sink. Nothing blocks: results
 * come through a callback, if possible before the call returns, and push takes frames without sending
 * them at once. So a computing thread can use a transport that belongs to another thread, and a silent
 * peer blocks nobody.
 *
 * Frames on a device may go directly to the other side's device, out of band, if both sides can
 * (common/peer.h); if that fails, the transport sends them in the stream.
 *
 * A hand-off is: open; after the grant, push frames in order; commit; end, in every case.
 * The memory of frames stays unchanged until end has completed. */
#include "common/peer.h"
#include "common/trace_context.h"
#include "handoff/grant.h"
#include "handoff/kv_sections.h"

typedef struct fv_transport fv_transport; /* the connection to one decode worker */
typedef struct fv_transfer fv_transfer;   /* one hand-off on it */
typedef struct fv_sink fv_sink;

/* ---- the receiving side ---------------------------------------------------------------- */

/* The receiver's functions for a transport. If one refuses, fv_last_error has the message. */
typedef struct fv_sink_ops {
    fv_status (*offer)(fv_sink *sink, const fv_hello *hello, fv_grant *out);
    /* Consumes the frame before it returns. A refusal ends the frame's hand-off. */
    fv_status (*frame)(fv_sink *sink, const fv_ticket *ticket, uint64_t seq, const fv_piece *piece,
                       int32_t n_piece);
    /* Takes a frame on the sink's device: n bytes with this CRC32C. */
    fv_status (*oob)(fv_sink *sink, const fv_ticket *ticket, uint64_t seq, const void *bytes,
                     size_t n, uint32_t crc);
    fv_status (*commit)(fv_sink *sink, const fv_ticket *ticket, uint64_t n_frame);
    fv_status (*renew)(fv_sink *sink, const fv_ticket *ticket); /* the sender is still alive */
    /* Ends a hand-off, even a committed one unless it has been attached. */
    void (*abort)(fv_sink *sink, const fv_ticket *ticket);
} fv_sink_ops;

struct fv_sink {
    const fv_sink_ops *ops;
};

/* ---- the sending side ------------------------------------------------------------------ */

/* The answer to open or to commit. */
typedef struct fv_reply {
    fv_refusal refusal; /* FV_REFUSED_NONE: granted or committed, if status is FV_OK */
    fv_status status;   /* FV_OK, the refusal's status, or the transport's own failure */
    char text[512];     /* the message, if status is not FV_OK */
    fv_grant grant;     /* after open */
    double at_s;        /* time of arrival, by fv_clock_s; the callback may run later */
} fv_reply;

/* Counters of out-of-band frames. */
typedef struct fv_transfer_counts {
    uint64_t bytes_oob;  /* sent from device to device */
    uint64_t n_fallback; /* frames that fell back to the stream */
} fv_transfer_counts;

/* Called once, unless `end` is called before. `reply` is borrowed for the call. */
typedef void (*fv_on_reply)(void *user, const fv_reply *reply);

/* The request that needs the memory, and how long it may wait for it. {0}: no request, and no waiting. */
typedef struct fv_grant_request {
    const char *request_id; /* NULL: none */
    uint32_t age_ms;        /* since the request reached its router: the oldest is served first */
    uint32_t wait_ms;       /* longest wait for memory */
    bool reserve_all, open_ended; /* as in OpenRequest (handoff.proto) */
    uint32_t n_replay;            /* likewise */
    uint64_t bytes_replay;        /* likewise */
    const char *tenant;           /* the request's tenant; NULL: "" */
    uint64_t tenant_bytes;        /* the most KV of all requests of the tenant; 0: no limit */
    /* The router's token, which authorizes the request for memory and for a peer link; NULL:
     * none. */
    const char *open_token, *pair_token;
    fv_trace_context trace; /* the trace of the hand-off; {0}: none */
} fv_grant_request;

typedef struct fv_transport_ops {
    const char *name; /* "inproc", "grpc", ...: in reports and metrics */
    /* The caller owns *out until `end`, even if the answer is a refusal. `asking` is borrowed for the call;
     * NULL is {0}. */
    fv_status (*open)(fv_transport *t, const fv_hello *hello, const fv_grant_request *asking,
                      fv_on_reply done, void *user, fv_transfer **out);
    /* Takes frame number seq; the array is borrowed for the call, the bytes until `end`. A failure, of this
     * frame or an earlier one, means that the hand-off is lost. */
    fv_status (*push)(fv_transfer *x, uint64_t seq, const fv_piece *piece, int32_t n_piece);
    /* (optional) The operations with which frames on a device can be sent directly now; NULL: copy them to
     * the host. */
    const fv_peer_ops *(*oob)(fv_transfer *x);
    /* (with oob) Takes frame number seq, a complete buffer on that device of at most FV_PEER_BYTES_MAX
     * bytes. Takes the buffer even if it fails, which means the same as for push. */
    fv_status (*push_oob)(fv_transfer *x, uint64_t seq, fv_buf buf);
    fv_transfer_counts (*ways)(const fv_transfer *x); /* (with oob) */
    void (*commit)(fv_transfer *x, uint64_t n_frame, fv_on_reply done, void *user);
    /* Ends the transfer, and cancels the hand-off, unless it is committed and `keep` is set. No answer comes
     * afterwards. Calls `gone` (or NULL), perhaps at once, when the sender's memory is no longer used. */
    void (*end)(fv_transfer *x, bool keep, void (*gone)(void *user), void *user);
    /* Closes the transport, whose transfers have all ended. Calls `closed` (or NULL), perhaps at once, when
     * nothing is pending. */
    void (*close)(fv_transport *t, void (*closed)(void *user), void *user);
} fv_transport_ops;

struct fv_transport {
    const fv_transport_ops *ops;
};

struct fv_transfer {
    const fv_transport_ops *ops;
};

/* Closes t; NULL is fine: `closed` runs at once. */
void fv_transport_close(fv_transport *t, void (*closed)(void *user), void *user);

size_t fv_pieces_bytes(const fv_piece *piece, int32_t n);

/* ---- in this process ------------------------------------------------------------------- */

/* Opens a transport that calls the sink directly, on the caller's thread: rows are copied once, from the
 * sender's memory into the granted memory. */
fv_status fv_transport_inproc(fv_sink *sink, fv_transport **out); /* borrows the sink */

#endif
