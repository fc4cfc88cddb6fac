#ifndef FOVEA_SERVING_WORKER_LOAD_METRICS_H
#define FOVEA_SERVING_WORKER_LOAD_METRICS_H

/* LOAD METRICS: a worker's load, which its reports have, as metrics. Loop thread. */
#include "inference.pb-c.h"

void fv_load_record(const Fovea__Inference__V1__Load *load);

#endif
