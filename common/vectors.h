#ifndef FOVEA_COMMON_VECTORS_H
#define FOVEA_COMMON_VECTORS_H

/* VECTORS, before a function whose loops have independent chains, which the compiler turns into vectors: it is compiled
 * for CPUs with AVX2 and for others, and which one runs is chosen when the program is loaded. Arithmetic and its order
 * are the same, so the bits are. A sanitizer's run-time is not ready when that is chosen. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define VECTORS __attribute__((target_clones("avx2", "default")))
#else
#define VECTORS
#endif

/* Before a function that such functions call: it becomes part of each. */
#define VECTORS_PART static inline __attribute__((always_inline))

#endif
