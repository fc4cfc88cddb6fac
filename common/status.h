#ifndef FOVEA_COMMON_STATUS_H
#define FOVEA_COMMON_STATUS_H

/* STATUS: the result type of the whole system.
 *
 * A function that can fail returns fv_status; its results leave through out-parameters, which are
 * untouched on failure. The place where an error occurs gives it a message that says what to do
 * (FV_FAIL); callers only pass it on (FV_TRY). The message is kept per thread until the next
 * FV_FAIL. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The statuses: name, code and name of the gRPC status that stands for it outside this process
 * (rpc/status.h), and whether the caller caused it (fv_status_is_callers). */
#define FV_STATUSES(X)                                                                             \
    X(OK, 0, "OK", false)                                                                          \
    X(EINVAL, 3, "INVALID_ARGUMENT", true)     /* the request or an option is wrong */             \
    X(EDATA, 15, "DATA_LOSS", false)           /* a file or message is corrupt or inconsistent */  \
    X(EUNSUPPORTED, 12, "UNIMPLEMENTED", true) /* well-formed, but not supported by this build */  \
    X(ENOTFOUND, 5, "NOT_FOUND", true)         /* no such file, tensor, key or handle */           \
    X(ENOMEM, 8, "RESOURCE_EXHAUSTED", false) /* host or device memory, or a pool, is exhausted */ \
    X(EIO, 14, "UNAVAILABLE", false)          /* reading, writing or a peer failed */              \
    X(EDEVICE, 13, "INTERNAL", false)         /* CUDA, cuBLAS or NCCL failed */                    \
    X(ECANCELLED, 10, "ABORTED", true)        /* the client went away */                           \
    X(EBUSY, 8, "RESOURCE_EXHAUSTED", false)  /* busy: retry later, or elsewhere */                \
    X(EDEADLINE, 4, "DEADLINE_EXCEEDED", false) /* the deadline has passed */                      \
    X(EAUTH, 16, "UNAUTHENTICATED", false)      /* the peer has not authenticated */               \
    X(EDENIED, 7, "PERMISSION_DENIED", false)   /* the peer is known, and may not do this */       \
    X(EFATAL, 9, "FAILED_PRECONDITION", false)  /* the request crashes workers: never retry it */

typedef enum fv_status {
#define X(name, code, grpc_name, callers) FV_##name,
    FV_STATUSES(X)
#undef X
        FV_N_STATUS
} fv_status;

/* Returns "EINVAL" and so on; never NULL. */
const char *fv_status_name(fv_status s);

/* Whether the caller caused the failure: the request is invalid, or the caller has left. Such failures
 * are counted and logged as normal, not as failures of the server. */
bool fv_status_is_callers(fv_status s);

/* Return the status's gRPC code and name: 3 and "INVALID_ARGUMENT" and so on; 2 and "UNKNOWN" for an
 * unknown status. */
int fv_status_grpc_code(fv_status s);
const char *fv_status_grpc_name(fv_status s);

/* Returns the message of the last FV_FAIL on this thread, for users: without file and line and without
 * control characters. Empty before the first failure. Borrowed until the next one. */
const char *fv_last_error(void);

/* Returns where the failure occurred, for logs: "file.c:12". */
const char *fv_last_error_where(void);

/* Records a failure; call it through FV_FAIL. Returns `s`. */
fv_status fv_fail(fv_status s, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));

/* Puts "<prefix>: " before the message of the failure that is being passed up, for a caller that knows
 * which file or key was at fault. Returns `s`. */
fv_status fv_fail_prefix(fv_status s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), cold));

/* Origins: whose fault a failure is. The status alone does not say: FV_EDATA may be a caller's broken
 * template, a broken file of the checkpoint or a damaged hand-off. Only the code that finds a fault knows
 * its origin, so it states it there. The origin goes with the failure from process to process
 * (rpc/status.h) and decides what is done about it (router/failure.c). */
#define FV_ORIGINS(X)                                                                              \
    X(UNSTATED, "")             /* unknown */                                                      \
    X(CALLER, "caller")         /* the bytes of the request: they fail everywhere */               \
    X(CHECKPOINT, "checkpoint") /* the model's files: they fail on every worker that has them */   \
    X(HANDOFF, "handoff")       /* the transfer of KV between two workers */                       \
    X(WORKER, "worker")         /* the process, its device or its machine */

typedef enum fv_origin {
#define X(name, word) FV_ORIGIN_##name,
    FV_ORIGINS(X)
#undef X
        FV_N_ORIGIN
} fv_origin;

fv_origin fv_last_origin(void);                        /* origin of this thread's last failure */
const char *fv_origin_name(fv_origin o);               /* "caller"; "" for UNSTATED */
fv_origin fv_origin_named(const char *name, size_t n); /* by name [n]; UNSTATED if unknown */

/* Gives the failure just recorded this origin; returns false if it has one already. */
bool fv_origin_claim(fv_origin o);

/* Passes `s` on; gives a failure this origin unless it has one, because code nearer to the fault knows
 * better. */
static inline fv_status fv_fail_origin(fv_status s, fv_origin o) {
    if (s != FV_OK) (void)fv_origin_claim(o);
    return s;
}

/* The same for a failure while bytes of a caller were read or rendered. A status that says that they are
 * wrong becomes FV_EINVAL with the origin CALLER; FV_EDEADLINE, because they took too long, gets only the
 * origin. Others, such as FV_ENOMEM, are not the caller's fault and pass unchanged, as does a failure that
 * has an origin. */
static inline fv_status fv_fail_caller(fv_status s) {
    bool wrong = s == FV_EINVAL || s == FV_EDATA || s == FV_EUNSUPPORTED || s == FV_ENOTFOUND;
    bool known = wrong || s == FV_EDEADLINE;
    return known && fv_origin_claim(FV_ORIGIN_CALLER) && wrong ? FV_EINVAL : s;
}

/* A failure kept for another thread or for later. */
typedef struct fv_error {
    fv_status status; /* FV_OK: no failure, and the rest is empty */
    fv_origin origin;
    char text[512];
} fv_error;

void fv_error_take(fv_error *f, fv_status s); /* with the last failure's message and origin */
fv_status fv_error_raise(const fv_error *f);  /* records it on this thread; returns its status */

/* A reason is finer than the status; a higher layer defines its values (handoff/refusal.h).
 * fv_last_reason returns the last failure's, 0 if it has none. fv_fail_reason sets it for the failure just
 * recorded and returns `s`; fv_fail_prefix keeps it. */
int fv_last_reason(void);
fv_status fv_fail_reason(fv_status s, int reason);

/* Returns `s`, inline, so that the compiler sees that a failure is not FV_OK, and does not warn about
 * out-parameters of a function that failed. */
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
