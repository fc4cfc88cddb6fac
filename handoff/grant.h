#ifndef FOVEA_HANDOFF_GRANT_H
#define FOVEA_HANDOFF_GRANT_H

/* GRANTS: the receiver's promise of memory for a limited time. Nothing is sent without one. The table
 * tracks bytes, order and time; the grant's owner holds the data built from the bytes.
 *
 *              issue            first accept           commit              attach
 *     (free) --------> OPEN ------------------> RECEIVING ------> COMMITTED ------> RELEASED
 *                       |                           |                 |
 *                       +---------------------------+-----------------+
 *                       |  drop (given up, or refused)                 '---> RELEASED
 *                       |  expire (deadline passed without a message)   -> EXPIRED
 *
 *     state       memory       deadline            a frame is
 *     OPEN        held         first_s from issue  accepted: it must be number 0
 *     RECEIVING   held         lease_s from frame  accepted: the next number, a credit, budget left
 *     COMMITTED   held         attach_s from commit refused: closed
 *     RELEASED    -            -                   refused: closed, until the slot is granted again
 *     EXPIRED     -            -                   refused: expired, likewise
 *
 * A ticket is 128 unpredictable random bits and an epoch. The epoch rises with every grant and
 * names its slot of the table: a frame that arrives late finds a later epoch there and is refused.
 *
 * A lease limits silence, not the whole transfer: each accepted frame renews it, and so does a
 * sender's keep-alive (renew). The sender's connection is known from its first message on, so a lost
 * connection frees the memory before the lease does. If a sender gives up while its grant is on the
 * way, no one has the ticket. Therefore the lease is short until the first message, which comes with the
 * start of the stream.
 *
 * One thread owns a table. */
#include "handoff/refusal.h"

typedef struct fv_ticket {
    uint8_t id[16];
    uint64_t epoch;
} fv_ticket;

typedef struct fv_grant {
    fv_ticket ticket;
    uint64_t bytes;       /* the most bytes of the stream */
    uint32_t frame_max;   /* the most bytes of a frame */
    uint32_t credits;     /* the most frames sent and not yet consumed */
    uint32_t n_kept;      /* links of the prompt that the receiver has: their tokens are not sent */
    uint32_t n_kept_tail; /* nor are so many tokens after the last of these */
    uint32_t
        rest_most; /* the receiver computes the prompt's tokens after those if they are at most so many; 0: none */
    double lease_s; /* the longest silence, not a point in time, as clocks of two machines differ */
    /* Bytes of the KV pool; 0: the peer does not say. A transport sets them. */
    uint64_t bytes_reserved;
} fv_grant;

typedef struct fv_grants_options {
    int32_t capacity; /* grants at a time */
    uint32_t frame_max, credits;
    double lease_s, attach_s;
    double first_s; /* until the sender's first message; 0, or longer than lease_s: lease_s */
    double (*clock)(void *user); /* seconds, monotonic; NULL: fv_clock_s */
    void *clock_user;
} fv_grants_options;

typedef struct fv_grants fv_grants; /* opaque */

fv_status fv_grants_open(const fv_grants_options *opt, fv_grants **out);
void fv_grants_close(fv_grants *t); /* owners are forgotten, not freed; NULL is fine */

/* Issues a grant for `bytes`, on behalf of `owner` (borrowed). NO_ROOM if all slots are taken. */
fv_status fv_grants_issue(fv_grants *t, uint64_t bytes, void *owner, fv_grant *out);

/* Accepts frame number `seq` of a grant, of `bytes` bytes: takes a credit and bytes of the budget. *owner
 * is set if the ticket names a live grant, even if the frame is refused. */
fv_status fv_grants_accept(fv_grants *t, const fv_ticket *ticket, uint64_t seq, uint64_t bytes,
                           void **owner);

/* Renews the lease of a sender that is still alive. */
fv_status fv_grants_renew(fv_grants *t, const fv_ticket *ticket);

/* Returns the credit of a consumed frame, whose memory is free again. */
void fv_grants_consumed(fv_grants *t, const fv_ticket *ticket);

/* Commits a grant whose sender reports n_frame frames, if all have been consumed: the grant then waits for
 * attach; *surplus: granted bytes that were not used. */
fv_status fv_grants_commit(fv_grants *t, const fv_ticket *ticket, uint64_t n_frame, void **owner,
                           uint64_t *surplus);

/* Takes the owner of a committed grant out of the table. PENDING: it is not committed yet. */
fv_status fv_grants_attach(fv_grants *t, const fv_ticket *ticket, void **owner);

/* Ends a grant in any state; returns the owner, for the caller to free, or NULL if the grant is not live. */
void *fv_grants_drop(fv_grants *t, const fv_ticket *ticket);

/* Ends one grant whose deadline is not after `until_s` and returns its owner, for the caller to free; NULL:
 * none is left. HUGE_VAL ends any live grant. */
void *fv_grants_expire(fv_grants *t, double until_s);

double fv_grants_now(const fv_grants *t); /* seconds of the table's clock */

/* The next deadline, in seconds of the clock; HUGE_VAL if no grant is live. */
double fv_grants_next_deadline(const fv_grants *t);

int32_t fv_grants_live(const fv_grants *t);
uint64_t fv_grants_bytes(const fv_grants *t); /* granted and not yet committed or ended */

#endif
