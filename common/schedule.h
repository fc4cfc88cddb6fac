#ifndef FOVEA_COMMON_SCHEDULE_H
#define FOVEA_COMMON_SCHEDULE_H

/* SCHEDULE: how many visual tokens are dropped after each layer of a checkpoint, fitted to save a
 * given share of their work. `fovea calibrate` writes it, a plan reads it. */
#include <stdint.h>

enum { FV_SCHEDULE_OF = 576, FV_SCHEDULE_LAYERS = 256, FV_SCHEDULES = 8 };

typedef struct fv_schedule {
    int32_t target; /* per cent */
    /* [n_layer] of FV_SCHEDULE_OF rows that there are at first; in all no more than these */
    int32_t leave[FV_SCHEDULE_LAYERS];
} fv_schedule;

#endif
