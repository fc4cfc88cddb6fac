#ifndef FOVEA_COMMON_INBOX_H
#define FOVEA_COMMON_INBOX_H

/* INBOX: a queue of messages to one thread. Any thread posts; one thread owns the inbox and takes
 * the messages in the order of arrival.
 *
 *   any thread -- post --> list under a mutex -- take or wait --> the owner
 *                              | ring, when the first item enters an empty inbox
 *                              '--> the owner's doorbell, if it sleeps elsewhere (an event loop)
 *
 * Items are embedded in the messages, so posting allocates nothing and cannot fail. An owner that
 * takes all items at once locks once per wake-up, not per item. */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/status.h"

typedef struct fv_inbox_item {
    struct fv_inbox_item *next; /* links the inbox's list, later the list returned by take */
} fv_inbox_item;

typedef struct fv_inbox {
    /* private */
    pthread_mutex_t mutex;
    pthread_cond_t filled;
    fv_inbox_item *head, **tail;
    size_t n, limit;
    bool closed;
    void (*ring)(void *user);
    void *user;
} fv_inbox;

/* At most `limit` items wait at a time; 0: any number. `ring` (NULL when the owner uses
 * fv_inbox_wait) is called on the posting thread, outside the lock, and must not block. */
fv_status fv_inbox_init(fv_inbox *box, size_t limit, void (*ring)(void *user), void *user);

/* Call it when no thread can post any more: all are joined or known to be done. Queued items stay
 * with their owners. */
void fv_inbox_fini(fv_inbox *box);

/* Posts an item. Any thread. FV_EBUSY if `limit` items wait, FV_ECANCELLED if the inbox is closed:
 * the item is the caller's again. */
fv_status fv_inbox_post(fv_inbox *box, fv_inbox_item *item);

/* Closes the inbox: later posts fail, queued items can still be taken. Wakes the owner. Any
 * thread. */
void fv_inbox_close(fv_inbox *box);

/* For the owner: returns all queued items, oldest first, or NULL; does not sleep. Sets *closed (or
 * NULL) if the inbox is closed: no items will follow. */
fv_inbox_item *fv_inbox_take(fv_inbox *box, bool *closed);

/* For the owner: does the same, but sleeps until an item arrives, the inbox is closed, or `seconds`
 * have passed (below 0: forever). */
fv_inbox_item *fv_inbox_wait(fv_inbox *box, double seconds, bool *closed);

#endif
