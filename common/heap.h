#ifndef FOVEA_COMMON_HEAP_H
#define FOVEA_COMMON_HEAP_H

/* HEAP: returns freed memory to the system. The allocator keeps freed memory, after a burst
 * possibly gigabytes. Memory that is soon needed again would cost page faults, so only what was
 * free at several checks in a row is returned. One thread. */
#include <stdbool.h>
#include <stddef.h>

typedef struct fv_heap_watch {
    /* private */
    size_t least;    /* that could have gone back at each look so far */
    size_t resident; /* when memory went back last, or less since; 0: never */
    int n_look;
} fv_heap_watch; /* {0} begins */

/* How often to look, how many looks decide, and from how many bytes on it is worth it. */
enum { FV_HEAP_LOOK_MS = 5000, FV_HEAP_LOOKS = 3, FV_HEAP_SPARE_BYTES = 8 << 20 };

/* Looks; at every third look, gives free memory back if more than FV_HEAP_SPARE_BYTES were free and
 * resident at all three. Returns the bytes by which resident memory has fallen, 0: nothing was
 * done. Takes microseconds; giving back, some milliseconds for each gigabyte. */
size_t fv_heap_look(fv_heap_watch *w);

/* After a lot was freed that will not be needed soon: gives back at once what is free. Any thread. */
void fv_heap_give_back(void);

#endif
