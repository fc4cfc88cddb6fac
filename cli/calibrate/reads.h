#ifndef FOVEA_CLI_CALIBRATE_READS_H
#define FOVEA_CLI_CALIBRATE_READS_H

/* Collects the reads of visual keys and values while a calibration's requests run
 * (model/latent/reads.h): by rows after which a token is sampled, the prompt's last row and the
 * answer's. In a server these rows read the compressed visual KV. */
#include "cli/client/local.h"
#include "model/latent/reads.h"

typedef struct fv_calibrate_reads fv_calibrate_reads; /* opaque; borrows the engine */

/* Starts watching. FV_EINVAL if the output projections are integers. */
fv_status fv_calibrate_reads_open(fv_local *local, fv_calibrate_reads **out);
void fv_calibrate_reads_close(fv_calibrate_reads *r); /* stops watching; NULL is fine */

/* The collected reads. FV_EINVAL: none. */
fv_status fv_calibrate_reads_found(const fv_calibrate_reads *r, const fv_latent_reads **out);

#endif
