#ifndef FOVEA_ROUTER_WATCH_H
#define FOVEA_ROUTER_WATCH_H

/* WATCH: finds requests and workers that make no progress. Loop thread. */
#include "router/attempt.h"

/* Keeps a worker's progress on each request, from its report. */
void fv_watch_report(fv_relay *r, fv_registered_worker *w,
                     const Fovea__Fleet__V1__WorkerReport *report);

/* Takes requests from hung workers, and those that hang alone. */
void fv_watch_tick(fv_relay *relay, double now_s);

#endif
