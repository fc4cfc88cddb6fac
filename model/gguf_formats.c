/* Unpacks blocks of GGUF to integers with scales. Pure functions on memory. */
#include "model/gguf_formats.h"

#include <string.h>

#include "common/convert.h"

static float half_at(const uint8_t *p) { return f32_of_f16((uint16_t)(p[0] | p[1] << 8)); }

/* Unpacks 32 int4 values: the low halves of 16 bytes, then the high ones. */
static void unpack_int4(const uint8_t *from, uint8_t *q) {
    for (int i = 0; i < 16; i++) {
        q[i] = from[i] & 15;
        q[i + 16] = from[i] >> 4;
    }
}

/* Adds the fifth bits of 32 integers. */
static void unpack_int5(const uint8_t *from, uint8_t *q) {
    for (int i = 0; i < 32; i++) q[i] |= (uint8_t)((from[i / 8] >> i % 8 & 1) << 4);
}

static void open_q4_0(const uint8_t *from, fv_gguf_block *b) {
    b->scale[0] = half_at(from);
    unpack_int4(from + 2, b->q);
}

static void open_q4_1(const uint8_t *from, fv_gguf_block *b) {
    b->scale[0] = half_at(from);
    b->min[0] = -half_at(from + 2);
    unpack_int4(from + 4, b->q);
}

static void open_q5_0(const uint8_t *from, fv_gguf_block *b) {
    b->scale[0] = half_at(from);
    unpack_int4(from + 6, b->q);
    unpack_int5(from + 2, b->q);
    for (int i = 0; i < 32; i++) b->q[i] = (uint8_t)(b->q[i] - 16);
}

static void open_q5_1(const uint8_t *from, fv_gguf_block *b) {
    b->scale[0] = half_at(from);
    b->min[0] = -half_at(from + 2);
    unpack_int4(from + 8, b->q);
    unpack_int5(from + 4, b->q);
}

static void open_q8_0(const uint8_t *from, fv_gguf_block *b) {
    b->scale[0] = half_at(from);
    memcpy(b->q, from + 2, 32);
}

/* Unpacks eight scales and eight mins of 6 bits in 12 bytes: the first four of each are whole; the
 * others have their low halves in the last four bytes and their upper bits above the first
 * eight. */
static void open_k_scales(const uint8_t *from, fv_gguf_block *b) {
    float d = half_at(from), m = half_at(from + 2);
    const uint8_t *s = from + 4;
    for (int i = 0; i < 4; i++) {
        b->scale[i] = d * (float)(s[i] & 63);
        b->min[i] = m * (float)(s[i + 4] & 63);
        b->scale[i + 4] = d * (float)((s[i + 8] & 15) | s[i] >> 6 << 4);
        b->min[i + 4] = m * (float)(s[i + 8] >> 4 | s[i + 4] >> 6 << 4);
    }
}

/* Unpacks pairs of groups of 32, each in 32 bytes: the low halves, then the high ones. */
static void unpack_k_int4(const uint8_t *from, uint8_t *q) {
    for (int i = 0; i < 256; i++) q[i] = from[i / 64 * 32 + i % 32] >> i / 32 % 2 * 4 & 15;
}

static void open_q4_k(const uint8_t *from, fv_gguf_block *b) {
    open_k_scales(from, b);
    unpack_k_int4(from + 16, b->q);
}

static void open_q5_k(const uint8_t *from, fv_gguf_block *b) {
    open_k_scales(from, b);
    unpack_k_int4(from + 48, b->q);
    for (int i = 0; i < 256; i++) b->q[i] |= (uint8_t)((from[16 + i % 32] >> i / 32 & 1) << 4);
}

/* Q6_K: per 128 numbers, the low four bits are in 64 bytes and the upper two in 32; 16 numbers
 * share a signed scale. */
static void open_q6_k(const uint8_t *from, fv_gguf_block *b) {
    const uint8_t *low = from, *high = from + 128, *scale = from + 192;
    float d = half_at(from + 208);
    for (int i = 0; i < 256; i++) {
        int h = i / 128, part = i / 32 % 4;
        int four = low[h * 64 + i % 64] >> part / 2 * 4 & 15;
        int two = high[h * 32 + i % 32] >> part * 2 & 3;
        b->q[i] = (uint8_t)((four | two << 4) - 32);
    }
    for (int g = 0; g < 16; g++) b->scale[g] = d * (float)(int8_t)scale[g];
}

/* Q2_K: 16 numbers share a scale and a min of 4 bits each; per 128 numbers, 32 bytes hold four groups of
 * two bits. */
static void open_q2_k(const uint8_t *from, fv_gguf_block *b) {
    float d = half_at(from + 80), m = half_at(from + 82);
    for (int i = 0; i < 256; i++) b->q[i] = from[16 + i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3;
    for (int g = 0; g < 16; g++) {
        b->scale[g] = d * (float)(from[g] & 15);
        b->min[g] = m * (float)(from[g] >> 4);
    }
}

/* Q3_K: the third bits come first, one of each byte for a group of 32, and are 0 where 4 is subtracted; then
 * two bits as in Q2_K. 16 numbers share a scale of 6 bits: the low halves of 16 scales in 8 bytes, their upper
 * two bits in 4. */
static void open_q3_k(const uint8_t *from, fv_gguf_block *b) {
    const uint8_t *high = from, *low = from + 32, *scale = from + 96;
    float d = half_at(from + 108);
    for (int i = 0; i < 256; i++) {
        int two = low[i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3;
        b->q[i] = (uint8_t)(two - (high[i % 32] >> i / 32 & 1 ? 0 : 4));
    }
    for (int g = 0; g < 16; g++) {
        int four = scale[g % 8] >> g / 8 * 4 & 15, two = scale[8 + g % 4] >> g / 4 * 2 & 3;
        b->scale[g] = d * (float)((four | two << 4) - 32);
    }
}

static const fv_gguf_format formats[] = {
    {"Q4_0", 32, 18, 32, FV_INT4, FV_F16, false, open_q4_0},
    {"Q4_1", 32, 20, 32, FV_INT4, FV_F16, true, open_q4_1},
    {"Q5_0", 32, 22, 32, FV_INT8, FV_F16, false, open_q5_0},
    {"Q5_1", 32, 24, 32, FV_INT8, FV_F16, true, open_q5_1},
    {"Q8_0", 32, 34, 32, FV_INT8, FV_F16, false, open_q8_0},
    {"Q4_K", 256, 144, 32, FV_INT4, FV_F32, true, open_q4_k},
    {"Q5_K", 256, 176, 32, FV_INT8, FV_F32, true, open_q5_k},
    {"Q6_K", 256, 210, 16, FV_INT8, FV_F32, false, open_q6_k},
    {"Q2_K", 256, 84, 16, FV_INT8, FV_F32, true, open_q2_k},
    {"Q3_K", 256, 110, 16, FV_INT8, FV_F32, false, open_q3_k},
    {"IQ4_NL", 32, 18, 32, FV_INT8, FV_F16, false, fv_gguf_open_iq4_nl},
    {"IQ4_XS", 256, 136, 32, FV_INT8, FV_F32, false, fv_gguf_open_iq4_xs},
    {"IQ3_XXS", 256, 98, 32, FV_INT8, FV_F32, false, fv_gguf_open_iq3_xxs},
    {"IQ3_S", 256, 110, 32, FV_INT8, FV_F32, false, fv_gguf_open_iq3_s},
    {"MXFP4", 32, 17, 32, FV_INT8, FV_F32, false, fv_gguf_open_mxfp4},
};

const fv_gguf_format *fv_gguf_format_of(const char *type) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].type, type) == 0) return &formats[i];
    return NULL;
}
