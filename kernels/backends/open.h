#ifndef FOVEA_KERNELS_BACKENDS_OPEN_H
#define FOVEA_KERNELS_BACKENDS_OPEN_H

/* Opens a backend by its name. The CPU's table is part of the program; CUDA's is in a plugin
 * (kernels/plugin.h), libfovea_cuda.so, which is loaded on demand. */
#include "kernels/ops.h"

/* "cpu", "cuda", or "auto" (also NULL): CUDA if its plugin and a device are found, otherwise the CPU,
 * unless `opt` names a device or a trace. FV_EINVAL: an unknown backend or ISA; FV_EUNSUPPORTED: this
 * machine lacks it, or the plugin was built from other headers; the message names it. Close *be with
 * fv_backend_close. */
fv_status fv_backend_open(fv_backend *be, const char *name, const fv_backend_options *opt);

/* Sets the directory of plugins, borrowed; NULL (the default): the program's. Call it before opening
 * backends. */
void fv_plugin_set_dir(const char *dir);

#endif
