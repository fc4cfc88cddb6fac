#ifndef FOVEA_MODEL_CALIBRATION_H
#define FOVEA_MODEL_CALIBRATION_H

/* CALIBRATION: measurements of a checkpoint, stored beside its weights in calibration.json.
 *
 *   {"fingerprint": "0123456789abcdef",
 *    "lazy": {"source_layers": [0, 1, 2, 2, ...], "epsilon": 0.05, "cap": 5, "items": 110,
 *             "divergence": [[0.0, 0.31, ...], ...]},
 *    "visipruner": {"cos": 0.997, "l2": 0.31, "exit_cos": 0.9993, "items": 110, ...},
 *    "vtw": {"layer": 17, "eta": 0.003, "items": 20, "kl": [0.4, ...]},
 *    "fitprune": {"items": 110, "schedules": [{"target": 60, "leave": [14, 33, ...]}, ...]}}
 *
 * Each measurement is one member: writing it leaves the others. The fingerprint names the weights
 * that were measured; a file for other weights is not used. Any thread. */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/schedule.h"
#include "common/status.h"

/* Block map of lazy attention: source_layer[l] is l, or an earlier layer that is its own source. */
typedef struct fv_calibrated_blocks {
    int32_t n_layer; /* 0: not measured */
    int32_t source_layer[256];
} fv_calibrated_blocks;

typedef struct fv_calibration {
    fv_calibrated_blocks blocks;
    bool has_thresholds;  /* prune=visipruner is calibrated: */
    double thresholds[3]; /* cos, l2, exit_cos */
    int32_t withdraw;     /* first layer of prune=vtw, or the number of layers; 0: not measured */
    int32_t n_fitted;
    fv_schedule fitted[FV_SCHEDULES]; /* [n_fitted] for prune=fitprune */
} fv_calibration;

/* Reads DIR/calibration.json; members that were not measured stay empty. FV_ENOTFOUND: no file.
 * FV_EDATA: the file is broken, or belongs to another checkpoint or number of layers. */
fv_status fv_calibration_read(const char *dir, const char *fingerprint, int32_t n_layer,
                              fv_calibration *out);

/* Writes `value` as member `name`, keeping the others if they belong to this checkpoint. Replaces
 * the file atomically. */
fv_status fv_calibration_write(const char *dir, const char *fingerprint, const char *name,
                               json_t *value);

/* Digest of the checkpoint's calibration in DIR, 16 hex digits and a NUL: XXH64 over
 * calibration.json and latent.bin (model/latent/latent.h), or "none" if neither exists. FV_EIO: one
 * cannot be read. */
fv_status fv_calibration_digest(const char *dir, char out[17]);

#endif
