/* The table of grants: a fixed number of slots, reused with rising epochs. A ticket's epoch gives its slot,
 * so a frame finds its grant without a search. */
#include "handoff/grant.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/clock.h"

typedef enum grant_state {
    FREE = 0, /* never granted */
    OPEN,
    RECEIVING,
    COMMITTED,
    RELEASED,
    EXPIRED
} grant_state;

typedef struct place {
    grant_state state;
    fv_ticket ticket;
    uint64_t bytes_left, bytes;
    uint64_t next; /* number of the next frame */
    uint32_t in_flight;
    double deadline_s;
    void *owner;
} place;

struct fv_grants {
    fv_grants_options opt;
    place *place;       /* [capacity] */
    uint64_t n_issue;   /* grants issued so far */
    int32_t n_live, at; /* `at`: where the search for a free slot continues */
    uint64_t bytes;
};

double fv_grants_now(const fv_grants *t) {
    return t->opt.clock ? t->opt.clock(t->opt.clock_user) : fv_clock_s();
}

static bool live(const place *p) {
    return p->state == OPEN || p->state == RECEIVING || p->state == COMMITTED;
}

fv_status fv_grants_open(const fv_grants_options *opt, fv_grants **out) {
    assert(opt->capacity > 0 && opt->credits > 0 && opt->frame_max > 0);
    fv_grants *t = calloc(1, sizeof *t);
    if (t) t->place = calloc((size_t)opt->capacity, sizeof *t->place);
    if (!t || !t->place) {
        fv_grants_close(t);
        return FV_FAIL(FV_ENOMEM, "out of memory for %d grants", opt->capacity);
    }
    t->opt = *opt;
    *out = t;
    return FV_OK;
}

void fv_grants_close(fv_grants *t) {
    if (!t) return;
    free(t->place);
    free(t);
}

/* ---- finding --------------------------------------------------------------------------- */

static fv_status find(const fv_grants *t, const fv_ticket *ticket, place **out) {
    place *p = &t->place[ticket->epoch % (uint64_t)t->opt.capacity];
    if (p->state != FREE && ticket->epoch < p->ticket.epoch)
        return FV_REFUSE(STALE_EPOCH,
                         "the grant with epoch %llu has ended, and its slot was reused",
                         (unsigned long long)ticket->epoch);
    if (p->state == FREE || memcmp(&p->ticket, ticket, sizeof *ticket) != 0)
        return FV_REFUSE(UNKNOWN_GRANT, "no grant has this ticket");
    *out = p;
    return FV_OK;
}

/* Finds a live grant whose deadline has not passed. */
static fv_status find_live(const fv_grants *t, const fv_ticket *ticket, place **out) {
    place *p;
    FV_TRY(find(t, ticket, &p));
    if (p->state == EXPIRED || (live(p) && fv_grants_now(t) >= p->deadline_s))
        return FV_REFUSE(EXPIRED, "the grant's lease has run out: ask for a new one");
    if (!live(p)) return FV_REFUSE(CLOSED, "the grant has been released");
    *out = p;
    return FV_OK;
}

/* ---- transitions between states --------------------------------------------------------- */

static void end_grant(fv_grants *t, place *p, grant_state state) {
    if (p->state != COMMITTED) t->bytes -= p->bytes;
    p->state = state;
    p->owner = NULL;
    t->n_live--;
}

static double first_lease_s(const fv_grants *t) {
    double first = t->opt.first_s, lease = t->opt.lease_s;
    return first > 0 && first < lease ? first : lease;
}

fv_status fv_grants_issue(fv_grants *t, uint64_t bytes, void *owner, fv_grant *out) {
    if (t->n_live == t->opt.capacity)
        return FV_REFUSE(NO_ROOM, "%d hand-offs are in progress, the maximum; try again",
                         t->opt.capacity);
    while (live(&t->place[t->at])) t->at = (t->at + 1) % t->opt.capacity;
    place *p = &t->place[t->at];
    fv_ticket ticket = {.epoch = ++t->n_issue * (uint64_t)t->opt.capacity + (uint64_t)t->at};
    if (getrandom(ticket.id, sizeof ticket.id, 0) != (ssize_t)sizeof ticket.id)
        return FV_REFUSE(NO_ROOM, "cannot read random bytes for a ticket");
    *p = (place){.state = OPEN,
                 .ticket = ticket,
                 .bytes_left = bytes,
                 .bytes = bytes,
                 .deadline_s = fv_grants_now(t) + first_lease_s(t),
                 .owner = owner};
    /* the oldest slot next, so that late frames get a precise reason */
    t->at = (t->at + 1) % t->opt.capacity;
    t->n_live++;
    t->bytes += bytes;
    *out = (fv_grant){.ticket = ticket,
                      .bytes = bytes,
                      .frame_max = t->opt.frame_max,
                      .credits = t->opt.credits,
                      .lease_s = t->opt.lease_s};
    return FV_OK;
}

fv_status fv_grants_accept(fv_grants *t, const fv_ticket *ticket, uint64_t seq, uint64_t bytes,
                           void **owner) {
    place *p;
    *owner = NULL;
    FV_TRY(find_live(t, ticket, &p));
    if (p->state == COMMITTED) return FV_REFUSE(CLOSED, "the hand-off is already committed");
    *owner = p->owner;
    if (seq < p->next)
        return FV_REFUSE(DUPLICATE, "frame %llu is a duplicate", (unsigned long long)seq);
    if (seq > p->next)
        return FV_REFUSE(OUT_OF_ORDER, "frame %llu arrived, expected frame %llu",
                         (unsigned long long)seq, (unsigned long long)p->next);
    if (bytes == 0 || bytes > t->opt.frame_max)
        return FV_REFUSE(FRAME_SIZE, "a frame of %llu bytes; must be 1 to %u",
                         (unsigned long long)bytes, t->opt.frame_max);
    if (p->in_flight == t->opt.credits)
        return FV_REFUSE(NO_CREDIT, "more than %u frames are sent and not yet consumed",
                         t->opt.credits);
    if (bytes > p->bytes_left)
        return FV_REFUSE(OVER_BUDGET, "the stream is longer than the %llu bytes granted",
                         (unsigned long long)p->bytes);
    p->state = RECEIVING;
    p->deadline_s = fv_grants_now(t) + t->opt.lease_s;
    p->next++;
    p->in_flight++;
    p->bytes_left -= bytes;
    return FV_OK;
}

fv_status fv_grants_renew(fv_grants *t, const fv_ticket *ticket) {
    place *p;
    FV_TRY(find_live(t, ticket, &p));
    if (p->state == COMMITTED) return FV_REFUSE(CLOSED, "the hand-off is already committed");
    p->deadline_s = fv_grants_now(t) + t->opt.lease_s;
    return FV_OK;
}

void fv_grants_consumed(fv_grants *t, const fv_ticket *ticket) {
    place *p = &t->place[ticket->epoch % (uint64_t)t->opt.capacity];
    if (memcmp(&p->ticket, ticket, sizeof *ticket) == 0 && p->in_flight > 0) p->in_flight--;
}

fv_status fv_grants_commit(fv_grants *t, const fv_ticket *ticket, uint64_t n_frame, void **owner,
                           uint64_t *surplus) {
    place *p;
    *owner = NULL;
    FV_TRY(find_live(t, ticket, &p));
    if (p->state == COMMITTED) return FV_REFUSE(CLOSED, "the hand-off is already committed");
    *owner = p->owner;
    if (n_frame != p->next || p->in_flight > 0)
        return FV_REFUSE(TRUNCATED, "the sender reports %llu frames, but %llu arrived",
                         (unsigned long long)n_frame, (unsigned long long)p->next);
    p->state = COMMITTED;
    p->deadline_s = fv_grants_now(t) + t->opt.attach_s;
    t->bytes -= p->bytes;
    *surplus = p->bytes_left;
    return FV_OK;
}

fv_status fv_grants_attach(fv_grants *t, const fv_ticket *ticket, void **owner) {
    place *p;
    FV_TRY(find_live(t, ticket, &p));
    if (p->state != COMMITTED) return FV_REFUSE(PENDING, "the hand-off is not committed yet");
    *owner = p->owner;
    end_grant(t, p, RELEASED);
    return FV_OK;
}

void *fv_grants_drop(fv_grants *t, const fv_ticket *ticket) {
    place *p = &t->place[ticket->epoch % (uint64_t)t->opt.capacity];
    if (!live(p) || memcmp(&p->ticket, ticket, sizeof *ticket) != 0) return NULL;
    void *owner = p->owner;
    end_grant(t, p, RELEASED);
    return owner;
}

void *fv_grants_expire(fv_grants *t, double until_s) {
    for (int32_t i = 0; t->n_live > 0 && i < t->opt.capacity; i++) {
        place *p = &t->place[i];
        if (!live(p) || until_s < p->deadline_s) continue;
        void *owner = p->owner;
        end_grant(t, p, EXPIRED);
        return owner;
    }
    return NULL;
}

double fv_grants_next_deadline(const fv_grants *t) {
    double first = HUGE_VAL;
    for (int32_t i = 0; i < t->opt.capacity; i++)
        if (live(&t->place[i]) && t->place[i].deadline_s < first) first = t->place[i].deadline_s;
    return first;
}

int32_t fv_grants_live(const fv_grants *t) { return t->n_live; }

uint64_t fv_grants_bytes(const fv_grants *t) { return t->bytes; }
