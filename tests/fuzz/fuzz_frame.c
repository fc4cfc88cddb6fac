/* Any bytes, in slices, as a frame of a hand-off; the first byte says how they are cut. A frame
 * that our reader accepts is the same frame to protobuf-c, and is the same after being written
 * again. */
#include <stdlib.h>
#include <string.h>

#include "handoff.pb-c.h"
#include "tests/support/sliced.h"
#include "transport/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void expect(bool holds) {
    if (!holds) abort();
}

static void check_frame(const fv_rpc_frame *f, const uint8_t *p, size_t n) {
    Fovea__Handoff__V1__Frame *same = fovea__handoff__v1__frame__unpack(NULL, n, p);
    expect(same && same->ticket.len == sizeof f->ticket.id);
    expect(memcmp(same->ticket.data, f->ticket.id, sizeof f->ticket.id) == 0);
    expect(same->epoch == f->ticket.epoch && same->seq == f->seq && same->commit == f->commit);
    expect((same->alive != 0) == f->alive && same->pair == f->pair && same->turn == f->turn);
    expect(same->data.len == f->bytes && !f->bytes == (f->n_piece == 0));
    size_t at = 0;
    for (int32_t i = 0; i < f->n_piece; i++) {
        expect(f->piece[i].bytes > 0 && f->piece[i].bytes <= f->bytes - at);
        expect(memcmp(same->data.data + at, f->piece[i].data, f->piece[i].bytes) == 0);
        at += f->piece[i].bytes;
    }
    expect(at == f->bytes);
    fovea__handoff__v1__frame__free_unpacked(same, NULL);
}

static void nothing(void *user) { (void)user; }

/* The same kind of message, packed by its own writer; *flat: its data as one slice. */
static grpc_byte_buffer *write_frame(const fv_rpc_frame *f, uint8_t **flat) {
    grpc_byte_buffer *b = NULL;
    fv_status st;
    *flat = NULL;
    if (f->commit) {
        st = fv_rpc_frame_commit(&f->ticket, f->commit, &b);
    } else if (f->alive) {
        st = fv_rpc_frame_alive(&f->ticket, &b);
    } else if (f->bytes == 0) {
        st = fv_rpc_frame_oob(&f->ticket, f->seq, f->pair, f->turn, &b);
    } else if (f->pair) {
        size_t at = 0;
        expect((*flat = malloc(f->bytes)) != NULL);
        for (int32_t i = 0; i < f->n_piece; at += f->piece[i++].bytes)
            memcpy(*flat + at, f->piece[i].data, f->piece[i].bytes);
        st = fv_rpc_frame_fallback(&f->ticket, f->seq, f->pair, (fv_piece){*flat, f->bytes},
                                   nothing, NULL, &b);
    } else {
        st = fv_rpc_frame_lend(&f->ticket, f->seq, f->piece, f->n_piece, nothing, NULL, &b);
    }
    expect(st == FV_OK);
    return b;
}

static void check_written(const fv_rpc_frame *f) {
    fv_rpc_frame again;
    uint8_t *flat;
    grpc_byte_buffer *b = write_frame(f, &flat);
    bool counted = !f->commit && !f->alive; /* these never occur among the frames */
    expect(fv_rpc_frame_read(b, &again) == FV_OK);
    expect(memcmp(&again.ticket, &f->ticket, sizeof f->ticket) == 0);
    expect(again.bytes == f->bytes && again.commit == f->commit && again.alive == f->alive);
    expect(again.n_piece == (flat ? 1 : f->n_piece));
    expect(!counted || (again.seq == f->seq && again.pair == f->pair));
    expect(f->bytes > 0 || !counted || again.turn == f->turn);
    grpc_byte_buffer_destroy(b);
    free(flat);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 1 || n > 1 << 16) return 0;
    grpc_byte_buffer *b = sliced(data + 1, n - 1, data[0]);
    fv_rpc_frame f;
    fv_refusal why = fv_refusal_of(fv_rpc_frame_read(b, &f));
    if (why == FV_REFUSED_NONE) {
        check_frame(&f, data + 1, n - 1);
        check_written(&f);
    } else {
        expect(why == FV_REFUSED_MALFORMED || why == FV_REFUSED_FRAME_SIZE);
    }
    grpc_byte_buffer_destroy(b);
    return 0;
}
