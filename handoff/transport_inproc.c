/* The transport within one process: every function calls the sink, and every answer comes before the call
 * returns. Runs on the caller's thread, which is also the sink's. */
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "handoff/transport.h"

typedef struct inproc {
    fv_transport base;
    fv_sink *sink;
} inproc;

typedef struct inproc_transfer {
    fv_transfer base;
    fv_sink *sink;
    fv_ticket ticket;
    bool granted, committed;
} inproc_transfer;

static void answer(fv_status st, fv_reply *reply, fv_on_reply done, void *user) {
    reply->refusal = fv_refusal_of(st);
    reply->status = st;
    reply->at_s = fv_clock_s();
    if (st != FV_OK) snprintf(reply->text, sizeof reply->text, "%s", fv_last_error());
    done(user, reply);
}

/* Opens without waiting for memory: the caller owns the sink, and could not free any meanwhile. */
static fv_status inproc_open(fv_transport *t, const fv_hello *hello, const fv_grant_request *asking,
                             fv_on_reply done, void *user, fv_transfer **out) {
    (void)asking;
    fv_sink *sink = ((inproc *)t)->sink;
    fv_reply reply = {0};
    inproc_transfer *x = malloc(sizeof *x);
    if (!x) return FV_FAIL(FV_ENOMEM, "out of memory for a hand-off");
    fv_status st = sink->ops->offer(sink, hello, &reply.grant);
    *x = (inproc_transfer){
        .base.ops = t->ops, .sink = sink, .ticket = reply.grant.ticket, .granted = st == FV_OK};
    *out = &x->base;
    answer(st, &reply, done, user);
    return FV_OK;
}

static fv_status inproc_push(fv_transfer *t, uint64_t seq, const fv_piece *piece, int32_t n_piece) {
    inproc_transfer *x = (inproc_transfer *)t;
    return x->sink->ops->frame(x->sink, &x->ticket, seq, piece, n_piece);
}

static void inproc_commit(fv_transfer *t, uint64_t n_frame, fv_on_reply done, void *user) {
    inproc_transfer *x = (inproc_transfer *)t;
    fv_reply reply = {0};
    fv_status st = x->sink->ops->commit(x->sink, &x->ticket, n_frame);
    x->committed = st == FV_OK;
    answer(st, &reply, done, user);
}

static void inproc_end(fv_transfer *t, bool keep, void (*gone)(void *), void *user) {
    inproc_transfer *x = (inproc_transfer *)t;
    if (x->granted && !(keep && x->committed)) x->sink->ops->abort(x->sink, &x->ticket);
    free(x);
    if (gone) gone(user);
}

static void inproc_close(fv_transport *t, void (*closed)(void *), void *user) {
    free(t);
    if (closed) closed(user);
}

fv_status fv_transport_inproc(fv_sink *sink, fv_transport **out) {
    static const fv_transport_ops ops = {.name = "inproc",
                                         .open = inproc_open,
                                         .push = inproc_push,
                                         .commit = inproc_commit,
                                         .end = inproc_end,
                                         .close = inproc_close};
    inproc *t = malloc(sizeof *t);
    if (!t) return FV_FAIL(FV_ENOMEM, "out of memory for a transport");
    *t = (inproc){.base.ops = &ops, .sink = sink};
    *out = &t->base;
    return FV_OK;
}
