#ifndef FOVEA_EVAL_SCENES_RENDER_H
#define FOVEA_EVAL_SCENES_RENDER_H

/* scene -> PIXELS, at any resolution.
 *
 * A noisy, textured background; on it the objects, with edges smoothed by signed distances, the
 * printed numbers on their plates and the handwriting; over all of it noise per pixel.
 *
 * Two renderings of a scene at one side are equal to the bit if float is IEEE 754 binary32 and
 * computed as such (asserted at compile time), with any compiler and optimisation that neither
 * reorders nor fuses float arithmetic (the build says -ffp-contract=off): only sums, products,
 * quotients, square roots and comparisons are used, all of which IEEE 754 rounds exactly. With
 * another side only the noise per pixel differs.
 *
 * Pure functions: any thread. */
#include "eval/scenes/scene.h"

enum { FV_RENDER_SIDE_MIN = 96, FV_RENDER_SIDE_MAX = 1024 };

/* Renders `scene` to rgb [side, side, 3]. FV_EINVAL if `side` is out of range. */
fv_status fv_render(const fv_scene *scene, int32_t side, uint8_t *rgb);

#endif
