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
    struct fv_inbox_item *next; /* the inbox's while it is there, then the list that was taken */
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

/* No thread may post any more: all have been joined, or are known to be done. Items that are still
 * queued stay with their owners. */
void fv_inbox_fini(fv_inbox *box);

/* Any thread. FV_EBUSY when `limit` items wait, FV_ECANCELLED when the inbox is closed: the item
 * is the caller's again. */
fv_status fv_inbox_post(fv_inbox *box, fv_inbox_item *item);

/* Any thread. Nothing more is accepted; what waits can still be taken. The owner is woken. */
void fv_inbox_close(fv_inbox *box);

/* For the owner: all queued items, oldest first, or NULL; does not sleep. *closed (or NULL) is set
 * if the inbox is closed: then nothing follows what was returned. */
fv_inbox_item *fv_inbox_take(fv_inbox *box, bool *closed);

/* The owner. The same, but sleeps until something comes, the inbox is closed, or `seconds` have
 * passed (below 0: for ever). */
fv_inbox_item *fv_inbox_wait(fv_inbox *box, double seconds, bool *closed);

#endif
