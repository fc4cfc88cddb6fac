#ifndef FOVEA_COMMON_RANDOM_H
#define FOVEA_COMMON_RANDOM_H

/* Random bytes of the system, which nobody can guess: for secrets, and for all that must not show a
 * generator's state. */
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills out[n]. FV_EIO: the system gives none. Any thread. */
fv_status fv_random_bytes(void *out, size_t n);

#ifdef __cplusplus
}
#endif
#endif
