#ifndef FOVEA_COMMON_PULSE_H
#define FOVEA_COMMON_PULSE_H

/* PULSE: which requests is a worker working on, and does each make progress?
 *
 *   [threads that work]  begin ... step, step, ... end      a step is a relaxed add
 *   [loop thread]        read: (request, count) of each      for the worker's reports
 *
 * Two equal counts of a request mean that no work was done for it in between. Work shared by all
 * requests of a batch (layers) is counted once, elsewhere, and added when the count is read.
 * Requests that wait (in a queue, for memory, for another worker) are not listed. */
#include <stdint.h>

#include "common/status.h"

enum { FV_PULSE_MAX = 256, FV_PULSE_ID_MAX = 192 };

typedef struct fv_pulse fv_pulse; /* opaque */

fv_status fv_pulse_open(fv_pulse **out);
void fv_pulse_close(fv_pulse *p); /* when no thread uses it any more; NULL is fine */

/* Starts work on a request; `shared(user)` (NULL: nothing) is added to its count on the thread
 * that reads. Returns its slot for the calls below; 0: too many, this request is not listed. Any
 * thread. */
int32_t fv_pulse_begin(fv_pulse *p, const char *id, uint64_t (*shared)(const void *user),
                       const void *user);
void fv_pulse_step(fv_pulse *p, int32_t i); /* i 0 is fine in both */
void fv_pulse_end(fv_pulse *p, int32_t i);

typedef struct fv_pulse_item {
    char id[FV_PULSE_ID_MAX + 1];
    uint64_t count;
} fv_pulse_item;

/* Writes the requests in progress to out [FV_PULSE_MAX] and returns their number. Any thread. */
int32_t fv_pulse_read(fv_pulse *p, fv_pulse_item *out);

#endif
