#ifndef FOVEA_EVAL_SCENES_PATCHES_H
#define FOVEA_EVAL_SCENES_PATCHES_H

/* scene -> LABELS OF PATCHES: for a dense loss on the vision tower, and to measure how much of an
 * image is covered.
 *
 * A patch shows the thing that covers most of it, if that is at least a sixth of it. Each digit of
 * a printed number is a thing of its own. Labels do not depend on the resolution.
 *
 * Pure functions: any thread. */
#include "eval/scenes/scene.h"

enum { FV_PATCH_GRID_MAX = 64 };

typedef enum fv_patch_kind {
    FV_PATCH_BACKGROUND = 0,
    FV_PATCH_OBJECT,
    FV_PATCH_PRINTED,
    FV_PATCH_WRITTEN,
    FV_N_PATCH_KIND
} fv_patch_kind;

/* 16 bytes; fields that do not apply are -1. */
typedef struct fv_patch {
    int8_t kind;               /* fv_patch_kind */
    int8_t shape, color, size; /* of an object */
    int8_t digit;              /* of a printed or handwritten number */
    int8_t thing;              /* index within the scene, objects first */
    int8_t unused[2];          /* 0 */
    float dx, dy;              /* from the patch's centre to the thing's, in patches; 0 for
                                * background */
} fv_patch;

/* Labels the patches of a grid [grid, grid], row by row. FV_EINVAL when `grid` is not in
 * 1 .. FV_PATCH_GRID_MAX. */
fv_status fv_scene_patches(const fv_scene *scene, int32_t grid, fv_patch *out);

#endif
