#ifndef FOVEA_COMMON_RANDOM_H
#define FOVEA_COMMON_RANDOM_H

/* Unpredictable random bytes from the system: for secrets, and wherever a generator's state must
 * not be guessed. */
#include "common/status.h"

/* Fills out[n]. FV_EIO: the system provides none. Any thread. */
fv_status fv_random_bytes(void *out, size_t n);

#endif
