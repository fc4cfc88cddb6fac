#ifndef FOVEA_TESTS_SUPPORT_TINY_TOWER_H
#define FOVEA_TESTS_SUPPORT_TINY_TOWER_H

/* A vision tower and projector with random weights in static memory. All are drawn into the same
 * storage: they share weights as far as their shapes agree. */
#include "model/net/vision.h"

enum {
    TOWER_D = 20,
    TOWER_M = 36,
    TOWER_LAYERS = 3,
    TOWER_P = 9,
    TOWER_SIDE = 12,
    TOWER_TEXT = 14,
    TOWER_PIXELS = 3 * TOWER_SIDE * TOWER_SIDE
};

typedef struct tiny_tower {
    fv_vision_config cfg;
    fv_vision_weights w;
    fv_projector_weights p;
} tiny_tower;

tiny_tower tiny_tower_make(int32_t n_feature, const int32_t *feature, bool keep_cls);

/* Pixels of n images. */
void tiny_tower_pixels(float *pixels, int32_t n);

#endif
