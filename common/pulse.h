#ifndef FOVEA_COMMON_PULSE_H
#define FOVEA_COMMON_PULSE_H

/* PULSE: which requests a worker is working on, and does each of them get on?
 *
 *   [threads that work]  begin ... step, step, ... end      a step is a relaxed add
 *   [loop thread]        read: (request, count) of each      for the worker's reports
 *
 * A count only means something beside an earlier one of the same request: where they are equal,
 * nothing was done in between. Work that all requests of a batch share (layers) is counted once,
 * elsewhere, and added when it is read. What waits for its turn, for room or for another worker is
 * not worked on, and has no place here. */
#include <stdint.h>

#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FV_PULSE_MAX = 256, FV_PULSE_ID_MAX = 160 };

typedef struct fv_pulse fv_pulse; /* opaque */

fv_status fv_pulse_open(fv_pulse **out);
void fv_pulse_close(fv_pulse *p); /* nobody uses it any more; NULL is fine */

/* Work on a request begins; `shared(user)` (NULL: nothing) is added to its count, on the thread
 * that reads. Returns its place, for the others; 0: there are too many, and nobody hears of this
 * one. Any thread. */
int32_t fv_pulse_begin(fv_pulse *p, const char *id, uint64_t (*shared)(const void *user),
                       const void *user);
void fv_pulse_step(fv_pulse *p, int32_t place); /* 0 is fine, as for the next */
void fv_pulse_end(fv_pulse *p, int32_t place);

typedef struct fv_pulse_item {
    char id[FV_PULSE_ID_MAX + 1];
    uint64_t count;
} fv_pulse_item;

/* Writes what is worked on now to out [FV_PULSE_MAX], and returns how many. Any thread. */
int32_t fv_pulse_read(fv_pulse *p, fv_pulse_item *out);

#ifdef __cplusplus
}
#endif
#endif
