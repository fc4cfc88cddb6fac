#ifndef FOVEA_CLI_CALIBRATE_CALIBRATE_H
#define FOVEA_CLI_CALIBRATE_CALIBRATE_H

/* What the parts of `fovea calibrate` share: items for looking at, and where to write. */
#include <jansson.h>

#include "cli/client/local.h"
#include "common/options.h"

typedef struct fv_calibrate {
    const fv_options *options;
    fv_local *local;
    int32_t n_item, n_layer;
    bool rich;             /* scenes */
    int32_t answer_tokens; /* of an item, at most; 0: 1 */
} fv_calibrate;

/* Runs every item for one token under a policy, with hooks; `what` is for the progress bar. */
fv_status fv_calibrate_look(const fv_calibrate *c, const char *policy, const fv_ask_hooks *hooks,
                            const char *what);

/* Writes what was found into calibration.json, as its object `name`, and releases it; NULL: out of
 * memory. */
fv_status fv_calibrate_write(const fv_calibrate *c, const char *name, json_t *found);

/* Thresholds of prune=visipruner: measures, writes and prints them (eval/scenes/thresholds.h). */
fv_status fv_calibrate_visipruner(const fv_calibrate *c);

/* The layer of prune=vtw, and schedules of prune=fitprune (eval/scenes/fit.h); likewise. */
fv_status fv_calibrate_vtw(const fv_calibrate *c);
fv_status fv_calibrate_fitprune(const fv_calibrate *c);

/* Directions of pack=latent into latent.bin, and prints what they hold. */
fv_status fv_calibrate_latent(const fv_calibrate *c);

#endif
