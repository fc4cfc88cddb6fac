#ifndef FOVEA_COMMON_SCHEDULE_H
#define FOVEA_COMMON_SCHEDULE_H

/* SCHEDULE: how many visual tokens are dropped after each layer of a checkpoint, fitted to save a
 * given share of their work. `fovea calibrate` writes it, a plan reads it. */
#include <stdint.h>

enum { FV_SCHEDULE_OF = 576, FV_SCHEDULE_LAYERS = 256, FV_SCHEDULES = 8 };

typedef struct fv_schedule {
    int32_t target; /* percent */
    /* [n_layer] number of FV_SCHEDULE_OF initial rows dropped after each layer; their sum is at
     * most FV_SCHEDULE_OF */
    int32_t leave[FV_SCHEDULE_LAYERS];
} fv_schedule;

#endif
