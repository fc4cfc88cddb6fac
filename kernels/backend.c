/* Calls to entries of a backend's table that may be absent. */
#include <string.h>

#include "kernels/tier.h"

void fv_backend_close(fv_backend *be) {
    if (be->ops) be->ops->close(be);
    *be = (fv_backend){0};
}

fv_status fv_backend_step_begin(fv_backend *be, int32_t rows) {
    return be->ops->step_begin ? be->ops->step_begin(be, rows) : FV_OK;
}

fv_status fv_backend_step_end(fv_backend *be) {
    return be->ops->step_end ? be->ops->step_end(be) : FV_OK;
}

fv_status fv_backend_each(fv_backend *be, int32_t n, fv_each_fn *fn, void *arg) {
    if (n == 0) return FV_OK;
    if (be->ops->each) return be->ops->each(be, n, fn, arg);
    for (int32_t i = 0; i < n; i++) fn(arg, be, 0, i);
    return FV_OK;
}

const char *fv_backend_lost(const fv_backend *be) {
    return be->ops && be->ops->lost ? be->ops->lost(be) : NULL;
}

fv_tier fv_backend_tier(const fv_backend *be) {
    if (strcmp(be->isa, "cuda") == 0) return FV_TIER_AUTO;
    return strcmp(be->isa, "cuda-fast") == 0 ? FV_TIER_FAST : FV_TIER_EXACT;
}
