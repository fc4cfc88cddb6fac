/* Serves Handoff.Pair. A call is a peer link: it begins with the id of the communicator and ends with the
 * link. Frames arrive in the link's slots, on its link thread; a slot is free again when its bytes
 * were copied to their destination, or are not needed.
 *
 * A link outlives its call while the computing thread still copies out of a slot, and until the
 * link thread has released the device. */
#include "decode-worker/service/pair.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/clock.h"
#include "common/log.h"
#include "decode-worker/service/internal.h"

typedef Fovea__Handoff__V1__PairRequest word_message;
typedef Fovea__Handoff__V1__PairReply reply_message;

enum { PLACES = 32 };

struct fv_link_in {
    fv_decode_worker *w;
    fv_link_in *next;
    fv_rpc_call *call;    /* NULL: over */
    fv_link_thread *line; /* NULL: not opened yet, or closed */
    uint64_t number, n_turn;
    bool joined, finished, line_closing;
    int32_t n_reused;
    double used_s;
    fv_link_slot place[PLACES];
};

/* ---- its end --------------------------------------------------------------------------- */

static void pair_free(fv_link_in *p) {
    fv_links_in *all = &p->w->pairs;
    fv_decode_worker *w = p->w;
    fv_link_in **at = &all->first;
    while (*at != p) at = &(*at)->next;
    *at = p->next;
    all->n_now--;
    free(p);
    if (all->n_now == 0) all->none_left(w);
}

static void on_line_closed(void *user) {
    fv_link_in *p = user;
    p->line = NULL;
    pair_free(p);
}

static void maybe_over(fv_link_in *p) {
    if (p->call || p->n_reused > 0 || p->line_closing) return;
    p->line_closing = true;
    if (p->line)
        fv_link_thread_close(p->line);
    else
        pair_free(p);
}

static void finish(fv_link_in *p, fv_status st) {
    if (p->call && !p->finished) fv_rpc_call_finish(p->call, st);
    p->finished = true;
}

void fv_peers_end(fv_links_in *p) {
    for (fv_link_in *q = p->first; q; q = q->next) finish(q, FV_OK);
}

/* ---- places ---------------------------------------------------------------------------- */

static void send_reply(fv_link_in *p, reply_message *m) {
    if (!p->call || p->finished) return;
    fv_status st = fv_rpc_call_send(p->call, &m->base);
    if (st != FV_OK) finish(p, st);
}

static void place_free(fv_link_slot *place) {
    reply_message m = FOVEA__HANDOFF__V1__PAIR_REPLY__INIT;
    m.reply_case = FOVEA__HANDOFF__V1__PAIR_REPLY__REPLY_TAKEN;
    m.taken = place->turn;
    place->used = false;
    place->pair->used_s = fv_clock_s();
    send_reply(place->pair, &m);
}

fv_link_slot *fv_link_frame(fv_links_in *all, uint64_t number, uint64_t turn) {
    fv_link_in *p = all->first;
    while (p && p->number != number) p = p->next;
    for (int i = 0; p && p->call && i < PLACES; i++) {
        fv_link_slot *place = &p->place[i];
        if (!place->used || !place->arrived || place->reused || place->turn != turn) continue;
        place->reused = true;
        p->n_reused++;
        return place;
    }
    return NULL;
}

void fv_link_free_slot(fv_link_slot *place) {
    fv_link_in *p = place->pair;
    place->reused = false;
    p->n_reused--;
    place_free(place);
    maybe_over(p);
}

static void on_line_over(void *user, fv_link_thread_move *m) {
    fv_link_slot *place = m->owner;
    fv_link_in *p = user;
    place->arrived = true;
    if (place->forgotten)
        place_free(place);
    else
        p->w->pairs.arrived(p->w);
}

/* ---- words ----------------------------------------------------------------------------- */

static void on_line_joined(void *user) {
    fv_link_in *p = user;
    reply_message m = FOVEA__HANDOFF__V1__PAIR_REPLY__INIT;
    p->joined = true;
    m.reply_case = FOVEA__HANDOFF__V1__PAIR_REPLY__REPLY_JOINED;
    m.joined = true;
    send_reply(p, &m);
}

static void on_line_failed(void *user, const char *text) {
    fv_link_in *p = user;
    p->w->pairs.n_failed++;
    FV_LOG(WARN, DECODE, "event=pair-failed reason=\"%s\"", text);
    finish(p, FV_FAIL(FV_EDEVICE, "%s", text));
}

static fv_status join(fv_link_in *p, const Fovea__Handoff__V1__PairJoin *join) {
    const fv_links_in *all = &p->w->pairs;
    fv_link_thread_options opt = {.bridge = p->w->bridge,
                                  .ops = all->ops,
                                  .device = all->device,
                                  .rank = 1,
                                  .buffer_bytes = (size_t)PLACES * FV_PEER_BYTES_MAX,
                                  .user = p,
                                  .joined = on_line_joined,
                                  .over = on_line_over,
                                  .failed = on_line_failed,
                                  .closed = on_line_closed};
    if (strcmp(join->kind, all->ops->name) != 0)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "this worker's peer links use %s, but the prefill worker asked for %s",
                       all->ops->name, join->kind);
    uint8_t device[FV_PEER_DEVICE_BYTES];
    all->ops->identity(all->device, device);
    if (join->device.len == sizeof device && memcmp(join->device.data, device, sizeof device) == 0)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "both workers use the same GPU, but %s connects two: give each its own "
                       "(--gpu N), or use gRPC",
                       all->ops->name);
    if (join->id.len != sizeof opt.id)
        return FV_FAIL(FV_EINVAL, "the id of a pair has %d bytes", FV_PEER_ID_BYTES);
    memcpy(opt.id, join->id.data, sizeof opt.id);
    if (getrandom(&p->number, sizeof p->number, 0) != (ssize_t)sizeof p->number)
        return FV_FAIL(FV_EIO, "no random numbers here");
    p->number |= 1; /* never 0 */
    FV_TRY(fv_link_thread_open(&opt, &p->line));
    reply_message m = FOVEA__HANDOFF__V1__PAIR_REPLY__INIT;
    Fovea__Handoff__V1__PairOffer offer = FOVEA__HANDOFF__V1__PAIR_OFFER__INIT;
    offer.number = p->number;
    offer.slots = PLACES;
    m.reply_case = FOVEA__HANDOFF__V1__PAIR_REPLY__REPLY_OFFER;
    m.offer = &offer;
    return fv_rpc_call_send(p->call, &m.base);
}

static fv_status receive(fv_link_in *p, uint64_t bytes) {
    uint64_t turn = p->n_turn++;
    int i = 0;
    if (bytes == 0) return FV_OK;
    while (i < PLACES && p->place[i].used) i++;
    if (!p->joined || bytes > FV_PEER_BYTES_MAX || i == PLACES)
        return FV_FAIL(FV_EINVAL, "turn %llu of %llu bytes, which a pair cannot take now",
                       (unsigned long long)turn, (unsigned long long)bytes);
    fv_link_slot *place = &p->place[i];
    *place = (fv_link_slot){.pair = p, .turn = turn, .used = true};
    place->move.data = fv_link_thread_buffer(p->line) + (size_t)i * FV_PEER_BYTES_MAX;
    place->move.bytes = bytes;
    place->move.owner = place;
    fv_link_thread_begin(p->line, &place->move);
    return FV_OK;
}

static void forget(fv_link_in *p, uint64_t turn) {
    for (int i = 0; i < PLACES; i++) {
        fv_link_slot *place = &p->place[i];
        if (!place->used || place->turn != turn || place->reused) continue;
        place->forgotten = true;
        if (place->arrived) place_free(place);
    }
}

fv_status fv_peer_on_message(fv_rpc_call *c, grpc_byte_buffer *message) {
    fv_link_in *p = fv_rpc_call_user(c);
    ProtobufCMessage *base;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__handoff__v1__pair_request__descriptor, message, &base));
    const word_message *m = (const word_message *)base;
    switch (m->request_case) {
    case FOVEA__HANDOFF__V1__PAIR_REQUEST__REQUEST_JOIN:
        if (p->number) break;
        return join(p, m->join);
    case FOVEA__HANDOFF__V1__PAIR_REQUEST__REQUEST_BYTES: return receive(p, m->bytes);
    case FOVEA__HANDOFF__V1__PAIR_REQUEST__REQUEST_FORGET: forget(p, m->forget); return FV_OK;
    default: break;
    }
    return FV_FAIL(
        FV_EINVAL,
        "unexpected message on a peer link: it begins with join, once; then come bytes and forget");
}

/* Ends the link that was idle the longest, so that the caller just refused finds room when it tries again. */
static void end_idle(fv_links_in *all) {
    fv_link_in *oldest = NULL;
    for (fv_link_in *p = all->first; p; p = p->next) {
        bool idle = p->call && p->joined;
        for (int i = 0; i < PLACES; i++) idle = idle && !p->place[i].used;
        if (idle && (!oldest || p->used_s < oldest->used_s)) oldest = p;
    }
    if (oldest) finish(oldest, FV_OK);
}

fv_status fv_peer_on_start(fv_rpc_call *c) {
    fv_decode_worker *w = fv_rpc_call_service(c);
    fv_links_in *all = &w->pairs;
    fv_caller who;
    FV_TRY(fv_caller_identify(w->opt.callers, c, &who));
    if (!all->ops)
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "this worker has no peer links between GPUs (--transport): send the frames by gRPC");
    if (all->n_now >= (uint32_t)all->most) {
        end_idle(all);
        return FV_FAIL(
            FV_EBUSY,
            "all %u peer links of this worker are in use (--pairs): send the frames by gRPC",
            all->n_now);
    }
    fv_link_in *p = calloc(1, sizeof *p);
    if (!p) return FV_FAIL(FV_ENOMEM, "out of memory for a pair");
    p->w = w;
    p->call = c;
    p->used_s = fv_clock_s();
    p->next = all->first;
    all->first = p;
    all->n_now++;
    fv_rpc_call_set_user(c, p);
    return FV_OK;
}

fv_status fv_peer_on_half_close(fv_rpc_call *c) {
    fv_link_in *p = fv_rpc_call_user(c);
    if (p) finish(p, FV_OK);
    return FV_OK;
}

void fv_peer_on_end(fv_rpc_call *c, const fv_rpc_end *end) {
    fv_link_in *p = fv_rpc_call_user(c);
    (void)end;
    if (!p) return;
    p->call = NULL;
    maybe_over(p);
}
