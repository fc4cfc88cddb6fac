/* Logs refused peers, at most FV_AUDIT_PER_S lines a second. Loop thread. */
#include "serving/audit.h"

#include "common/clock.h"
#include "common/log.h"

void fv_audit_refused(fv_audit *a, fv_rpc_call *call, const char *why) {
    double now = fv_clock_s();
    if (now - a->second_s >= 1) {
        a->second_s = now;
        a->n = 0;
    }
    if (a->n++ >= FV_AUDIT_PER_S) {
        a->unsaid++;
        return;
    }
    FV_LOG(WARN, WIRE, "event=refused peer=%s method=%s reason=\"%s\" unsaid=%u",
           fv_rpc_call_peer(call), fv_rpc_call_path(call), why, a->unsaid);
    a->unsaid = 0;
}
