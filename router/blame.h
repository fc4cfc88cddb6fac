#ifndef FOVEA_ROUTER_BLAME_H
#define FOVEA_ROUTER_BLAME_H

/* BLAME: finds requests that kill workers, and ends them. Loop thread. */
#include "router/life.h"

/* Remembers who worked on an attempt that has failed, perhaps because a worker was lost. */
void fv_blame_remember(fv_request *r, const fv_failure *f);

/* Counts the loss of w against the requests it worked on, and ends the one that has lost a second worker. */
void fv_blame_lost(fv_relay *relay, const fv_registered_worker *w);

fv_status fv_blame_sentence(const fv_request *r); /* FV_EFATAL: the request has lost two workers */

#endif
