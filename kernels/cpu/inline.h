#ifndef FOVEA_KERNELS_CPU_INLINE_H
#define FOVEA_KERNELS_CPU_INLINE_H

/* Requests to the compiler that the speed of the kernels depends on, and nothing else does.
 *
 *   ALWAYS_INLINE   arguments that are constants at the call become constants in the body
 *   NEVER_INLINE    a loop that needs all registers gets a function of its own
 *   UNROLL          before a loop over the accumulators of a tile: it dissolves, or they would
 *                   not stay in registers
 *   ROLLED          before a loop that does not: its copies would be more than the processor keeps decoded
 *
 * A sanitizer puts checks on every access of every copy; clang then compiles a path for many
 * minutes. So sanitized builds make no copies. */
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
