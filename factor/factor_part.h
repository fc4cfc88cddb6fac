#ifndef FOVEA_FACTOR_FACTOR_PART_H
#define FOVEA_FACTOR_FACTOR_PART_H

/* Factors a matrix and writes the bytes of a packed part (factor.h, packed/lowrank.h). */
#include "factor/factor.h"
#include "packed/lowrank.h"

/* Identifies the matrix: the random numbers are a function of layer, segment and kind, so that the same rows
 * have the same factors on every worker. */
typedef struct fv_factor_part {
    int32_t layer, segment;
    double energy; /* fv_factor_goal */
} fv_factor_part;

/* Factors m [n, Hkv D] as fv_factorise does, with its errors. *s: in, the block's shape with the maximum
 * rank; out, with the chosen one; data: fv_packed_bytes of the original *s, owned by the caller.
 * *error: ||M - U B|| / ||M|| before rounding. FV_EINVAL also if a factor's number does not fit F16.
 * `scratch` is temporary memory. Call it on the thread that owns the backend. */
fv_status fv_factor_write(fv_backend *be, fv_arena *scratch, const fv_tensor *m,
                          const fv_factor_part *what, fv_packed_shape *s, void *data,
                          double *error);

/* The arguments of fv_factor_write for one matrix. */
typedef struct fv_factor_job {
    fv_tensor m;
    fv_factor_part what;
    fv_packed_shape *s;
    void *data;
    double error;
} fv_factor_job;

/* fv_factor_write for n matrices, factored by fv_factorise_all. *bad: the index of the job that an FV_EINVAL is
 * about. */
fv_status fv_factor_write_all(fv_backend *be, fv_arena *scratch, fv_factor_job *job, int32_t n,
                              int32_t *bad);

#endif
