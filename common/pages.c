/* Large pages by madvise: advice, which a system may not take. */
#include "common/pages.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20, LARGE = 2 * HUGE_PAGE };

void *fv_pages_alloc(size_t align, size_t bytes) {
    void *p = NULL;
    if (posix_memalign(&p, bytes >= LARGE ? HUGE_PAGE : align, bytes) != 0) return NULL;
#ifdef MADV_HUGEPAGE
    if (bytes >= LARGE) (void)madvise(p, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#endif
    return p;
}
