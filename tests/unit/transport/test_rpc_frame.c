/* transport/frame.c */
#include <criterion/criterion.h>
#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <string.h>

#include "handoff.pb-c.h"
#include "transport/frame.h"

static const fv_ticket ticket = {.id = "0123456789abcde", .epoch = 0x1122334455667788};

static void nothing(void *user) { (void)user; }

static grpc_byte_buffer *lend(uint64_t seq, const fv_piece *piece, int32_t n) {
    grpc_byte_buffer *b;
    cr_assert_eq(fv_rpc_frame_lend(&ticket, seq, piece, n, nothing, NULL, &b), FV_OK);
    return b;
}

static size_t flatten(grpc_byte_buffer *b, uint8_t *out) {
    grpc_byte_buffer_reader r;
    cr_assert(grpc_byte_buffer_reader_init(&r, b));
    grpc_slice all = grpc_byte_buffer_reader_readall(&r);
    size_t n = GRPC_SLICE_LENGTH(all);
    memcpy(out, GRPC_SLICE_START_PTR(all), n);
    grpc_slice_unref(all);
    grpc_byte_buffer_reader_destroy(&r);
    return n;
}

/* The bytes in slices of `step` bytes, as a network may cut them. */
static grpc_byte_buffer *cut(const uint8_t *p, size_t n, size_t step) {
    grpc_slice s[512];
    size_t k = 0;
    for (size_t at = 0; at < n; at += step)
        s[k++] = grpc_slice_from_copied_buffer((const char *)p + at, n - at < step ? n - at : step);
    grpc_byte_buffer *b = grpc_raw_byte_buffer_create(s, k);
    for (size_t i = 0; i < k; i++) grpc_slice_unref(s[i]);
    return b;
}

static fv_status read_bytes(const void *p, size_t n) {
    grpc_byte_buffer *b = cut(p, n, n ? n : 1);
    static fv_rpc_frame f;
    fv_status st = fv_rpc_frame_read(b, &f);
    grpc_byte_buffer_destroy(b);
    return st;
}

TestSuite(rpc_frame, .init = grpc_init, .fini = grpc_shutdown);

Test(rpc_frame, a_frame_reads_as_it_was_written_however_it_is_cut) {
    static char data[300];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (char)i;
    fv_piece pieces[] = {{data, 100}, {data + 100, 1}, {data + 101, 199}};
    uint8_t bytes[512];
    grpc_byte_buffer *b = lend(7, pieces, 3);
    size_t n = flatten(b, bytes);
    grpc_byte_buffer_destroy(b);
    for (size_t step = 2; step < 80; step++) {
        b = cut(bytes, n, step);
        static fv_rpc_frame f;
        cr_assert_eq(fv_rpc_frame_read(b, &f), FV_OK, "%s", fv_last_error());
        cr_assert_eq(memcmp(f.ticket.id, ticket.id, 16), 0);
        cr_assert_eq(f.ticket.epoch, ticket.epoch);
        cr_assert_eq(f.seq, 7);
        cr_assert_eq(f.commit, 0);
        cr_assert_eq(f.bytes, sizeof data);
        size_t at = 0;
        for (int32_t i = 0; i < f.n_piece; i++) {
            cr_assert_eq(memcmp(f.piece[i].data, data + at, f.piece[i].bytes), 0);
            at += f.piece[i].bytes;
        }
        cr_assert_eq(at, sizeof data);
        grpc_byte_buffer_destroy(b);
    }
}

Test(rpc_frame, the_data_is_sent_from_where_it_lies) {
    static const char data[5000] = "d";
    grpc_byte_buffer *b = lend(0, &(fv_piece){data, sizeof data}, 1);
    static fv_rpc_frame f;
    cr_assert_eq(fv_rpc_frame_read(b, &f), FV_OK);
    cr_assert_eq(f.n_piece, 1);
    cr_assert(f.piece[0].data == data);
    grpc_byte_buffer_destroy(b);
}

Test(rpc_frame, protobuf_reads_what_we_write_and_writes_what_we_read) {
    uint8_t bytes[128];
    grpc_byte_buffer *b = lend(3, &(fv_piece){"kv", 2}, 1);
    size_t n = flatten(b, bytes);
    grpc_byte_buffer_destroy(b);
    Fovea__Handoff__V1__Frame *m = fovea__handoff__v1__frame__unpack(NULL, n, bytes);
    cr_assert_not_null(m);
    cr_assert_eq(m->seq, 3);
    cr_assert_eq(m->epoch, ticket.epoch);
    cr_assert_eq(m->data.len, 2);
    m->seq = 0; /* which protobuf omits */
    n = fovea__handoff__v1__frame__pack(m, bytes);
    fovea__handoff__v1__frame__free_unpacked(m, NULL);
    cr_assert_eq(read_bytes(bytes, n), FV_OK, "%s", fv_last_error());
}

Test(rpc_frame, a_commit_says_how_many_came_before) {
    grpc_byte_buffer *b;
    static fv_rpc_frame f;
    cr_assert_eq(fv_rpc_frame_commit(&ticket, 12, &b), FV_OK);
    cr_assert_eq(fv_rpc_frame_read(b, &f), FV_OK, "%s", fv_last_error());
    cr_assert_eq(f.commit, 12);
    cr_assert_eq(f.bytes, 0);
    cr_assert_eq(f.n_piece, 0);
    grpc_byte_buffer_destroy(b);
}

Test(rpc_frame, a_keep_alive_has_a_ticket_and_nothing_else) {
    uint8_t bytes[128];
    grpc_byte_buffer *b;
    static fv_rpc_frame f;
    cr_assert_eq(fv_rpc_frame_alive(&ticket, &b), FV_OK);
    cr_assert_eq(fv_rpc_frame_read(b, &f), FV_OK, "%s", fv_last_error());
    cr_assert(f.alive);
    cr_assert_eq(f.bytes + f.commit, 0);
    cr_assert_eq(memcmp(&f.ticket, &ticket, sizeof ticket), 0);
    size_t n = flatten(b, bytes);
    grpc_byte_buffer_destroy(b);
    memcpy(bytes + n, "\x2a\x01x", 3); /* with data it is invalid */
    cr_assert_eq(fv_refusal_of(read_bytes(bytes, n + 3)), FV_REFUSED_FRAME_SIZE);
}

Test(rpc_frame, a_frame_with_neither_data_nor_commit_is_refused) {
    uint8_t bytes[64];
    grpc_byte_buffer *b = lend(1, NULL, 0);
    size_t n = flatten(b, bytes);
    grpc_byte_buffer_destroy(b);
    cr_assert_eq(fv_refusal_of(read_bytes(bytes, n)), FV_REFUSED_FRAME_SIZE);
}

Test(rpc_frame, every_truncation_and_a_byte_more_is_refused) {
    uint8_t bytes[256];
    char data[100] = "x";
    grpc_byte_buffer *b = lend(1, &(fv_piece){data, sizeof data}, 1);
    size_t n = flatten(b, bytes);
    grpc_byte_buffer_destroy(b);
    for (size_t k = 0; k < n; k++) cr_assert_neq(read_bytes(bytes, k), FV_OK, "%zu", k);
    cr_assert_eq(read_bytes(bytes, n), FV_OK);
    bytes[n] = 0;
    cr_assert_neq(read_bytes(bytes, n + 1), FV_OK);
}

Test(rpc_frame, a_ticket_of_another_length_is_refused) {
    cr_assert_eq(fv_refusal_of(read_bytes("\x0a\x02zz\x2a\x01x", 7)), FV_REFUSED_MALFORMED);
    cr_assert_eq(fv_refusal_of(read_bytes("\x2a\x01x", 3)), FV_REFUSED_MALFORMED);
}

/* ---- out of band ------------------------------------------------------------------------ */

Test(rpc_frame, an_out_of_band_payload_is_named_and_may_still_come_in_band) {
    static char data[50] = "these bytes";
    static fv_rpc_frame f;
    grpc_byte_buffer *b;
    cr_assert_eq(fv_rpc_frame_oob(&ticket, 9, 77, 3, &b), FV_OK);
    cr_assert_eq(fv_rpc_frame_read(b, &f), FV_OK, "%s", fv_last_error());
    cr_expect(f.seq == 9 && f.pair == 77 && f.turn == 3 && f.bytes == 0);
    grpc_byte_buffer_destroy(b);
    fv_piece piece = {data, sizeof data};
    cr_assert_eq(fv_rpc_frame_fallback(&ticket, 9, 77, piece, nothing, NULL, &b), FV_OK);
    cr_assert_eq(fv_rpc_frame_read(b, &f), FV_OK, "%s", fv_last_error());
    cr_expect(f.seq == 9 && f.pair == 77 && f.bytes == sizeof data);
    grpc_byte_buffer_destroy(b);
}

Test(rpc_frame, a_commit_cannot_be_out_of_band) {
    uint8_t bytes[128];
    grpc_byte_buffer *b;
    cr_assert_eq(fv_rpc_frame_commit(&ticket, 5, &b), FV_OK);
    size_t n = flatten(b, bytes);
    grpc_byte_buffer_destroy(b);
    bytes[n++] = 7 << 3 | 1; /* pair, a fixed64 */
    for (int i = 0; i < 8; i++) bytes[n++] = 1;
    cr_expect_eq(fv_refusal_of(read_bytes(bytes, n)), FV_REFUSED_FRAME_SIZE);
}
