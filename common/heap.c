/* Checks free memory of glibc's allocator from time to time. The allocator's own trimming
 * (M_TRIM_THRESHOLD) sees only the end of the heap, where one small block keeps everything below
 * it. Returned memory still counts as free there, so resident memory shows whether there is
 * anything to return. */
#include "common/heap.h"

#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

/* Resident bytes of this process that no file backs; 0 if /proc does not say. */
static size_t resident_bytes(void) {
    unsigned long size, resident, shared;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f) return 0;
    int n = fscanf(f, "%lu %lu %lu", &size, &resident, &shared);
    fclose(f);
    return n == 3 && resident > shared ? (resident - shared) * (size_t)sysconf(_SC_PAGESIZE) : 0;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

void fv_heap_give_back(void) { malloc_trim(0); }

size_t fv_heap_check(fv_heap_watch *w) {
    size_t before = resident_bytes(), grown = before;
    if (w->resident) {
        w->resident = least(w->resident, before);
        grown -= w->resident;
    }
    size_t spare = least(mallinfo2().fordblks, grown);
    w->least = w->n_look == 0 ? spare : least(w->least, spare);
    if (++w->n_look < FV_HEAP_LOOKS) return 0;
    w->n_look = 0;
    if (w->least <= FV_HEAP_SPARE_BYTES) return 0;
    malloc_trim(0);
    size_t after = resident_bytes();
    w->resident = after;
    return before > after ? before - after : 0;
}
