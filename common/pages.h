#ifndef FOVEA_COMMON_PAGES_H
#define FOVEA_COMMON_PAGES_H

/* Memory for large arrays, on transparent huge pages where the system grants them: reading such an array from
 * end to end takes fewer TLB misses. */
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* At least `bytes` bytes, not zeroed, at a multiple of `align`, a power of two of at least 8; the caller frees
 * them with free(). From 4 MiB on they are aligned to 2 MiB, and the kernel is asked for huge pages. NULL: out
 * of memory. */
void *fv_pages_alloc(size_t align, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
