#ifndef FOVEA_MODEL_CALIBRATION_H
#define FOVEA_MODEL_CALIBRATION_H

/* CALIBRATION: what was measured on a checkpoint, kept beside its weights in calibration.json.
 *
 *   {"fingerprint": "0123456789abcdef",
 *    "lazy": {"source layers": [0, 1, 2, 2, ...], "epsilon": 0.05, "cap": 5, "items": 110,
 *             "divergence": [[0.0, 0.31, ...], ...]},
 *    "visipruner": {"cos": 0.997, "l2": 0.31, "exit_cos": 0.9993, "items": 110, ...},
 *    "vtw": {"layer": 17, "eta": 0.003, "items": 20, "kl": [0.4, ...]},
 *    "fitprune": {"items": 110, "schedules": [{"target": 60, "leave": [14, 33, ...]}, ...]}}
 *
 * Each measurement is a member of its own: writing one leaves the others. The fingerprint says
 * which weights it was made with; a file of others is not used. Any thread. */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/schedule.h"
#include "common/status.h"

/* The block map of lazy attention: source layer[l] is l, or a layer before it that leads itself. */
typedef struct fv_calibrated_blocks {
    int32_t n_layer; /* 0: was not measured */
    int32_t source_layer[256];
} fv_calibrated_blocks;

typedef struct fv_calibration {
    fv_calibrated_blocks blocks;
    bool has_thresholds;  /* of prune=visipruner: */
    double thresholds[3]; /* cos, l2, exit_cos */
    int32_t withdraw;     /* first layer of prune=vtw, or as many as there are; 0: not measured */
    int32_t n_fitted;
    fv_schedule fitted[FV_SCHEDULES]; /* [n_fitted] of prune=fitprune */
} fv_calibration;

/* Reads DIR/calibration.json; what was not measured is absent. FV_ENOTFOUND: there is no file.
 * FV_EDATA says what is wrong with it, also when it belongs to another checkpoint or another number
 * of layers. */
fv_status fv_calibration_read(const char *dir, const char *fingerprint, int32_t n_layer,
                              fv_calibration *out);

/* Writes `value` as member `name`, and keeps the others if they are of the same checkpoint. The
 * file is replaced as a whole. */
fv_status fv_calibration_write(const char *dir, const char *fingerprint, const char *name,
                               json_t *value);

/* All that was measured on the checkpoint in DIR, as 16 hex digits and a NUL: XXH64 over calibration.json and
 * latent.bin (model/latent/latent.h), or "none" where neither is there. FV_EIO: one cannot be read. */
fv_status fv_calibration_digest(const char *dir, char out[17]);

#endif
