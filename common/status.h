#ifndef FOVEA_COMMON_STATUS_H
#define FOVEA_COMMON_STATUS_H

/* One result type for the whole system.
 *
 * A function that can fail returns fv_status; its results leave through
 * out-parameters, which are untouched on failure. Where an error is born it gets
 * a sentence that says what to do (FV_FAIL); on the way up it is only passed on
 * (FV_TRY). The sentence is kept per thread until the next FV_FAIL. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fv_status {
    FV_OK = 0,
    FV_EINVAL,       /* the request or an option is wrong: the caller can mend it */
    FV_EDATA,        /* a file or message is corrupt, truncated or inconsistent */
    FV_EUNSUPPORTED, /* well-formed, but something that this build does not do */
    FV_ENOTFOUND,    /* a file, tensor, key or handle that does not exist */
    FV_ENOMEM,       /* host or device memory, or a pool, is exhausted */
    FV_EIO,          /* reading, writing or a peer failed */
    FV_EDEVICE,      /* CUDA, cuBLAS or NCCL failed */
    FV_ECANCELLED,   /* the client went away */
    FV_EBUSY,        /* full for now: another worker, or later, may serve it */
    FV_EDEADLINE,    /* the time that was given for it is over */
    FV_EAUTH,        /* the peer has not proved who it is */
    FV_EFATAL,       /* workers are lost over it: it must not be tried again */
    FV_N_STATUS
} fv_status;

/* "EINVAL" and so on; never NULL. */
const char *fv_status_name(fv_status s);

/* Whether it is the request that cannot be served, or its caller who has left, and not a failure of
 * whoever was asked: such ends are counted and logged as what is normal. */
bool fv_status_is_callers(fv_status s);

/* The name of the gRPC status that it has outside of this process, for logs: "INVALID_ARGUMENT" and
 * so on; never NULL. The table of codes is that of rpc/status.c. */
const char *fv_status_grpc_name(fv_status s);

/* The sentence of the last FV_FAIL on this thread, without file and line: what a
 * user is shown. Empty before the first failure. Borrowed until the next one. */
const char *fv_last_error(void);

/* "file.c:12" where that failure was born, for logs. */
const char *fv_last_error_where(void);

/* Records a failure; call it through FV_FAIL. Returns `s`. */
fv_status fv_fail(fv_status s, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));

/* Puts "<prefix>: " before the sentence of the failure that is being passed up;
 * for a caller that knows which file or key was at fault. Returns `s`. */
fv_status fv_fail_prefix(fv_status s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), cold));

/* Inline, so that the compiler sees that a failure is not FV_OK and out-parameters of a
 * function that failed are not read. */
static inline fv_status fv_failed(fv_status s, fv_status recorded) {
    (void)recorded;
    return s;
}

#define FV_FAIL(s, ...) fv_failed((s), fv_fail((s), __FILE__, __LINE__, __VA_ARGS__))

#define FV_TRY(expr)                                                                               \
    do {                                                                                           \
        fv_status fv_s_ = (expr);                                                                  \
        if (fv_s_ != FV_OK) return fv_s_;                                                          \
    } while (0)

#define FV_TRY_GOTO(expr, st, label)                                                               \
    do {                                                                                           \
        (st) = (expr);                                                                             \
        if ((st) != FV_OK) goto label;                                                             \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
