#ifndef FOVEA_KERNELS_FACTOR_PART_H
#define FOVEA_KERNELS_FACTOR_PART_H

/* A matrix -> the bytes of a packed part that holds its factors (factor.h, packed.h). */
#include "kernels/factor.h"
#include "kernels/packed.h"

/* What is factored; the random numbers are a function of layer, segment and kind, so that the same
 * rows have the same factors wherever that is done. */
typedef struct fv_factor_part {
    int32_t layer, segment;
    double energy; /* fv_factor_goal */
} fv_factor_part;

/* m [n, Hkv D] as for fv_factorise, with its errors. *s: the block's shape with the maximum rank,
 * which becomes the chosen one; data: fv_packed_bytes of the original *s, owned by the caller.
 * *error: ||M - U B|| / ||M|| before rounding. FV_EINVAL also when a factor's number does not fit
 * F16. `scratch` is temporary memory. The thread that owns the backend. */
fv_status fv_factor_write(fv_backend *be, fv_arena *scratch, const fv_tensor *m,
                          const fv_factor_part *what, fv_packed_shape *s, void *data,
                          double *error);

/* A matrix, what it becomes, and where: as above. */
typedef struct fv_factor_job {
    fv_tensor m;
    fv_factor_part what;
    fv_packed_shape *s;
    void *data;
    double error;
} fv_factor_job;

/* The same of n matrices, as fv_factorise_all does them. *bad: the one that an FV_EINVAL is about.
 */
fv_status fv_factor_write_all(fv_backend *be, fv_arena *scratch, fv_factor_job *job, int32_t n,
                              int32_t *bad);

#endif
