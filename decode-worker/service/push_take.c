/* Passes messages of Push to the receiver's sink. Any refusal aborts the hand-off, so a stream holds
 * nothing after its first error. On the thread that owns the KV pool. */
#include "decode-worker/service/push_take.h"

#include <string.h>

/* Aborts the hand-off in any state, even committed and not yet attached, when its sender may not have
 * heard of the commit. */
static fv_status give_up(fv_sink *sink, fv_push_state *p, fv_status st) {
    if (p->known) sink->ops->abort(sink, &p->ticket);
    p->over = true;
    return st;
}

static fv_status take(fv_sink *sink, fv_push_state *p, grpc_byte_buffer *message,
                      const fv_push_came *came, uint64_t *committed) {
    fv_rpc_frame in;
    FV_TRY(fv_rpc_frame_read(message, &in));
    if (p->known && (memcmp(p->ticket.id, in.ticket.id, sizeof in.ticket.id) != 0 ||
                     p->ticket.epoch != in.ticket.epoch))
        return FV_REFUSE(MALFORMED, "frames of two hand-offs in one stream");
    p->ticket = in.ticket;
    p->known = true;
    if (in.commit) {
        FV_TRY(sink->ops->commit(sink, &in.ticket, in.commit));
        *committed = in.commit;
        p->over = true;
        return FV_OK;
    }
    if (in.alive) return sink->ops->renew(sink, &in.ticket);
    if (came) {
        FV_TRY(sink->ops->oob(sink, &in.ticket, in.seq, came->data, came->bytes, came->crc));
        p->bytes += came->bytes;
        return FV_OK;
    }
    if (in.bytes == 0)
        return FV_REFUSE(MALFORMED, "frame sent over a peer link, but this worker has none");
    FV_TRY(sink->ops->frame(sink, &in.ticket, in.seq, in.piece, in.n_piece));
    p->bytes += in.bytes;
    return FV_OK;
}

fv_status fv_push_take(fv_sink *sink, fv_push_state *p, grpc_byte_buffer *message,
                       const fv_push_came *came, uint64_t *committed) {
    *committed = 0;
    if (p->over) return FV_OK;
    fv_status st = take(sink, p, message, came, committed);
    return st == FV_OK ? st : give_up(sink, p, st);
}

fv_status fv_push_end(fv_sink *sink, fv_push_state *p, bool broken) {
    if (broken) return give_up(sink, p, FV_OK);
    if (p->over) return FV_OK;
    return give_up(sink, p, FV_REFUSE(TRUNCATED, "the stream ended without a commit"));
}
