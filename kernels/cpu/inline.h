#ifndef FOVEA_KERNELS_CPU_INLINE_H
#define FOVEA_KERNELS_CPU_INLINE_H

/* Requests to the compiler that the kernels depend on. */

/* Arguments that are constants at the call become constants in the body. */
#define ALWAYS_INLINE inline __attribute__((always_inline))

/* A loop that needs all registers gets a function of its own. */
#define NEVER_INLINE __attribute__((noinline))

/* Before a loop over the accumulators of a tile: it must dissolve, or they would not stay in
 * registers. */
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

#endif
