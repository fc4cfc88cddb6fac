/* The backends of this build, by name. "auto" takes the first that opens. */
#include <string.h>

#include "kernels/cpu/path.h"
#include "kernels/ops.h"

static const fv_backend_ops *const tables[] = {&fv_backend_cpu};

enum { N_TABLE = sizeof tables / sizeof *tables };

fv_status fv_backend_open(fv_backend *be, const char *name, const fv_backend_options *opt) {
    static const fv_backend_options defaults;
    if (!opt) opt = &defaults;
    bool any = !name || strcmp(name, "auto") == 0;
    for (int i = 0; i < N_TABLE; i++) {
        if (!any && strcmp(name, tables[i]->name) != 0) continue;
        fv_status s = tables[i]->open(be, opt);
        if (s == FV_OK || !any || i == N_TABLE - 1) return s;
    }
    return FV_FAIL(FV_EINVAL, "backend '%s': choose auto or cpu", name);
}

void fv_backend_close(fv_backend *be) {
    if (be->ops) be->ops->close(be);
    *be = (fv_backend){0};
}

void fv_backend_each(fv_backend *be, int32_t n, fv_each_fn *fn, void *arg) {
    if (be->ops->each && n > 1) {
        be->ops->each(be, n, fn, arg);
        return;
    }
    for (int32_t i = 0; i < n; i++) fn(arg, be, 0, i);
}

const char *fv_backend_isa(const fv_backend *be) {
    return be->ops == &fv_backend_cpu ? fv_cpu_backend_isa(be) : be->ops->name;
}
