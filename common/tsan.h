#ifndef FOVEA_COMMON_TSAN_H
#define FOVEA_COMMON_TSAN_H

/* Tells ThreadSanitizer about an order between threads that an uninstrumented library establishes:
 * everything before RELEASE(p) on one thread happens before everything after ACQUIRE(p) on another.
 * Empty in other builds. */
#include <stddef.h>

#if defined(__SANITIZE_THREAD__)
#define FV_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FV_TSAN 1
#endif
#endif

#ifdef FV_TSAN
#include <sanitizer/tsan_interface.h>
#define FV_TSAN_RELEASE(p) __tsan_release(p)
#define FV_TSAN_ACQUIRE(p) __tsan_acquire(p)
#else
#define FV_TSAN_RELEASE(p) ((void)(p))
#define FV_TSAN_ACQUIRE(p) ((void)(p))
#endif

#endif
