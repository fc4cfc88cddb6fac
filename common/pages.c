/* madvise is only a hint: the kernel decides whether to use huge pages. */
#include "common/pages.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20, LARGE = 2 * HUGE_PAGE };

void *fv_pages_alloc(size_t align, size_t bytes) {
    if (bytes >= LARGE) align = HUGE_PAGE;
    if (bytes > SIZE_MAX - align) return NULL;
    void *p = aligned_alloc(align, (bytes + align - 1) / align * align);
#ifdef MADV_HUGEPAGE
    if (p && bytes >= LARGE) (void)madvise(p, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#endif
    return p;
}
