#ifndef FOVEA_KERNELS_CPU_INLINE_H
#define FOVEA_KERNELS_CPU_INLINE_H

/* Compiler directives that affect only the speed of the kernels.
 *
 *   ALWAYS_INLINE   arguments that are constants at the call become constants in the body
 *   NEVER_INLINE    a loop that needs all registers gets a function of its own
 *   UNROLL          before a loop over the accumulators of a tile: unrolled completely, so that they
 *                   stay in registers
 *   ROLLED          before a loop that must not be unrolled: its copies would overflow the cache of decoded
 *                   instructions
 *
 * Sanitized builds unroll nothing: with checks on every access of every copy clang needs many minutes for
 * a path. */
#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(undefined_behavior_sanitizer)
#define FV_CPU_ROLLED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FV_CPU_ROLLED
#endif

#define NEVER_INLINE __attribute__((noinline))

#ifdef __clang__
#define ROLLED _Pragma("nounroll")
#else
#define ROLLED _Pragma("GCC unroll 1")
#endif

#ifdef FV_CPU_ROLLED
#define ALWAYS_INLINE __attribute__((noinline, unused))
#define UNROLL
#else
#define ALWAYS_INLINE inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif
#endif

#endif
