#ifndef FOVEA_SERVING_AUDIT_H
#define FOVEA_SERVING_AUDIT_H

/* AUDIT: a line of the log for each peer that is refused for who it is. Never what it has shown: no
 * token, key or ticket. Loop thread. */
#include "rpc/call.h"

enum { FV_AUDIT_PER_S = 20 }; /* more are counted, and the next line has their number */

typedef struct fv_audit {
    double second_s; /* when the present second began */
    int32_t n;       /* lines in it */
    uint32_t unsaid;
} fv_audit; /* {0} */

/* "event=refused peer=... method=... reason=..." */
void fv_audit_refused(fv_audit *a, fv_rpc_call *call, const char *why);

#endif
