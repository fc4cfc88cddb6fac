#ifndef FOVEA_EVAL_SCENES_HANDWRITING_H
#define FOVEA_EVAL_SCENES_HANDWRITING_H

/* REAL HANDWRITING: 1797 digits of the UCI repository, 8 x 8 pixels (handwriting_data.inc names
 * source and licence).
 *
 * The digits stand in the order in which they were collected, so that cutting the list in two
 * keeps most writers on one side: the first half is for training, the rest is held back. */
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FV_HANDWRITING_SIDE = 8,
    FV_HANDWRITING_INK_MAX = 16,
    FV_HANDWRITING_SAMPLES = 1797,
    FV_HANDWRITING_TRAIN = 898, /* samples below this one are for training */
};

/* The digit that sample [0, FV_HANDWRITING_SAMPLES) shows. */
int32_t fv_handwriting_digit(int32_t sample);

/* Its ink per pixel, 0 to FV_HANDWRITING_INK_MAX, from left to right, from the top down. */
void fv_handwriting_ink(int32_t sample, uint8_t ink[FV_HANDWRITING_SIDE * FV_HANDWRITING_SIDE]);

#ifdef __cplusplus
}
#endif
#endif
