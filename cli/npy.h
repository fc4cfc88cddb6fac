#ifndef FOVEA_CLI_NPY_H
#define FOVEA_CLI_NPY_H

/* NumPy's .npy files, version 1.0: little-endian, C order. */
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

typedef enum fv_npy_type { FV_NPY_F32, FV_NPY_I32 } fv_npy_type;

/* Writes data [shape[0], ..., shape[n_dim - 1]] to `path`; n_dim 1..8. */
fv_status fv_npy_write(const char *path, fv_npy_type type, const int64_t *shape, int32_t n_dim,
                       const void *data);

#endif
