#ifndef FOVEA_COMMON_FAILPOINT_H
#define FOVEA_COMMON_FAILPOINT_H

/* FAILPOINTS: points in the life of a request where a test can stop its worker. In a worker started
 * with --hang-at NAME, the first thread that reaches this failpoint hangs forever, while the other
 * threads go on. The log says so ("event=failpoint"), and the test kills the process. All other
 * failpoints cost one comparison. Builds for installation (FV_NO_FAULTS) have neither the option
 * nor the failpoints. */
#include "common/status.h"

/* X(enum, name) in the order in which a request reaches them. */
#define FV_FAILPOINTS(X)                                                                           \
    X(PREFILL_QUEUED, "prefill-queued")       /* the request is queued */                          \
    X(PREFILL_OPENING, "prefill-opening")     /* asked the decode worker for memory */             \
    X(PREFILL_READY, "prefill-ready")         /* the decode worker granted it */                   \
    X(PREFILL_COMPUTING, "prefill-computing") /* some layers are final */                          \
    X(PREFILL_TOKEN, "prefill-token")         /* the first token is on its way to the client */    \
    X(PREFILL_EXPORTING, "prefill-exporting") /* all rows are sent, the commit is not */           \
    X(PREFILL_COMMITTED, "prefill-committed") /* the decode worker confirmed the commit */         \
    X(PREFILL_OVER, "prefill-over")           /* this worker is done: its report is sent */        \
    X(DECODE_GRANTED, "decode-granted")       /* memory is granted */                              \
    X(DECODE_RECEIVING, "decode-receiving")   /* a frame has arrived */                            \
    X(DECODE_COMMITTED,                                                                            \
      "decode-committed")               /* everything was received, the router has not attached */ \
    X(DECODE_RUNNING, "decode-running") /* some tokens are sampled */                              \
    X(DECODE_OVER, "decode-over")       /* the last token is sampled, the end is not reported */

typedef enum fv_failpoint {
    FV_FAILPOINT_NONE = 0,
#define X(id, name) FV_FAILPOINT_##id,
    FV_FAILPOINTS(X)
#undef X
        FV_N_FAILPOINT
} fv_failpoint;

#ifndef FV_NO_FAULTS

extern fv_failpoint fv_failpoint_chosen; /* private; set before threads start */

/* Selects the failpoint; NULL: none. FV_EINVAL lists the names. */
fv_status fv_failpoint_hang_at(const char *name);

/* Called when a request reaches failpoint `m`. Any thread. */
void fv_failpoint_hang(fv_failpoint m);
static inline void fv_failpoint_reached(fv_failpoint m) {
    if (m == fv_failpoint_chosen) fv_failpoint_hang(m);
}

#else

static inline void fv_failpoint_reached(fv_failpoint m) { (void)m; }

#endif

#endif
