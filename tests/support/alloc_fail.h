#ifndef FOVEA_TESTS_SUPPORT_ALLOC_FAIL_H
#define FOVEA_TESTS_SUPPORT_ALLOC_FAIL_H

/* ALLOCATION FAILURES: makes the n-th allocation of our own code return NULL. For programs linked with
 * --wrap for the functions below (tests/unit/CMakeLists.txt); libraries that are
 * shared allocate as ever. One thread. */
#include <stdbool.h>
#include <stdint.h>

/* Counts allocations from here on; the n-th (from 1) fails. */
void alloc_fail_begin(int64_t n);

/* Counts no more. True: the n-th came, and failed. */
bool alloc_fail_end(void);

/* Allocations of our own code that were not freed. */
int64_t alloc_live(void);

#endif
