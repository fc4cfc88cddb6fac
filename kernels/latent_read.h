#ifndef FOVEA_KERNELS_LATENT_READ_H
#define FOVEA_KERNELS_LATENT_READ_H

/* Coefficients of a latent block (latent.h) as f32, on the host: table[code] * deviation, and of own
 * directions code - 128; and the numbers of own directions. The same bits on every path. */
#include <string.h>

#include "kernels/convert.h"
#include "kernels/latent.h"

typedef struct latent_view {
    const fv_latent_layer *l;
    const uint16_t *plane;
    size_t planes;   /* of a tile */
    size_t n_dir, n; /* directions that have bits; with own ones and the exact token's after them */
    size_t n_own;
    int32_t exact; /* that token's row, or -1 */
    uint8_t bits[FV_LATENT_MOST];
} latent_view;

static inline void latent_view_open(latent_view *v, const fv_packed_part *p) {
    v->l = p->latent;
    const void *from = p->base ? p->base : p->data;
    v->plane = fv_latent_plane(&p->shape, from);
    v->exact = fv_latent_exact(&p->shape, from);
    v->planes = fv_latent_planes(&p->shape);
    v->n_dir = (size_t)fv_latent_bits(p->latent, &p->shape, v->bits);
    v->n_own = (size_t)p->shape.n_own;
    v->n = v->n_dir + v->n_own + (size_t)p->shape.n_outlier;
}

/* Of `bits` bits; 0 bits have none. */
static inline const float *latent_levels(const fv_latent_layer *l, int bits) {
    return bits ? l->level + (1 << bits) - 2 : l->level;
}

/* A tile's planes of own directions: its last ones. */
static inline const uint16_t *latent_own_planes(const latent_view *v, size_t tile) {
    return v->plane + (tile + 1) * v->planes - FV_LATENT_BITS * v->n_own;
}

/* The code of a tile's row `lane`, from a direction's planes. */
static inline unsigned latent_code(const uint16_t *p, int bits, size_t lane) {
    unsigned code = 0;
    for (int b = 0; b < bits; b++) code |= (unsigned)(p[b] >> lane & 1) << b;
    return code;
}

static inline bool latent_is_exact(const latent_view *v, size_t j) {
    return v->exact >= 0 && j == (size_t)v->exact;
}

/* Row j: z [n], its first n coefficients. */
static inline void latent_row(const latent_view *v, size_t j, float *z, size_t n) {
    size_t tile = j / FV_PACKED_TILE, lane = j % FV_PACKED_TILE, r = 0;
    const uint16_t *p = v->plane + tile * v->planes;
    bool exact = latent_is_exact(v, j);
    memset(z, 0, n * sizeof *z);
    if (exact && n == v->n) z[n - 1] = 1.0f;
    if (exact) return;
    for (; r < n && r < v->n_dir; p += v->bits[r++]) {
        const float *level = latent_levels(v->l, v->bits[r]);
        unsigned code = latent_code(p, v->bits[r], lane);
        z[r] = v->bits[r] ? level[code] * v->l->deviation[r] : 0.0f;
    }
    for (p = latent_own_planes(v, tile); r < n && r < v->n_dir + v->n_own; r++, p += FV_LATENT_BITS)
        z[r] = (float)((int)latent_code(p, FV_LATENT_BITS, lane) - 128);
}

/* The codes of a tile's rows, from a direction's planes. */
static inline void latent_codes(const uint16_t *p, int bits, uint32_t *code) {
    memset(code, 0, FV_PACKED_TILE * sizeof *code);
    for (int b = 0; b < bits; b++, p++)
        for (uint32_t i = 0; i < FV_PACKED_TILE; i++) code[i] |= (*p >> i & 1u) << b;
}

/* The 16 rows of a tile: column r < n of them at z + r * ld. */
static inline void latent_tile(const latent_view *v, size_t tile, size_t n, float *z, size_t ld) {
    const uint16_t *p = v->plane + tile * v->planes;
    uint32_t code[FV_PACKED_TILE];
    size_t r = 0;
    float *first = z;
    for (; r < n && r < v->n_dir; z += ld, p += v->bits[r++]) {
        const int bits = v->bits[r];
        const float *level = latent_levels(v->l, bits), deviation = v->l->deviation[r];
        latent_codes(p, bits, code);
        for (int i = 0; i < FV_PACKED_TILE; i++) z[i] = bits ? level[code[i]] * deviation : 0.0f;
    }
    for (p = latent_own_planes(v, tile); r < n && r < v->n_dir + v->n_own; p += FV_LATENT_BITS) {
        latent_codes(p, FV_LATENT_BITS, code);
        for (int i = 0; i < FV_PACKED_TILE; i++) z[i] = (float)((int32_t)code[i] - 128);
        r++, z += ld;
    }
    if (r < n) memset(z, 0, FV_PACKED_TILE * sizeof *z);
    if (v->exact < 0 || (size_t)v->exact / FV_PACKED_TILE != tile) return;
    for (z = first + v->exact % FV_PACKED_TILE, r = 0; r < n; r++) z[r * ld] = 0.0f;
    if (n == v->n) z[(n - 1) * ld] = 1.0f;
}

/* Number c of own direction i of a part; the exact token's come after them. */
static inline float latent_own_number(const fv_packed_part *p, size_t i, size_t c) {
    if (i == (size_t)p->shape.n_own)
        return widened((const char *)p->data + fv_latent_own_bytes(&p->shape), p->shape.dtype, c);
    const uint8_t *scales = (const uint8_t *)p->data;
    const uint8_t *code = scales + (size_t)p->shape.n_own * sizeof(float);
    float scale;
    memcpy(&scale, scales + i * sizeof scale, sizeof scale);
    code += i * fv_latent_own_line(&p->shape) + c / 2;
    return scale * (float)(2 * (*code >> c % 2 * 4 & 15) - 15);
}

#endif
