#ifndef FOVEA_COMMON_RANDOM_H
#define FOVEA_COMMON_RANDOM_H

/* Unpredictable random bytes of the system: for secrets, and wherever a generator's state must not
 * show. */
#include "common/status.h"

/* Fills out[n]. FV_EIO: the system gives none. Any thread. */
fv_status fv_random_bytes(void *out, size_t n);

#endif
