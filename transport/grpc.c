/* The computing thread's side of an outgoing hand-off, and the transport itself (grpc_internal.h). */
#include "transport/grpc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "auth/role.h"
#include "rpc/client.h"
#include "transport/frame.h"
#include "transport/grpc_internal.h"

enum { OPEN_MS = 10000 };

void fv_grpc_unref(fv_grpc_transfer *x) {
    if (atomic_fetch_sub(&x->refs, 1) != 1) return;
    free(x->policy);
    free(x->request_id);
    free(x->tenant);
    free(x->adapter);
    free(x->open_token);
    free(x->pair_token);
    free(x->links);
    free(x->names);
    free(x->ids);
    free(x);
}
/* ---- the computing thread's side -------------------------------------------------------- */

static char *copy(const char *text) { return strdup(text ? text : ""); }

static fv_status grpc_open(fv_transport *t, const fv_hello *hello, const fv_grant_request *asking,
                           fv_on_reply done, void *user, fv_transfer **out) {
    static const fv_grant_request nobody = {0};
    fv_grpc_transport *w = (fv_grpc_transport *)t;
    if (!asking) asking = &nobody;
    fv_grpc_transfer *x = calloc(1, sizeof *x);
    if (!x) return FV_FAIL(FV_ENOMEM, "out of memory for a hand-off");
    *x = (fv_grpc_transfer){.base.ops = t->ops, .way = w, .hello = *hello, .asking = *asking};
    x->policy = strdup(hello->policy);
    x->request_id = copy(asking->request_id);
    x->tenant = copy(asking->tenant);
    x->adapter = copy(hello->adapter);
    x->open_token = copy(asking->open_token);
    x->pair_token = copy(asking->pair_token);
    x->links = malloc((size_t)hello->n_link * FV_LINK_BYTES + 1);
    x->names = malloc(((size_t)hello->n_link + 1) * sizeof *x->names);
    x->ids = malloc(((size_t)hello->n_tail + 1) * sizeof *x->ids);
    if (!x->policy || !x->request_id || !x->tenant || !x->adapter || !x->open_token ||
        !x->pair_token || !x->links || !x->names || !x->ids) {
        atomic_store(&x->refs, 1);
        fv_grpc_unref(x);
        return FV_FAIL(FV_ENOMEM, "out of memory for a hand-off");
    }
    x->asking.request_id = x->request_id;
    x->asking.tenant = x->tenant;
    x->asking.open_token = x->open_token;
    x->asking.pair_token = x->permit.token = x->pair_token;
    x->hello.policy = x->policy;
    x->hello.adapter = x->adapter;
    fv_links_put(hello->link, hello->n_link, x->links);
    for (uint32_t i = 0; i < hello->n_link; i++) {
        x->names[i] = hello->link[i].name;
        if (x->names[i]) x->n_name = hello->n_link;
    }
    x->hello.link = NULL;
    for (uint32_t i = 0; i < hello->n_tail; i++) x->ids[i] = (uint32_t)hello->tail[i];
    x->hello.tail = NULL;
    x->tail = &x->first;
    fv_grpc_init_oob(x);
    x->opened.done = done;
    x->opened.user = user;
    atomic_init(&x->refs, 2); /* both sides */
    atomic_init(&x->loans, 1);
    x->begin = (fv_rpc_op){.done = fv_grpc_on_begin, .owner = x};
    fv_bridge_post(w->bridge, &x->begin, true);
    *out = &x->base;
    return FV_OK;
}
/* Runs after the last loan was returned: the sender's memory is free. Computing thread. */
static void on_returned(fv_job *job) {
    fv_grpc_transfer *x = job->owner;
    fv_grpc_transport *w = x->way;
    if (x->gone) x->gone(x->gone_user);
    x->parted = (fv_rpc_op){.done = fv_grpc_on_memory_returned, .owner = x};
    fv_bridge_post(w->bridge, &x->parted, true);
    fv_grpc_unref(x);
}

/* Returns a loan, after which gRPC no longer uses the frame's bytes. Any thread. */
void fv_grpc_give_back(void *user) {
    fv_grpc_transfer *x = user;
    if (atomic_fetch_sub(&x->loans, 1) != 1) return;
    x->returned = (fv_job){.run = on_returned, .owner = x};
    fv_jobs_post_followup(x->way->jobs, &x->returned);
}
static void post_frame(fv_grpc_transfer *x, fv_grpc_frame *f, grpc_byte_buffer *message,
                       bool last) {
    *f = (fv_grpc_frame){
        .op = {.done = fv_grpc_on_frame, .owner = f}, .x = x, .message = message, .last = last};
    fv_bridge_post(x->way->bridge, &f->op, true);
}

static fv_status grpc_push(fv_transfer *t, uint64_t seq, const fv_piece *piece, int32_t n_piece) {
    fv_grpc_transfer *x = (fv_grpc_transfer *)t;
    if (atomic_load(&x->lost)) return FV_FAIL(x->why.status, "%s", x->why.text);
    fv_grpc_frame *f = malloc(sizeof *f);
    if (!f) return FV_FAIL(FV_ENOMEM, "out of memory for a frame");
    grpc_byte_buffer *message;
    atomic_fetch_add(&x->loans, 1);
    fv_status st =
        fv_rpc_frame_lend(&x->ticket, seq, piece, n_piece, fv_grpc_give_back, x, &message);
    if (st != FV_OK) {
        fv_grpc_give_back(x);
        free(f);
        return st;
    }
    post_frame(x, f, message, false);
    return FV_OK;
}

static const fv_peer_ops *grpc_beside(fv_transfer *t) {
    fv_grpc_transfer *x = (fv_grpc_transfer *)t;
    return atomic_load(&x->oob.usable) ? fv_peers_ops(x->way->pairs) : NULL;
}

static fv_status grpc_push_beside(fv_transfer *t, uint64_t seq, fv_buf buf) {
    fv_grpc_transfer *x = (fv_grpc_transfer *)t;
    fv_oob_frame *b;
    fv_grpc_frame *f = atomic_load(&x->lost) ? NULL : malloc(sizeof *f);
    if (!f) {
        fv_buf_free(&buf);
        return atomic_load(&x->lost) ? FV_FAIL(x->why.status, "%s", x->why.text)
                                     : FV_FAIL(FV_ENOMEM, "out of memory for a frame");
    }
    fv_status st = fv_oob_frame_new(&x->oob, &x->ticket, seq, buf, &b);
    if (st != FV_OK) {
        free(f);
        return st;
    }
    *f = (fv_grpc_frame){.op = {.done = fv_grpc_on_frame, .owner = f}, .x = x, .oob = b};
    fv_bridge_post(x->way->bridge, &f->op, true);
    return FV_OK;
}

static fv_transfer_counts grpc_ways(const fv_transfer *t) {
    const fv_grpc_transfer *x = (const fv_grpc_transfer *)t;
    return (fv_transfer_counts){.bytes_oob = atomic_load(&x->oob.bytes),
                                .n_fallback = atomic_load(&x->oob.n_fallback)};
}

static void grpc_commit(fv_transfer *t, uint64_t n_frame, fv_on_reply done, void *user) {
    fv_grpc_transfer *x = (fv_grpc_transfer *)t;
    grpc_byte_buffer *message = NULL;
    x->closed.done = done;
    x->closed.user = user;
    fv_grpc_frame *f = malloc(sizeof *f);
    fv_status st = f ? fv_rpc_frame_commit(&x->ticket, n_frame, &message)
                     : FV_FAIL(FV_ENOMEM, "out of memory for a frame");
    if (st == FV_OK) {
        post_frame(x, f, message, true);
        return;
    }
    free(f);
    fv_reply r = fv_grpc_own_failure(st);
    done(user, &r);
}

static void grpc_end(fv_transfer *t, bool keep, void (*gone)(void *), void *user) {
    fv_grpc_transfer *x = (fv_grpc_transfer *)t;
    x->ended = true;
    x->keep = keep;
    x->gone = gone;
    x->gone_user = user;
    x->end = (fv_rpc_op){.done = fv_grpc_on_ended, .owner = x};
    fv_bridge_post(x->way->bridge, &x->end, true);
}

/* ---- the transport --------------------------------------------------------------------- */

static void on_pair_closed(void *user) {
    fv_grpc_transport *w = user;
    void (*closed)(void *) = w->closed;
    user = w->user;
    fv_rpc_channel_close(w->channel);
    free(w->target);
    free(w);
    if (closed) closed(user);
}

static void on_gone(fv_rpc_op *op, bool ok) {
    fv_grpc_transport *w = op->owner;
    (void)ok;
    if (w->pair)
        fv_peer_route_close(w->pair, on_pair_closed, w);
    else
        on_pair_closed(w);
}

void fv_grpc_way_unref(fv_grpc_transport *w) {
    if (--w->live > 0) return;
    assert(w->closing);
    fv_bridge_post(w->bridge, &w->gone, true); /* after the current work */
}

static void grpc_close(fv_transport *t, void (*closed)(void *), void *user) {
    fv_grpc_transport *w = (fv_grpc_transport *)t;
    w->closing = true;
    w->closed = closed;
    w->user = user;
    w->gone = (fv_rpc_op){.done = on_gone, .owner = w};
    fv_grpc_way_unref(w); /* the reference of the open transport */
}

fv_status fv_transport_grpc(const fv_transport_grpc_options *opt, fv_transport **out) {
    static const fv_transport_ops ops = {.name = "grpc",
                                         .open = grpc_open,
                                         .push = grpc_push,
                                         .oob = grpc_beside,
                                         .push_oob = grpc_push_beside,
                                         .ways = grpc_ways,
                                         .commit = grpc_commit,
                                         .end = grpc_end,
                                         .close = grpc_close};
    fv_rpc_channel_options to = {.ping_ms = opt->ping_ms,
                                 .tls = opt->tls,
                                 .server_name = opt->tls ? fv_role_name(FV_MEMBER_DECODE) : NULL};
    fv_grpc_transport *w = calloc(1, sizeof *w);
    char *target = strdup(opt->target);
    fv_status st = w && target ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for a transport");
    if (st == FV_OK) st = fv_rpc_channel_open(opt->bridge, target, &to, &w->channel);
    if (st == FV_OK && opt->pairs)
        st = fv_peer_route_open(opt->pairs, w->channel, target, &w->pair);
    if (st != FV_OK) {
        if (w) fv_rpc_channel_close(w->channel);
        free(target);
        free(w);
        return st;
    }
    w->base.ops = &ops;
    w->bridge = opt->bridge;
    w->jobs = opt->jobs;
    w->pairs = opt->pairs;
    w->target = target;
    w->open_ms = opt->open_ms ? opt->open_ms : OPEN_MS;
    w->live = 1;
    *out = &w->base;
    return FV_OK;
}
