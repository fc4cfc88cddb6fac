#ifndef FOVEA_COMMON_PAGES_H
#define FOVEA_COMMON_PAGES_H

/* Memory for large arrays, on transparent huge pages if the system grants them: reading such an
 * array from end to end then has fewer TLB misses. */
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Allocates at least `bytes` bytes, not zeroed, aligned to `align`, a power of two of at least 8;
 * free them with free(). From 4 MiB on they are aligned to 2 MiB, and the kernel is asked for huge
 * pages. NULL: out of memory. */
void *fv_pages_alloc(size_t align, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
