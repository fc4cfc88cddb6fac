#ifndef FOVEA_PREFILL_WORKER_PACK_LATENTS_H
#define FOVEA_PREFILL_WORKER_PACK_LATENTS_H

/* A GROUP OF LAYERS ON ITS WAY to coefficients: what the files of pack=latent share.
 *
 *   rows --latent_rows.c--> z, codes and errors --latent_own.c, where these are too large-->
 *       directions of the request's own
 *
 * The thread that owns the backend. */
#include "prefill-worker/pack/lacking.h"
#include "prefill-worker/pack/own.h"
#include "prefill-worker/pack/pack_layer.h"

typedef struct fv_latents {
    fv_pack_job *first; /* of `group`, of which some have no state */
    int32_t group;
    const fv_latent_layer *layer; /* [group] */
    int32_t n, R, n_dir;          /* tokens, directions, and those that have bits */
    int32_t exact;                /* the row that is kept as it is; -1: none */
    fv_lacking *lacking;          /* [group] for tokens that no layer after this one holds */
    float *raw, *z;               /* [n, R] coefficients, and what their codes decode to */
    double *weight;       /* [2 group] of a matrix: one over its squared distance from the mean */
    double lost, allowed; /* sum of weighted squared errors: as it is, and as it may be */
    fv_own own;           /* directions that are added for it */
} fv_latents;             /* arrays are of the arena */

/* Of all rows: raw, codes in the first layer's keys, z, exact numbers, weights, and in the jobs' reports
 * the errors. FV_EINVAL: a number is not finite. */
fv_status fv_latents_code(const fv_pack_context *ctx, fv_latents *x);

/* As many own directions as it takes, at most `most`; `raw` is used up. */
fv_status fv_latents_add_own(const fv_pack_context *ctx, fv_latents *x, int32_t most);

/* The parts have r own directions. */
void fv_latents_set_own(fv_latents *x, int32_t r);

#endif
