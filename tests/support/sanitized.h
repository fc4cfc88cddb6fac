#ifndef FOVEA_TESTS_SUPPORT_SANITIZED_H
#define FOVEA_TESTS_SUPPORT_SANITIZED_H

/* SANITIZED is 1 where a sanitizer slows everything down and keeps freed memory. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#endif
