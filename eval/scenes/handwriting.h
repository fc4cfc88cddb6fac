#ifndef FOVEA_EVAL_SCENES_HANDWRITING_H
#define FOVEA_EVAL_SCENES_HANDWRITING_H

/* REAL HANDWRITING: 1797 digits of 8 x 8 pixels, each a line of handwriting.txt: the digit, and one
 * character per pixel, '0'-'9' and 'a'-'g' for no ink (0) to full ink (16), from left to right,
 * from the top down.
 *
 * Source: Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, UCI Machine Learning
 * Repository, 1998, licensed under CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/):
 * https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits
 * This is its test set, by 13 writers, as shipped with scikit-learn; handwriting.py only changed
 * the format.
 *
 * The digits are in the order in which they were collected, so each half of the list has mostly its
 * own writers: the first half is for training, the rest is held back. */
#include <stdint.h>

enum {
    FV_HANDWRITING_SIDE = 8,
    FV_HANDWRITING_INK_MAX = 16,
    FV_HANDWRITING_SAMPLES = 1797,
    FV_HANDWRITING_TRAIN = 898, /* samples below this one are for training */
};

/* The digit that sample [0, FV_HANDWRITING_SAMPLES) shows. */
int32_t fv_handwriting_digit(int32_t sample);

/* Ink of a sample's pixels, 0 to FV_HANDWRITING_INK_MAX, from left to right, from the top down. */
void fv_handwriting_ink(int32_t sample, uint8_t ink[FV_HANDWRITING_SIDE * FV_HANDWRITING_SIDE]);

#endif
