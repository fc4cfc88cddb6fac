#ifndef FOVEA_PACKED_SCALES_H
#define FOVEA_PACKED_SCALES_H

/* Uniform quantization of one group of numbers: x ~= lo + step c, c to nearest. read.h decodes, by
 * fma(step, c, lo). */
#include <stddef.h>
#include <stdint.h>

/* The scale of codes c = 0 .. top. */
typedef struct code_pair {
    float lo, step;
} code_pair;

static inline int top_code(int bits) { return bits == 4 ? 15 : 255; }

static inline int code_of(float x, code_pair s, int top) {
    float c = s.step > 0 ? (x - s.lo) / s.step + 0.5f : 0;
    return !(c > 0) ? 0 : c > (float)top ? top : (int)c;
}

/* Writes a code into a line of zeros. */
static inline void put_code(char *row, int bits, size_t i, int code) {
    uint8_t *p = (uint8_t *)row;
    if (bits == 8)
        p[i] = (uint8_t)code;
    else
        p[i / 2] = (uint8_t)(p[i / 2] | code << i % 2 * 4);
}

#endif
