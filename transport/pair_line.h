#ifndef FOVEA_TRANSPORT_PAIR_LINE_H
#define FOVEA_TRANSPORT_PAIR_LINE_H

/* PAIR LINE: one end of a pair (common/pair.h) with a thread of its own, for a loop that must not
 * wait.
 *
 *   [loop thread]  fv_line_open, fv_line_move -->  [the line's thread]  begins, and looks again
 *        ^                                              |               and again
 *        '---- joined, over (per move), failed ---------'
 *
 * A thread per pair, and not one for all: a call into the library that hangs holds up nobody else.
 * Moves are begun and are over in their order. Time is nobody's affair here: whoever waits closes
 * the line when it has waited long enough. Loop thread. */
#include "common/jobs.h"
#include "common/pair.h"
#include "rpc/bridge.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fv_line fv_line; /* opaque */

/* Memory to send (rank 0) or to receive into (rank 1). Embedded in whoever waits for it. */
typedef struct fv_line_move {
    void *data; /* of the device, the line's until it is over or the line is closed */
    size_t bytes;
    uint32_t crc; /* of what was received, when it is over */
    void *owner;  /* borrowed; for `over` */
    /* private */
    fv_line *line;
    fv_job there;
    fv_rpc_op back;
    struct fv_line_move *next;
} fv_line_move;

typedef struct fv_line_options {
    fv_bridge *bridge;
    const fv_pair_ops *ops; /* borrowed, as is the device */
    fv_device *device;
    uint8_t id[FV_PAIR_ID_BYTES];
    int rank;
    size_t room_bytes;
    void *user;
    void (*joined)(void *user);
    void (*over)(void *user, fv_line_move *m);
    /* The first failure, once; nothing but `closed` comes behind it. Moves that are not over are
     * the line's until then. */
    void (*failed)(void *user, const char *text);
    /* Behind fv_line_close: moves that were not over are their owners' again. */
    void (*closed)(void *user);
} fv_line_options;

/* Begins to join. */
fv_status fv_line_open(const fv_line_options *opt, fv_line **out);
char *fv_line_room(const fv_line *l); /* once it has joined; [room_bytes] of the device */
void fv_line_begin(fv_line *l, fv_line_move *m); /* once it has joined */
/* Ends it, without waiting for the other side. Nothing but `closed` is called any more. */
void fv_line_close(fv_line *l);

#ifdef __cplusplus
}
#endif
#endif
