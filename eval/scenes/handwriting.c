/* The table of handwritten digits. It is kept as text, one digit a line, so that it can be read
 * and compared; 128 KB of text need no decoder and no file at run time. */
#include "eval/scenes/handwriting.h"

#include <assert.h>

enum { PIXELS = FV_HANDWRITING_SIDE * FV_HANDWRITING_SIDE };

static const struct sample {
    int8_t digit;
    char ink[PIXELS + 1];
} samples[FV_HANDWRITING_SAMPLES] = {
#include "eval/scenes/handwriting_data.inc"
};

int32_t fv_handwriting_digit(int32_t sample) {
    assert(sample >= 0 && sample < FV_HANDWRITING_SAMPLES);
    return samples[sample].digit;
}

void fv_handwriting_ink(int32_t sample, uint8_t ink[PIXELS]) {
    assert(sample >= 0 && sample < FV_HANDWRITING_SAMPLES);
    for (int i = 0; i < PIXELS; i++) {
        char c = samples[sample].ink[i];
        ink[i] = (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
}
