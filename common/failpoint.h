#ifndef FOVEA_COMMON_FAILPOINT_H
#define FOVEA_COMMON_FAILPOINT_H

/* MOMENTS in the life of a request at which its worker may die: a help for tests. A worker that was
 * started with --hang-at NAME lets the thread that first comes to this moment hang there for ever,
 * while its other threads go on; the log says so ("event=moment"), and the test kills the process.
 * Otherwise a moment is one comparison. In builds to be installed (FV_NO_FAULTS) there is no such
 * option, and a moment is nothing. */
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(enum, name) in the order in which a request comes by. */
#define FV_FAILPOINTS(X)                                                                           \
    X(PREFILL_QUEUED, "prefill-queued")       /* it has its place in the line */                   \
    X(PREFILL_OPENING, "prefill-opening")     /* the decode worker was asked for room */           \
    X(PREFILL_READY, "prefill-ready")         /* and has granted it */                             \
    X(PREFILL_COMPUTING, "prefill-computing") /* some layers are final */                          \
    X(PREFILL_TOKEN, "prefill-token")         /* the first token is on its way to the client */    \
    X(PREFILL_SHIPPING, "prefill-shipping")   /* all rows are under way, the commit is not */      \
    X(PREFILL_COMMITTED, "prefill-committed") /* the decode worker says that it has all */         \
    X(PREFILL_OVER, "prefill-over")           /* and so does this one: its report is sent */       \
    X(DECODE_GRANTED, "decode-granted")       /* room is promised */                               \
    X(DECODE_RECEIVING, "decode-receiving")   /* a frame has come */                               \
    X(DECODE_COMMITTED, "decode-committed")   /* all is there, nobody has claimed it */            \
    X(DECODE_RUNNING, "decode-running")       /* some tokens were chosen */                        \
    X(DECODE_OVER, "decode-over")             /* the last one too; nobody has heard of the end */

typedef enum fv_failpoint {
    FV_FAILPOINT_NONE = 0,
#define X(id, name) FV_FAILPOINT_##id,
    FV_FAILPOINTS(X)
#undef X
        FV_N_FAILPOINT
} fv_failpoint;

#ifndef FV_NO_FAULTS

extern fv_failpoint fv_failpoint_chosen; /* private; set before there are threads */

/* Chooses the moment; NULL: none. FV_EINVAL lists the names. */
fv_status fv_failpoint_hang_at(const char *name);

/* Says that a request has come to this moment. Any thread. */
void fv_failpoint_hang(fv_failpoint m);
static inline void fv_failpoint_reached(fv_failpoint m) {
    if (m == fv_failpoint_chosen) fv_failpoint_hang(m);
}

#else

static inline void fv_failpoint_reached(fv_failpoint m) { (void)m; }

#endif

#ifdef __cplusplus
}
#endif
#endif
