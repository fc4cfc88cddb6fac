/* Backends by name. The CPU's table is part of the program; others are in plugins. "auto" takes
 * CUDA where its plugin lies and a device is there, and else the CPU. */
#include <string.h>

#include "common/log.h"
#include "kernels/ops.h"
#include "kernels/plugin.h"

static fv_status open_cuda(fv_backend *be, const fv_backend_options *opt) {
    const fv_backend_ops *ops;
    FV_TRY(fv_plugin_load("cuda", &ops));
    return ops->open(be, opt);
}

fv_status fv_backend_open(fv_backend *be, const char *name, const fv_backend_options *opt) {
    static const fv_backend_options defaults;
    if (!opt) opt = &defaults;
    bool any = !name || strcmp(name, "auto") == 0;
    if (any || strcmp(name, "cuda") == 0) {
        fv_status st = open_cuda(be, opt);
        bool wanted = !any || opt->device > 0 || opt->trace; /* who names a GPU wants one */
        if (st == FV_OK || wanted) return st;
        FV_LOG(INFO, KERNELS, "backend=cpu reason=\"not cuda: %s\"", fv_last_error());
        any = true;
    }
    if (any || strcmp(name, "cpu") == 0) return fv_backend_cpu.open(be, opt);
    return FV_FAIL(FV_EINVAL, "device '%s': choose auto, cpu or cuda", name);
}

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
