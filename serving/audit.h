#ifndef FOVEA_SERVING_AUDIT_H
#define FOVEA_SERVING_AUDIT_H

/* AUDIT: a log line for each peer that is refused because of its identity. Never logs its credential: no
 * token, key or ticket. Loop thread. */
#include "rpc/call.h"

enum { FV_AUDIT_PER_S = 20 }; /* further refusals are counted, and the next line has their number */

typedef struct fv_audit {
    double second_s; /* when the current second began */
    int32_t n;       /* refusals in it */
    uint32_t unsaid; /* refusals without a line since the last line */
} fv_audit;          /* {0} begins */

/* Logs "event=refused peer=... method=... reason=...". */
void fv_audit_refused(fv_audit *a, fv_rpc_call *call, const char *why);

#endif
