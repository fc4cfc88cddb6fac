/* Arrays that grow. */
#ifndef FOVEA_COMMON_GROW_H
#define FOVEA_COMMON_GROW_H

#include <stddef.h>

#include "common/status.h"

/* Makes room for `need` elements of `size` bytes in the array that *array points to. `array` is
 * the address of a pointer to malloc's memory, or NULL if *capacity, in elements, is 0; afterwards
 * it is not NULL, even for 0 elements. The capacity at least doubles, so that appending one by one
 * takes linear time. FV_ENOMEM: both are as they were. */
fv_status fv_grow(void *array, size_t *capacity, size_t need, size_t size);

#endif
