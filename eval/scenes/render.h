#ifndef FOVEA_EVAL_SCENES_RENDER_H
#define FOVEA_EVAL_SCENES_RENDER_H

/* scene -> PIXELS, at any resolution.
 *
 * A noisy, textured background; on it the objects, with edges smoothed by signed distances, the
 * printed numbers on their plates and the handwriting; over all of it noise per pixel.
 *
 * Two renderings of a scene at one side are equal to the bit wherever float is IEEE 754 binary32
 * and computed as such (asserted at compile time), whatever compiler and optimisation, as long as
 * it neither reorders nor fuses float arithmetic (the build says -ffp-contract=off): only sums,
 * products, quotients, square roots and comparisons are used, all of which IEEE 754 rounds exactly.
 * At another side the noise per pixel is another one; all else is the same image.
 *
 * Pure functions: any thread. */
#include "eval/scenes/scene.h"

enum { FV_RENDER_SIDE_MIN = 96, FV_RENDER_SIDE_MAX = 1024 };

/* Paints `scene` into rgb [side, side, 3]. FV_EINVAL when `side` is out of range. */
fv_status fv_render(const fv_scene *scene, int32_t side, uint8_t *rgb);

#endif
