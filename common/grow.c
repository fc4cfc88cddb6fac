/* Growing arrays. */
#include "common/grow.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST = 16 };

fv_status fv_grow(void *array, size_t *capacity, size_t need, size_t size) {
    if (need <= *capacity && *capacity) return FV_OK;
    size_t n = *capacity > need / 2 ? 2 * *capacity : need;
    if (n < LEAST) n = LEAST;
    void *p;
    memcpy(&p, array, sizeof p);
    p = n > SIZE_MAX / 2 / size ? NULL : realloc(p, n * size);
    if (!p) return FV_FAIL(FV_ENOMEM, "out of memory for %zu elements of %zu bytes", n, size);
    memcpy(array, &p, sizeof p);
    *capacity = n;
    return FV_OK;
}
