#ifndef FOVEA_KERNELS_CPU_LANES_LANES_H
#define FOVEA_KERNELS_CPU_LANES_LANES_H

/* The 16-lane vector f32x16 of the path that a file is compiled for. */
#include "kernels/cpu/inline.h"
#ifdef __AVX512F__
#include "kernels/cpu/avx512/lanes.h"
#else
#include "kernels/cpu/avx2/lanes.h"
#endif

enum { LANES = 16 };

static inline size_t steps_of(size_t K) { return (K + LANES - 1) / LANES; }

static inline size_t padded(size_t n) { return steps_of(n) * LANES; }

static inline int min_int(int64_t a, int64_t b) { return (int)(a < b ? a : b); }

#endif
