#ifndef FOVEA_COMMON_VECTORS_H
#define FOVEA_COMMON_VECTORS_H

/* VECTORS: put it before a function whose loops have independent chains, which the compiler
 * vectorizes. The function is compiled for AVX2 and for other CPUs, and the loader chooses one.
 * Arithmetic and its order are the same, so the bits are too. Not with sanitizers, whose runtime is
 * not ready when the loader chooses. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define VECTORS __attribute__((target_clones("avx2", "default")))
#else
#define VECTORS
#endif

/* Put it before a function that VECTORS functions call: it is inlined into each. */
#define VECTORS_PART static inline __attribute__((always_inline))

#endif
