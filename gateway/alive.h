#ifndef FOVEA_GATEWAY_ALIVE_H
#define FOVEA_GATEWAY_ALIVE_H

/* ALIVE: tells streams when nothing has been written for a while. Proxies close a connection on
 * which nothing comes, and a request may wait longer than that: in the router's queue, for its
 * prefill, or while the fleet replaces a worker. Loop thread. */
#include <sys/queue.h>
#include <uv.h>

#include "common/status.h"

typedef struct fv_alive fv_alive; /* opaque */

/* A stream that is watched; {0}: not watched. */
typedef struct fv_alive_stream {
    LIST_ENTRY(fv_alive_stream) link;
    void (*quiet)(struct fv_alive_stream *s);
    fv_alive *alive; /* NULL: not watched */
    double quiet_s;  /* when it counts as quiet, by fv_clock_s */
} fv_alive_stream;

/* ms: the time without a write after which a stream is quiet; 0: never. */
fv_status fv_alive_open(uv_loop_t *loop, int32_t ms, fv_alive **out);
void fv_alive_close(fv_alive *a); /* no stream is watched any more. NULL is fine */

/* Watches a stream that has not begun: `quiet` is called after FV_ALIVE_FIRST_MS or `ms`, whichever
 * is less, and again after each `ms`. Does nothing where ms is 0. `quiet` may leave. */
enum { FV_ALIVE_FIRST_MS = 1000 };
void fv_alive_join(fv_alive *a, fv_alive_stream *s, void (*quiet)(fv_alive_stream *s));
void fv_alive_wrote(fv_alive_stream *s); /* something has been written */
void fv_alive_leave(fv_alive_stream *s); /* also of one that is not watched */

#endif
