#ifndef FOVEA_EVAL_SCENES_SHAPE_H
#define FOVEA_EVAL_SCENES_SHAPE_H

/* THE SHAPES as signed distances: below zero inside, above zero outside, and near the outline the
 * distance to it, as anti-aliasing needs.
 *
 *   x, y  from the centre, y downwards;  r  radius of the object (fv_scene_object)
 *
 * No shape reaches further than FV_SHAPE_REACH r. Only sums, products and square roots of floats
 * are used, which are exactly rounded and so the same on every machine (render.h). */
#include <math.h>

#include "eval/scenes/scene.h"

#define FV_SHAPE_REACH 1.14f

static inline float fv_shape_max(float a, float b) { return a > b ? a : b; }
static inline float fv_shape_min(float a, float b) { return a < b ? a : b; }

static inline float fv_shape_box(float x, float y, float half_w, float half_h) {
    return fv_shape_max(fabsf(x) - half_w, fabsf(y) - half_h);
}

/* An upright triangle: the base, and the sides, whose normal is (0.869, -0.494). */
static inline float fv_shape_triangle(float x, float y, float r) {
    float side = 0.86921f * fabsf(x) - 0.49446f * (y + 0.95f * r);
    return fv_shape_max(side, y - 0.72f * r);
}

static inline float fv_shape_distance(int32_t shape, float x, float y, float r) {
    switch (shape) {
    case FV_SHAPE_CIRCLE: return sqrtf(x * x + y * y) - 0.95f * r;
    case FV_SHAPE_SQUARE: return fv_shape_box(x, y, 0.8f * r, 0.8f * r);
    case FV_SHAPE_TRIANGLE: return fv_shape_triangle(x, y, r);
    case FV_SHAPE_DIAMOND: return (fabsf(x) + fabsf(y) - 1.08f * r) * 0.70710678f;
    case FV_SHAPE_CROSS:
        return fv_shape_min(fv_shape_box(x, y, 0.32f * r, 0.95f * r),
                            fv_shape_box(x, y, 0.95f * r, 0.32f * r));
    default: return fabsf(sqrtf(x * x + y * y) - 0.73f * r) - 0.23f * r;
    }
}

#endif
