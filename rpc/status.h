#ifndef FOVEA_RPC_STATUS_H
#define FOVEA_RPC_STATUS_H

/* STATUS: converts fv_status to gRPC status codes (the table: common/status.h) and back.
 *
 * A failure is sent as its code and its sentence. FV_EBUSY and FV_ENOMEM share RESOURCE_EXHAUSTED:
 * with the trailer grpc-retry-pushback-ms it means "busy, retry", without it "too large, now and
 * later". A server that gives up a request returns ABORTED; CANCELLED means that the client
 * cancelled; FAILED_PRECONDITION means not to retry; DEADLINE_EXCEEDED is a client's deadline, or a
 * server's own limit for a request. */
#include <grpc/status.h>

#include "common/status.h"

#define FV_RPC_RETRY_KEY "grpc-retry-pushback-ms"

/* The trailer with the origin of a failure (fv_origin_name). A server that does not state an origin
 * sends none. */
#define FV_RPC_ORIGIN_KEY "fovea-origin"

/* The client's text for a call that the server cancelled, as it does when it stops: UNAVAILABLE. */
#define FV_RPC_DROPPED "the server dropped the call"

enum { FV_RPC_RETRY_MS = 250, FV_RPC_TEXT_MAX = 1024 };

grpc_status_code fv_rpc_code(fv_status st);

/* Converts a code; one without a status of its own becomes the nearest. retry_ms: the peer's hint, below 0: none. */
fv_status fv_rpc_status(grpc_status_code code, int64_t retry_ms);

const char *fv_rpc_code_name(grpc_status_code code); /* "INVALID_ARGUMENT"; never NULL */

/* How a call ended. */
typedef struct fv_rpc_end {
    fv_status status;
    grpc_status_code code;
    fv_origin origin; /* as stated by the peer */
    int64_t retry_ms; /* the peer's retry hint; negative: none */
    const char *text; /* the peer's sentence, or gRPC's; never NULL; borrowed */
} fv_rpc_end;

/* Records the peer's failure as fv_last_error: its sentence, after `who` ("decode worker d1"), and
 * its origin. Returns its status. FV_OK records nothing. */
fv_status fv_rpc_end_status(const fv_rpc_end *end, const char *who);

#endif
