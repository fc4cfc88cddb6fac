/* Out-of-band frames. A frame outlives its hand-off while the link still reads its buffer: then it has no
 * set, and is freed when its turn is over. */
#include "transport/out_of_band_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/frame.h"

struct fv_oob_frame {
    fv_peer_turn turn;
    fv_oob_set *set; /* NULL: the hand-off has ended */
    fv_oob_frame *next;
    fv_bridge *bridge;
    fv_jobs *jobs;
    fv_ticket ticket;
    uint64_t seq, at_message;
    fv_buf buf;
    bool in_turn; /* copied to the host before it was announced */
    fv_job job;   /* copies to the host, or frees the buffer */
    fv_rpc_op back;
    void *bytes; /* host copy; owned */
    fv_status status;
    char text[256];
};

/* ---- the computing thread --------------------------------------------------------------- */

fv_status fv_oob_frame_new(fv_oob_set *s, const fv_ticket *ticket, uint64_t seq, fv_buf buf,
                           fv_oob_frame **out) {
    fv_oob_frame *f = calloc(1, sizeof *f);
    if (!f) {
        fv_buf_free(&buf);
        return FV_FAIL(FV_ENOMEM, "out of memory for a frame");
    }
    f->set = s;
    f->bridge = s->bridge;
    f->jobs = s->jobs;
    f->ticket = *ticket;
    f->seq = seq;
    f->buf = buf;
    *out = f;
    return FV_OK;
}

static fv_status copy_to_host(fv_oob_frame *f) {
    f->bytes = malloc(f->buf.bytes);
    if (!f->bytes) return FV_FAIL(FV_ENOMEM, "out of memory for a frame");
    return fv_device_copy(f->buf.device, f->bytes, f->buf.data, f->buf.bytes);
}

static void run_copy(fv_job *job) {
    fv_oob_frame *f = job->owner;
    f->status = copy_to_host(f);
    if (f->status != FV_OK) snprintf(f->text, sizeof f->text, "%s", fv_last_error());
    fv_bridge_post(f->bridge, &f->back, true);
}

static void run_free(fv_job *job) {
    fv_oob_frame *f = job->owner;
    fv_buf_free(&f->buf);
    free(f->bytes);
    free(f);
}

/* ---- the loop thread -------------------------------------------------------------------- */

static void post(fv_oob_frame *f, void (*run)(fv_job *)) {
    f->job = (fv_job){.run = run, .owner = f};
    fv_jobs_post_followup(f->jobs, &f->job);
}

void fv_oob_frame_free(fv_oob_set *s, fv_oob_frame *f) {
    (void)s;
    post(f, run_free);
}

static void leave_set(fv_oob_frame *f) {
    fv_oob_frame **at = &f->set->frames;
    while (*at != f) at = &(*at)->next;
    *at = f->next;
    f->set = NULL;
}

/* Makes the message of a frame that falls back to the stream; it takes the host copy. */
static fv_status fallback_message(fv_oob_frame *f, grpc_byte_buffer **out) {
    fv_piece bytes = {f->bytes, f->buf.bytes};
    if (f->status != FV_OK) return FV_FAIL(f->status, "%s", f->text);
    FV_TRY(fv_rpc_frame_fallback(&f->ticket, f->seq, f->in_turn ? 0 : f->turn.pair, bytes, free,
                                 f->bytes, out));
    f->bytes = NULL;
    return FV_OK;
}

static void on_copied(fv_rpc_op *op, bool ok) {
    fv_oob_frame *f = op->owner;
    fv_oob_set *s = f->set;
    grpc_byte_buffer *message = NULL;
    (void)ok;
    if (s) {
        fv_status st = fallback_message(f, &message);
        leave_set(f);
        if (st == FV_OK)
            s->send(s->user, message, f->in_turn);
        else
            s->failed(s->user);
    }
    post(f, run_free);
}

static void fall_back(fv_oob_frame *f) {
    atomic_fetch_add(&f->set->n_fallback, 1);
    f->back = (fv_rpc_op){.done = on_copied, .owner = f};
    post(f, run_copy);
}

static void on_over(fv_peer_turn *t, bool taken) {
    fv_oob_frame *f = t->owner;
    fv_oob_set *s = f->set;
    if (s && !taken) {
        atomic_store(&s->usable, false); /* the rest of this hand-off goes through the host */
        fall_back(f);
        return;
    }
    if (s) {
        atomic_fetch_add(&s->bytes, f->buf.bytes);
        leave_set(f);
    }
    post(f, run_free);
    if (s) s->changed(s->user);
}

fv_status fv_oob_put(fv_oob_set *s, fv_oob_frame *f, grpc_byte_buffer **message) {
    *message = NULL;
    fv_oob_frame **at = &s->frames;
    while (*at) at = &(*at)->next;
    *at = f;
    if (!fv_peer_route_joined(s->way)) {
        f->in_turn = true;
        fall_back(f);
        return FV_OK;
    }
    f->turn = (fv_peer_turn){
        .move = {.data = f->buf.data, .bytes = f->buf.bytes}, .over = on_over, .owner = f};
    f->at_message = s->n_message;
    fv_peer_route_send(s->way, &f->turn);
    return fv_rpc_frame_oob(&f->ticket, f->seq, f->turn.pair, f->turn.number, message);
}

bool fv_oob_pending(const fv_oob_set *s) { return s->frames != NULL; }

bool fv_oob_may_send(const fv_oob_set *s) {
    return !s->frames || s->n_message - s->frames->at_message < FV_RPC_FRAME_AHEAD;
}

void fv_oob_sent(fv_oob_set *s) { s->n_message++; }

void fv_oob_drop(fv_oob_set *s) {
    while (s->frames) {
        fv_oob_frame *f = s->frames;
        bool flies = f->turn.over && !f->back.done; /* and is not being copied to the host */
        leave_set(f);
        if (flies) fv_peer_route_forget(s->way, &f->turn);
    }
}
