#ifndef FOVEA_PREFILL_WORKER_SERVICE_READING_H
#define FOVEA_PREFILL_WORKER_SERVICE_READING_H

/* READING LINES: threads that decode images and tokenize for all tasks, so that the computing thread goes
 * on meanwhile. Each runs one unit of work after another, of the tenant whose turn it is (fair.h):
 *
 *   [large line]   images of more than FV_READING_SMALL pixels and bytes, or of formats that take a process
 *   [small line]   all other units
 *
 * A unit is not interrupted, so a small image waits for one small unit at most, and not for one of the
 * largest. Both lines hold one decoded image at a time. */
#include "common/jobs.h"
#include "serving/worker/fair.h"

enum { FV_READING_SMALL = 16 << 20 };

typedef struct fv_reading fv_reading; /* opaque: the lines */

typedef struct fv_unit {
    fv_job job;      /* private */
    void *owner;     /* borrowed; for `run` */
    const char *who; /* the tenant; borrowed until `run` begins */
    double weight;
    double cost; /* pixels plus bytes */
    /* Called on the line's thread. The unit belongs to the caller again, and may be added again. */
    void (*run)(struct fv_unit *unit);
    /* private */
    fv_reading *reading;
    struct fv_unit *next;
    fv_fair_flow *flow;
} fv_unit;

fv_status fv_reading_open(fv_reading **out);
void fv_reading_close(fv_reading *r); /* when all units have run; NULL is fine */

/* Adds a unit, whose public fields must be set. On any thread. */
void fv_reading_add(fv_reading *r, fv_unit *unit);

#endif
