#ifndef FOVEA_KERNELS_LATENT_READ_H
#define FOVEA_KERNELS_LATENT_READ_H

/* Coefficients of a latent block (latent.h) as f32, on the host: table[code] * deviation, the same
 * bits on every path. */
#include "kernels/latent.h"

typedef struct latent_view {
    const fv_latent_layer *l;
    const uint16_t *plane;
    size_t row_bits, n_dir; /* directions that have bits */
    uint8_t bits[FV_LATENT_MOST];
} latent_view;

static inline void latent_view_open(latent_view *v, const fv_packed_part *p) {
    v->l = p->latent;
    v->plane = (const uint16_t *)(p->base ? p->base : p->data);
    v->row_bits = (size_t)p->shape.row_bits;
    v->n_dir = (size_t)fv_latent_bits(p->latent, &p->shape, v->bits);
}

/* Of `bits` bits; 0 bits have none. */
static inline const float *latent_levels(const fv_latent_layer *l, int bits) {
    return bits ? l->level + (1 << bits) - 2 : l->level;
}

/* Row j: z [n], its first n coefficients. */
static inline void latent_row(const latent_view *v, size_t j, float *z, size_t n) {
    const uint16_t *p = v->plane + j / FV_PACKED_TILE * v->row_bits;
    int lane = (int)(j % FV_PACKED_TILE);
    for (size_t r = 0; r < n; r++) {
        unsigned code = 0;
        for (int b = 0; b < v->bits[r]; b++) code |= (unsigned)(*p++ >> lane & 1) << b;
        z[r] = v->bits[r] ? latent_levels(v->l, v->bits[r])[code] * v->l->deviation[r] : 0.0f;
    }
}

/* The 16 rows of a tile: column r < n of them at z + r * ld. */
static inline void latent_tile(const latent_view *v, size_t tile, size_t n, float *z, size_t ld) {
    const uint16_t *p = v->plane + tile * v->row_bits;
    for (size_t r = 0; r < n; r++, z += ld) {
        const int bits = v->bits[r];
        const float *level = latent_levels(v->l, bits), deviation = v->l->deviation[r];
        uint32_t code[FV_PACKED_TILE] = {0};
        for (int b = 0; b < bits; b++, p++)
            for (uint32_t i = 0; i < FV_PACKED_TILE; i++) code[i] |= (*p >> i & 1u) << b;
        for (int i = 0; i < FV_PACKED_TILE; i++) z[i] = bits ? level[code[i]] * deviation : 0.0f;
    }
}

#endif
