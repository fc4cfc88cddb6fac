#ifndef FOVEA_KERNELS_CUDA_PLACEMENT_H
#define FOVEA_KERNELS_CUDA_PLACEMENT_H

/* Places arrays one after the other in one block of memory: first without memory, to compute the size,
 * then in it. */
#include <stddef.h>
#include <stdint.h>

typedef struct fv_placement {
    char *base; /* NULL: only counts bytes */
    size_t bytes;
} fv_placement;

/* Returns space for n elements, aligned to 16, or NULL without memory; *at: its offset. */
static inline void *fv_place(fv_placement *l, size_t n, size_t size, uint32_t *at) {
    void *p = l->base ? l->base + l->bytes : NULL;
    *at = (uint32_t)l->bytes;
    l->bytes += (n * size + 15) / 16 * 16;
    return p;
}

static inline int32_t fv_div_up(int32_t a, int32_t b) { return (a + b - 1) / b; }

#endif
