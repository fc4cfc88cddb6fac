#ifndef FOVEA_COMMON_PAGES_H
#define FOVEA_COMMON_PAGES_H

/* Memory for large arrays, on large pages where the system gives them to who asks (transparent huge pages):
 * a CPU that reads one from end to end waits less for addresses. */
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `bytes` at a multiple of `align`, a power of two of at least 8, to be given to free(); NULL: there is no
 * memory. What it holds is undefined. */
void *fv_pages_alloc(size_t align, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
