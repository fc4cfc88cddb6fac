#ifndef FOVEA_FACTOR_MATRICES_H
#define FOVEA_FACTOR_MATRICES_H

/* MATRICES of F32 for a computation made of operations: in the backend's memory, freed all at once.
 * If the backend reads host memory, they are in the arena and nothing is copied; otherwise they are on
 * the device, and inputs and results are copied.
 *
 * Call these functions on the thread that owns the backend. */
#include "common/arena.h"
#include "kernels/ops.h"

typedef struct fv_matrices {
    fv_backend *be;
    fv_arena *scratch; /* host memory; borrowed */
    /* private */
    struct fv_matrices_piece *piece;
} fv_matrices; /* initialized with {be, scratch} */

/* Frees device memory; the arena belongs to its owner. */
void fv_matrices_fini(fv_matrices *m);

/* Whether the backend reads the host's memory. */
bool fv_matrices_on_host(const fv_matrices *m);

/* Allocates *out [rows, cols], contiguous, contents undefined. */
fv_status fv_matrix_new(fv_matrices *m, int32_t rows, int32_t cols, fv_tensor *out);

/* Gives the backend numbers [rows, cols] on the host: the same memory, or a copy. */
fv_status fv_matrix_send(fv_matrices *m, const float *numbers, int32_t rows, int32_t cols,
                         fv_tensor *out);

/* Gives the host a contiguous matrix, after waiting for pending writes: the same memory, or a copy. */
fv_status fv_matrix_fetch(fv_matrices *m, const fv_tensor *t, float **numbers);

#endif
