/* Serializes and parses frames by hand. The head is a few fixed fields; data is the last field, so its bytes
 * are the rest of the message. Any thread. */
#include "transport/frame.h"

#include "handoff/bytes.h"
#include "rpc/pb_wire.h"

/* fovea/handoff/v1/handoff.proto */
enum { TICKET = 1, EPOCH = 2, SEQ = 3, COMMIT = 4, DATA = 5, ALIVE = 6, PAIR = 7, TURN = 8 };

static void put_tag(uint8_t **at, unsigned field, unsigned type) {
    fv_put_u8(at, (uint8_t)(field << 3 | type));
}

static void put_fixed(uint8_t **at, unsigned field, uint64_t x) {
    put_tag(at, field, FV_PB_FIXED64);
    fv_put_u64(at, x);
}

static void put_ticket(uint8_t **at, const fv_ticket *t) {
    put_tag(at, TICKET, FV_PB_BYTES);
    fv_put_u8(at, sizeof t->id);
    fv_put_bytes(at, t->id, sizeof t->id);
    put_fixed(at, EPOCH, t->epoch);
}

static fv_status lend(const fv_ticket *ticket, uint64_t seq, uint64_t pair, const fv_piece *piece,
                      int32_t n, void (*release)(void *user), void *user, grpc_byte_buffer **out) {
    uint8_t head[FV_RPC_FRAME_HEAD], *at = head;
    put_ticket(&at, ticket);
    put_fixed(&at, SEQ, seq);
    if (pair) put_fixed(&at, PAIR, pair);
    put_tag(&at, DATA, FV_PB_BYTES);
    uint64_t bytes = 0;
    for (int32_t i = 0; i < n; i++) bytes += piece[i].bytes;
    for (; bytes >= 0x80; bytes >>= 7) fv_put_u8(&at, (uint8_t)(bytes | 0x80));
    fv_put_u8(&at, (uint8_t)bytes);
    return fv_rpc_wrap(head, (size_t)(at - head), piece, n, release, user, out);
}

fv_status fv_rpc_frame_lend(const fv_ticket *ticket, uint64_t seq, const fv_piece *piece, int32_t n,
                            void (*release)(void *user), void *user, grpc_byte_buffer **out) {
    return lend(ticket, seq, 0, piece, n, release, user, out);
}

fv_status fv_rpc_frame_fallback(const fv_ticket *ticket, uint64_t seq, uint64_t pair,
                                fv_piece bytes, void (*release)(void *user), void *user,
                                grpc_byte_buffer **out) {
    return lend(ticket, seq, pair, &bytes, 1, release, user, out);
}

static void nothing(void *user) { (void)user; }

fv_status fv_rpc_frame_oob(const fv_ticket *ticket, uint64_t seq, uint64_t pair, uint64_t turn,
                           grpc_byte_buffer **out) {
    uint8_t head[FV_RPC_FRAME_HEAD], *at = head;
    put_ticket(&at, ticket);
    put_fixed(&at, SEQ, seq);
    put_fixed(&at, PAIR, pair);
    put_fixed(&at, TURN, turn);
    return fv_rpc_wrap(head, (size_t)(at - head), NULL, 0, nothing, NULL, out);
}

fv_status fv_rpc_frame_alive(const fv_ticket *ticket, grpc_byte_buffer **out) {
    uint8_t head[FV_RPC_FRAME_HEAD], *at = head;
    put_ticket(&at, ticket);
    put_fixed(&at, ALIVE, 1);
    return fv_rpc_wrap(head, (size_t)(at - head), NULL, 0, nothing, NULL, out);
}

fv_status fv_rpc_frame_commit(const fv_ticket *ticket, uint64_t n_frame, grpc_byte_buffer **out) {
    uint8_t head[FV_RPC_FRAME_HEAD], *at = head;
    put_ticket(&at, ticket);
    put_fixed(&at, COMMIT, n_frame);
    return fv_rpc_wrap(head, (size_t)(at - head), NULL, 0, nothing, NULL, out);
}

/* Reads the fields before the data. *used: bytes of the message that are not data. */
static fv_status read_head(const uint8_t *p, size_t n, size_t message, fv_rpc_frame *out,
                           size_t *used) {
    fv_pb_cursor c = {p, p + n};
    fv_pb_field f;
    bool ticket = false;
    while (c.at != c.end) {
        if (!fv_pb_head(&c, &f)) return FV_REFUSE(MALFORMED, "not a valid Frame message");
        if (f.number == TICKET && f.type == FV_PB_BYTES) {
            if (f.value != sizeof out->ticket.id || (size_t)(c.end - c.at) < f.value)
                return FV_REFUSE(MALFORMED, "a frame whose ticket is not 16 bytes long");
            fv_get_bytes(&c.at, out->ticket.id, sizeof out->ticket.id);
            ticket = true;
        } else if (f.number == DATA && f.type == FV_PB_BYTES) {
            *used = (size_t)(c.at - p);
            if (f.value != message - *used)
                return FV_REFUSE(MALFORMED, "a frame of %zu bytes that declares %llu bytes of data",
                                 message - *used, (unsigned long long)f.value);
            out->bytes = f.value;
            break;
        } else if (f.number == EPOCH && f.type == FV_PB_FIXED64) {
            out->ticket.epoch = f.value;
        } else if (f.number == SEQ && f.type == FV_PB_FIXED64) {
            out->seq = f.value;
        } else if (f.number == COMMIT && f.type == FV_PB_FIXED64) {
            out->commit = f.value;
        } else if (f.number == ALIVE && f.type == FV_PB_FIXED64) {
            out->alive = f.value != 0;
        } else if (f.number == PAIR && f.type == FV_PB_FIXED64) {
            out->pair = f.value;
        } else if (f.number == TURN && f.type == FV_PB_FIXED64) {
            out->turn = f.value;
        } else {
            return FV_REFUSE(MALFORMED, "a frame with the unknown field %u", f.number);
        }
        *used = (size_t)(c.at - p);
    }
    if (!ticket) return FV_REFUSE(MALFORMED, "a frame without a ticket");
    bool oob = out->pair && out->bytes == 0;
    if ((out->bytes > 0) + (out->commit > 0) + out->alive + oob != 1)
        return FV_REFUSE(FRAME_SIZE, "a frame is data, or beside the stream, or commit, or a sign "
                                     "of life: one of them");
    if (*used + out->bytes != message) return FV_REFUSE(MALFORMED, "a frame with trailing bytes");
    return FV_OK;
}

/* The message after its first `skip` bytes, as pieces. */
static fv_status collect(grpc_byte_buffer *message, size_t skip, fv_rpc_frame *out) {
    fv_rpc_slices it;
    const uint8_t *p;
    size_t n;
    bool fits = true;
    if (!fv_rpc_slices_begin(&it, message)) return FV_REFUSE(MALFORMED, "a compressed frame");
    while (fits && fv_rpc_slices_next(&it, &p, &n)) {
        size_t cut = n < skip ? n : skip;
        skip -= cut;
        if (n == cut) continue;
        fits = out->n_piece < FV_FRAME_PIECES;
        if (fits) out->piece[out->n_piece++] = (fv_piece){p + cut, n - cut};
    }
    fv_rpc_slices_end(&it);
    if (!fits) return FV_REFUSE(FRAME_SIZE, "a frame in more than %d pieces", FV_FRAME_PIECES);
    return FV_OK;
}

fv_status fv_rpc_frame_read(grpc_byte_buffer *message, fv_rpc_frame *out) {
    uint8_t head[FV_RPC_FRAME_HEAD];
    size_t n_head = 0, n, used = 0;
    const uint8_t *p;
    fv_rpc_slices it;
    if (!fv_rpc_slices_begin(&it, message)) return FV_REFUSE(MALFORMED, "a compressed frame");
    while (n_head < sizeof head && fv_rpc_slices_next(&it, &p, &n)) {
        size_t take = n < sizeof head - n_head ? n : sizeof head - n_head;
        memcpy(head + n_head, p, take);
        n_head += take;
    }
    fv_rpc_slices_end(&it);
    *out = (fv_rpc_frame){0};
    FV_TRY(read_head(head, n_head, grpc_byte_buffer_length(message), out, &used));
    return out->bytes ? collect(message, used, out) : FV_OK;
}
