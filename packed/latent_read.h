#ifndef FOVEA_PACKED_LATENT_READ_H
#define FOVEA_PACKED_LATENT_READ_H

/* Decodes coefficients of a latent block (latent.h) on the host: levels, or level * (deviation / 32) in f32,
 * and code - 128 for own directions; and the numbers of own directions. All paths give the same bits. */
#include <string.h>

#include "common/convert.h"
#include "packed/latent.h"

typedef struct latent_view {
    const fv_latent_layer *l;
    const uint16_t *plane;
    size_t planes;   /* of a tile */
    size_t n_dir, n; /* directions that have bits; these, own ones and the exact token's */
    size_t n_own;
    int32_t exact; /* the exact token's row, or -1 */
    uint8_t bits[FV_LATENT_MOST];
} latent_view;

static inline void latent_view_open(latent_view *v, const fv_packed_part *p) {
    v->l = p->latent;
    const void *from = p->base ? p->base : p->data;
    v->plane = fv_latent_plane(&p->shape, from);
    v->exact = fv_latent_exact(&p->shape, from);
    v->planes = fv_latent_planes(&p->shape);
    v->n_dir = (size_t)fv_latent_bits(p->latent, &p->shape, v->bits);
    v->n_own = (size_t)p->shape.latent.n_own;
    v->n = v->n_dir + v->n_own + (size_t)p->shape.latent.exact;
}

/* The levels of `bits` bits; 0 bits have no levels. */
static inline const int8_t *latent_levels(const fv_latent_layer *l, int bits) {
    return bits ? l->level + (1 << bits) - 2 : l->level;
}

/* A tile's planes of own directions, which are its last. */
static inline const uint16_t *latent_own_planes(const latent_view *v, size_t tile) {
    return v->plane + (tile + 1) * v->planes - FV_LATENT_BITS * v->n_own;
}

/* The code of a tile's row `lane`, from a direction's planes. */
static inline unsigned latent_code(const uint16_t *p, int bits, size_t lane) {
    unsigned code = 0;
    for (int b = 0; b < bits; b++) code |= (unsigned)(p[b] >> lane & 1) << b;
    return code;
}

static inline float latent_unit(const latent_view *v, size_t r) {
    return v->l->deviation[r] * FV_LATENT_UNIT;
}

static inline bool latent_is_exact(const latent_view *v, size_t j) {
    return v->exact >= 0 && j == (size_t)v->exact;
}

/* Decodes the first n coefficients of row j to z [n]. */
static inline void latent_row(const latent_view *v, size_t j, float *z, size_t n) {
    size_t tile = j / FV_PACKED_TILE, lane = j % FV_PACKED_TILE, r = 0;
    const uint16_t *p = v->plane + tile * v->planes;
    bool exact = latent_is_exact(v, j);
    memset(z, 0, n * sizeof *z);
    if (exact && n == v->n) z[n - 1] = 1.0f;
    if (exact) return;
    for (; r < n && r < v->n_dir; p += v->bits[r++]) {
        const int8_t *level = latent_levels(v->l, v->bits[r]);
        unsigned code = latent_code(p, v->bits[r], lane);
        z[r] = v->bits[r] ? (float)level[code] * latent_unit(v, r) : 0.0f;
    }
    for (p = latent_own_planes(v, tile); r < n && r < v->n_dir + v->n_own; r++, p += FV_LATENT_BITS)
        z[r] = (float)((int)latent_code(p, FV_LATENT_BITS, lane) - 128);
}

/* Decodes the levels of row j to level [n], n <= n_dir. */
static inline void latent_row_levels(const latent_view *v, size_t j, int8_t *level, size_t n) {
    const uint16_t *p = v->plane + j / FV_PACKED_TILE * v->planes;
    memset(level, 0, n);
    for (size_t r = 0; r < n && !latent_is_exact(v, j); p += v->bits[r++])
        if (v->bits[r])
            level[r] =
                latent_levels(v->l, v->bits[r])[latent_code(p, v->bits[r], j % FV_PACKED_TILE)];
}

/* Element c of own direction i of a part; the exact token counts as the last direction. */
static inline float latent_own_number(const fv_packed_part *p, size_t i, size_t c) {
    if (i == (size_t)p->shape.latent.n_own)
        return widened((const char *)p->data + fv_latent_own_bytes(&p->shape), p->shape.dtype, c);
    const uint8_t *scales = (const uint8_t *)p->data;
    const uint8_t *code = scales + (size_t)p->shape.latent.n_own * sizeof(float);
    float scale;
    memcpy(&scale, scales + i * sizeof scale, sizeof scale);
    code += i * fv_latent_own_line(&p->shape) + c / 2;
    return scale * (float)(2 * (*code >> c % 2 * 4 & 15) - 15);
}

#endif
