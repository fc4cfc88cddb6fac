#ifndef FOVEA_TESTS_SUPPORT_ALLOC_FAIL_H
#define FOVEA_TESTS_SUPPORT_ALLOC_FAIL_H

/* ALLOCATION FAILURES: makes the n-th allocation of our own code return NULL. For programs linked
 * with --wrap for the functions below (tests/unit/CMakeLists.txt); shared libraries allocate as
 * usual. One thread. */
#include <stdbool.h>
#include <stdint.h>

/* Starts counting allocations; the n-th (from 1) fails. */
void alloc_fail_begin(int64_t n);

/* Stops counting. True: the n-th was reached, and failed. */
bool alloc_fail_end(void);

/* Allocations of our own code that were not freed. */
int64_t alloc_live(void);

#endif
