#ifndef FOVEA_KERNELS_BACKENDS_OPEN_H
#define FOVEA_KERNELS_BACKENDS_OPEN_H

/* Opens a backend by its name. The CPU's table is part of the program; CUDA's is in a plugin
 * (kernels/plugin.h), libfovea_cuda.so, which is loaded when it is asked for. */
#include "kernels/ops.h"

/* "cpu", "cuda", or "auto" (also NULL): CUDA where its plugin and a device are found, and else the
 * CPU, unless a device's number or a trace is asked for. FV_EINVAL: an unknown backend or ISA;
 * FV_EUNSUPPORTED: one that this machine lacks, or a plugin that does not fit; the sentence names
 * it. *be is closed with fv_backend_close. */
fv_status fv_backend_open(fv_backend *be, const char *name, const fv_backend_options *opt);

/* The directory of plugins, borrowed; NULL (the default): the program's. Before backends are opened.
 */
void fv_plugin_set_dir(const char *dir);

#endif
