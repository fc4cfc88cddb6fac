#ifndef FOVEA_HANDOFF_REFUSAL_H
#define FOVEA_HANDOFF_REFUSAL_H

/* REFUSALS: the reason why a hand-off was refused, in addition to the fv_status of a failure, for
 * counters, logs and the peer. Each reason has one status. A function that refuses returns
 * FV_REFUSE(REASON, message), which records both; fv_refusal_of reads the reason until the next
 * failure. */
#include "common/status.h"

#define FV_REFUSALS(X)                                                                             \
    X(NONE, "none", FV_OK, "accepted")                                                             \
    X(INCOMPATIBLE, "incompatible", FV_EUNSUPPORTED, "the two sides differ")                       \
    X(INVALID, "invalid", FV_EINVAL, "the request is inconsistent")                                \
    X(NO_ROOM, "no_room", FV_EBUSY, "no memory, or no grant, is free")                             \
    X(TENANT_FULL, "tenant_full", FV_EBUSY, "the tenant holds all the memory that it may have")    \
    X(TOO_LARGE, "too_large", FV_ENOMEM, "more than the worker's total memory")                    \
    X(PREEMPTED, "preempted", FV_EBUSY, "the answer's memory went to another answer")              \
    X(PENDING, "pending", FV_EBUSY, "the hand-off is not committed yet")                           \
    X(UNKNOWN_GRANT, "unknown_grant", FV_ENOTFOUND, "no such grant")                               \
    X(STALE_EPOCH, "stale_epoch", FV_ECANCELLED, "the grant was replaced by a later one")          \
    X(EXPIRED, "expired", FV_ECANCELLED, "the grant's deadline has passed")                        \
    X(CLOSED, "closed", FV_ECANCELLED, "the grant is committed or given up")                       \
    X(DUPLICATE, "duplicate", FV_EDATA, "a frame came twice")                                      \
    X(OUT_OF_ORDER, "out_of_order", FV_EDATA, "a frame is missing before this one")                \
    X(NO_CREDIT, "no_credit", FV_EDATA, "more frames in flight than granted")                      \
    X(OVER_BUDGET, "over_budget", FV_EDATA, "more bytes or tokens than granted")                   \
    X(FRAME_SIZE, "frame_size", FV_EDATA, "an empty or oversized frame")                           \
    X(CHECKSUM, "checksum", FV_EDATA, "bytes were corrupted in transfer")                          \
    X(MALFORMED, "malformed", FV_EDATA, "a section that contradicts the protocol")                 \
    X(UNKNOWN_SECTION, "unknown_section", FV_EUNSUPPORTED, "an unknown critical section")          \
    X(TRUNCATED, "truncated", FV_EDATA, "the stream ended early")

typedef enum fv_refusal {
#define X(reason, name, status, text) FV_REFUSED_##reason,
    FV_REFUSALS(X)
#undef X
        FV_N_REFUSAL
} fv_refusal;

enum {
#define X(reason, name, status, text) FV_REFUSAL_STATUS_##reason = status,
    FV_REFUSALS(X)
#undef X
};

const char *fv_refusal_name(fv_refusal r); /* "checksum"; for metrics and logs */
const char *fv_refusal_text(fv_refusal r); /* a few words */

/* The refusal with this name of n bytes, from the trailer FV_REFUSAL_KEY of a call; an unknown name is
 * FV_REFUSED_NONE. */
#define FV_REFUSAL_KEY "fovea-refusal"
fv_refusal fv_refusal_named(const char *name, size_t n);

fv_status fv_refusal_status(fv_refusal r);

/* The reason of the failure that was just returned: the recorded one, or for a failure without a reason
 * NO_ROOM (FV_EBUSY, FV_ENOMEM) or INVALID. FV_OK: NONE. */
fv_refusal fv_refusal_of(fv_status st);

#define FV_REFUSE_AS(status, reason, ...)                                                          \
    fv_failed((status),                                                                            \
              fv_fail_origin(                                                                      \
                  fv_fail_reason(fv_fail((status), __FILE__, __LINE__, __VA_ARGS__), (reason)),    \
                  FV_ORIGIN_HANDOFF))
#define FV_REFUSE(reason, ...)                                                                     \
    FV_REFUSE_AS((fv_status)FV_REFUSAL_STATUS_##reason, FV_REFUSED_##reason, __VA_ARGS__)

#endif
