/* Growing arrays. */
#ifndef FOVEA_COMMON_GROW_H
#define FOVEA_COMMON_GROW_H

#include <stddef.h>

#include "common/status.h"

/* Grows the array that *array points to, to at least `need` elements of `size` bytes. `array` is
 * the address of a pointer to memory from malloc, or of NULL if *capacity, in elements, is 0;
 * afterwards the pointer is not NULL, even for 0 elements. The capacity at least doubles, so
 * appending one by one takes linear time. FV_ENOMEM leaves both unchanged. */
fv_status fv_grow(void *array, size_t *capacity, size_t need, size_t size);

#endif
