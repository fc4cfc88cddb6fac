/* The table of handwritten digits, handwriting.txt, with one readable line per digit. It is linked
 * in and needs no file at run time. */
#include "eval/scenes/handwriting.h"

#include <assert.h>

#include "fovea_handwriting.h"

enum {
    PIXELS = FV_HANDWRITING_SIDE * FV_HANDWRITING_SIDE,
    LINE = 2 + PIXELS + 1, /* "5 ", the pixels, the end of the line */
};

/* The line of sample [0, FV_HANDWRITING_SAMPLES). */
static const uint8_t *line_of(int32_t sample) {
    assert(fovea_handwriting_size == FV_HANDWRITING_SAMPLES * LINE);
    assert(sample >= 0 && sample < FV_HANDWRITING_SAMPLES);
    return fovea_handwriting + sample * LINE;
}

int32_t fv_handwriting_digit(int32_t sample) { return line_of(sample)[0] - '0'; }

void fv_handwriting_ink(int32_t sample, uint8_t ink[PIXELS]) {
    const uint8_t *pixels = line_of(sample) + 2;
    for (int i = 0; i < PIXELS; i++)
        ink[i] = (uint8_t)(pixels[i] <= '9' ? pixels[i] - '0' : pixels[i] - 'a' + 10);
}
