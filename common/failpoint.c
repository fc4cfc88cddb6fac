#include "common/failpoint.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"

#ifndef FV_NO_FAULTS

fv_failpoint fv_failpoint_chosen = FV_FAILPOINT_NONE;

static const char *const names[FV_N_FAILPOINT] = {
#define X(id, name) [FV_FAILPOINT_##id] = (name),
    FV_FAILPOINTS(X)
#undef X
};

fv_status fv_failpoint_hang_at(const char *name) {
    char known[400] = "";
    size_t n = 0;
    if (!name) return FV_OK;
    for (int i = 1; i < FV_N_FAILPOINT; i++) {
        if (strcmp(names[i], name) == 0) {
            fv_failpoint_chosen = (fv_failpoint)i;
            return FV_OK;
        }
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", names[i]);
    }
    return FV_FAIL(FV_EINVAL, "unknown failpoint '%s'; available: %s", name, known);
}

void fv_failpoint_hang(fv_failpoint m) {
    FV_LOG(WARN, GENERAL, "event=failpoint name=%s action=hang", names[m]);
    for (;;) pause();
}

#endif
