#ifndef FOVEA_CLI_CALIBRATE_READS_H
#define FOVEA_CLI_CALIBRATE_READS_H

/* What reads visual keys and values while a calibration's requests run (model/latent/reads.h): rows
 * that a token is chosen after, the prompt's last one and the answer's. In a server these are what
 * reads compressed visual KV. */
#include "cli/client/local.h"
#include "model/latent/reads.h"

typedef struct fv_calibrate_reads fv_calibrate_reads; /* opaque; borrows the engine */

/* Watches from now on. FV_EINVAL where the output projections are integers. */
fv_status fv_calibrate_reads_open(fv_local *local, fv_calibrate_reads **out);
void fv_calibrate_reads_close(fv_calibrate_reads *r); /* and watches no more; NULL is fine */

/* What was seen. FV_EINVAL: nothing. */
fv_status fv_calibrate_reads_found(const fv_calibrate_reads *r, const fv_latent_reads **out);

#endif
