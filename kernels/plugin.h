#ifndef FOVEA_KERNELS_PLUGIN_H
#define FOVEA_KERNELS_PLUGIN_H

/* A backend in a shared library of its own, libfovea_<name>.so, which is loaded on demand
 * (kernels/backends): the same programs run with and without its toolkit and driver.
 *
 * The library exports one variable, fv_plugin_v1, and takes fv_fail and the log from the program.
 * A library built from other headers than the program would misread arguments; each side carries a
 * digest of the headers (FV_PLUGIN_CONTRACT, by CMake), and the program refuses a library whose digest
 * differs. */
#include "kernels/ops.h"

enum { FV_PLUGIN_ABI = 2 };
#define FV_PLUGIN_SYMBOL "fv_plugin_v1"

typedef struct fv_plugin {
    uint32_t abi;         /* FV_PLUGIN_ABI: the meaning of the fields that follow */
    const char *contract; /* digest of the headers that both sides were built from */
    const fv_backend_ops *ops;
} fv_plugin;

extern const fv_plugin fv_plugin_v1; /* in the library */

#endif
