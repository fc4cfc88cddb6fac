#ifndef FOVEA_KERNELS_CPU_THREADS_H
#define FOVEA_KERNELS_CPU_THREADS_H

/* A pool of threads that divide the index range of one loop at a time among them.
 *
 * The calling thread works too and is thread 0. Indices are handed out in chunks of `grain`. A
 * thread has a share of consecutive chunks, so that it reads memory in order and can prefetch; when
 * its share is done, it takes chunks from the other shares. So a thread that the system suspends
 * delays the loop by one chunk at most, and the loop does not wait for one that wakes up late. Which
 * thread gets which index is therefore not fixed, and no result may depend on it. */
#include <stdint.h>

#include "common/status.h"

typedef struct fv_threads fv_threads; /* opaque */

/* Computes indices [begin, end). `thread` < fv_threads_count selects scratch memory. */
typedef void (*fv_threads_fn)(void *arg, int thread, int64_t begin, int64_t end);

/* Starts n threads, the caller's included; 0 = one per core that this process may use (common/limits.h).
 * FV_ENOMEM if the system cannot create them. The thread that opened *out frees it with close. */
fv_status fv_threads_open(int n, fv_threads **out);
void fv_threads_close(fv_threads *t); /* NULL is fine */

int fv_threads_count(const fv_threads *t);

/* Calls fn for all of [0, n) in chunks of `grain` >= 1; returns when all is done. n = 0 does
 * nothing; one chunk runs on the calling thread alone, and a single thread gets all at once. Not
 * reentrant. */
void fv_threads_for(fv_threads *t, int64_t n, int64_t grain, fv_threads_fn fn, void *arg);

#endif
