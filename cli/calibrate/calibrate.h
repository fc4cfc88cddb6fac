#ifndef FOVEA_CLI_CALIBRATE_CALIBRATE_H
#define FOVEA_CLI_CALIBRATE_CALIBRATE_H

/* Shared by the parts of `fovea calibrate`: the items to run, and the output. */
#include <jansson.h>

#include "cli/client/local.h"
#include "common/options.h"

typedef struct fv_calibrate {
    const fv_options *options;
    fv_local *local;
    int32_t n_item, n_layer;
    bool rich;             /* scenes */
    int32_t answer_tokens; /* largest number of an item's answer tokens; 0: 1 */
} fv_calibrate;

/* Runs every item for one token under a policy, with hooks; `what` labels the progress bar. */
fv_status fv_calibrate_run_items(const fv_calibrate *c, const char *policy,
                                 const fv_ask_hooks *hooks, const char *what);

/* Writes results into calibration.json as its object `name`, and releases `found`; NULL: out of
 * memory. */
fv_status fv_calibrate_write(const fv_calibrate *c, const char *name, json_t *found);

/* Measures, writes and prints the thresholds of prune=visipruner (eval/scenes/thresholds.h). */
fv_status fv_calibrate_visipruner(const fv_calibrate *c);

/* The same for the layer of prune=vtw, and the schedules of prune=fitprune (eval/scenes/fit.h). */
fv_status fv_calibrate_vtw(const fv_calibrate *c);
fv_status fv_calibrate_fitprune(const fv_calibrate *c);

/* Writes directions of pack=latent to latent.bin, and prints the share of variance that they
 * hold. */
fv_status fv_calibrate_latent(const fv_calibrate *c);

#endif
