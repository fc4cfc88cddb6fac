#ifndef FOVEA_GATEWAY_IGNORED_H
#define FOVEA_GATEWAY_IGNORED_H

/* IGNORED: logs the fields of requests that have no effect, each name once for each caller. The
 * table of names is bounded, and callers can fill it: it is emptied every hour, so there are at
 * most FV_IGNORED_MAX lines an hour, FV_IGNORED_CALLER of them for one caller. Loop thread. */
#include "gateway/api/request.h"

enum { FV_IGNORED_MAX = 512, FV_IGNORED_CALLER = 32 };

typedef struct fv_ignored fv_ignored; /* opaque */

fv_status fv_ignored_open(fv_ignored **out);
void fv_ignored_close(fv_ignored *i); /* NULL is fine */

/* Logs what of q->ignored has not been logged for this caller. caller: its tenant or address, which
 * the line names. now_s: by fv_clock_s. */
void fv_ignored_note(fv_ignored *i, const char *caller, const fv_api_request *q, double now_s);

#endif
