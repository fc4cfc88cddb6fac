#ifndef FOVEA_TESTS_SUPPORT_THOROUGH_H
#define FOVEA_TESTS_SUPPORT_THOROUGH_H

#include <stdbool.h>
#include <stdlib.h>

/* Tells whether this is a run of `./dev test --long`: tests with many similar cases run all of them
 * there, else a part. */
static inline bool thorough(void) { return getenv("FOVEA_TEST_LONG") != NULL; }

/* n under AddressSanitizer, where each case takes seven times as long, unless the run is thorough; else 1. */
static inline int sanitized_step(int n) {
#ifdef __SANITIZE_ADDRESS__
    return thorough() ? 1 : n;
#else
    (void)n;
    return 1;
#endif
}

#endif
