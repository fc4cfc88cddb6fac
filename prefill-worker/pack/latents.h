#ifndef FOVEA_PREFILL_WORKER_PACK_LATENTS_H
#define FOVEA_PREFILL_WORKER_PACK_LATENTS_H

/* A GROUP OF LAYERS being coded as coefficients: the state that the files of pack=latent share.
 *
 *   rows --latent_rows.c--> z, codes and errors --latent_own.c, if errors are too large-->
 *       directions of the request's own
 *
 * For the thread that owns the backend. */
#include "prefill-worker/pack/lacking.h"
#include "prefill-worker/pack/own.h"
#include "prefill-worker/pack/pack_layer.h"

typedef struct fv_latents {
    fv_pack_job *first; /* [group]; jobs of layers without tokens have no state */
    int32_t group;
    const fv_latent_layer *layer; /* [group] */
    int32_t n, R, n_dir;          /* tokens, directions, and those that have bits */
    int32_t exact;                /* the row that is stored exactly; -1: none */
    fv_lacking *lacking;          /* [group] for tokens that no layer after this one holds */
    float *raw, *z;               /* [n, R] coefficients, and their decoded codes */
    double *weight;       /* [2 group] of a matrix: one over its squared distance from the mean */
    double lost, allowed; /* sums of weighted squared errors: actual and allowed */
    fv_own own;           /* directions added to reduce `lost` */
} fv_latents;             /* the arena owns the arrays */

/* Codes all rows: sets raw, z, weights, lost and the jobs' errors; writes codes to the first layer's keys
 * and the exact row to all parts. FV_EINVAL: a number is not finite. */
fv_status fv_latents_code(const fv_pack_context *ctx, fv_latents *x);

/* Adds as many own directions as bring `lost` down to what is allowed, at most `most`; overwrites `raw`. */
fv_status fv_latents_add_own(const fv_pack_context *ctx, fv_latents *x, int32_t most);

/* Sets the number of own directions in the shapes of all parts. */
void fv_latents_set_own(fv_latents *x, int32_t r);

#endif
