#ifndef FOVEA_COMMON_HEAP_H
#define FOVEA_COMMON_HEAP_H

/* HEAP: returns freed memory to the system. The allocator keeps freed memory, after a burst
 * possibly gigabytes. Returning memory that is soon needed again would cost page faults, so only
 * memory that was free at several checks in a row is returned. One thread. */
#include <stdbool.h>
#include <stddef.h>

typedef struct fv_heap_watch {
    /* private */
    size_t least;    /* returnable bytes, the minimum over the checks so far */
    size_t resident; /* resident bytes when memory was last returned, or lower since; 0: never */
    int n_look;
} fv_heap_watch; /* {0} begins */

/* Interval of checks, number of checks that decide, and bytes from which on returning is
 * worthwhile. */
enum { FV_HEAP_LOOK_MS = 5000, FV_HEAP_LOOKS = 3, FV_HEAP_SPARE_BYTES = 8 << 20 };

/* Checks once; at every third check, returns free memory if more than FV_HEAP_SPARE_BYTES were free
 * and resident at all three. Returns the bytes by which resident memory has fallen, 0 if nothing
 * was done. A check takes microseconds, returning memory some milliseconds per gigabyte. */
size_t fv_heap_check(fv_heap_watch *w);

/* After a lot was freed that will not be needed soon: gives back at once what is free. Any thread. */
void fv_heap_give_back(void);

#endif
