/* Makes and reads byte buffers. Any thread; a buffer belongs to one thread at a time. */
#include "rpc/message.h"

#include <grpc/slice.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/grow.h"
#include "common/tsan.h"

enum { LEND_MIN = 4096 }; /* bytes; a smaller piece is copied */

/* ---- protobuf-c ------------------------------------------------------------------------- */

fv_status fv_rpc_pack(const ProtobufCMessage *m, grpc_byte_buffer **out) {
    size_t n = protobuf_c_message_get_packed_size(m);
    grpc_slice s = grpc_slice_malloc(n);
    protobuf_c_message_pack(m, GRPC_SLICE_START_PTR(s));
    *out = grpc_raw_byte_buffer_create(&s, 1);
    grpc_slice_unref(s);
    return FV_OK;
}

/* protobuf-c's allocator over an arena, with a bound. */
typedef struct budget {
    fv_arena *arena;
    size_t left;
    bool refused;
} budget;

static void *budget_alloc(void *data, size_t n) {
    budget *b = data;
    size_t cost = n + 64; /* the arena's rounding */
    void *p;
    if (n > b->left || cost > b->left || fv_arena_alloc(b->arena, n, &p) != FV_OK) {
        b->refused = true;
        return NULL;
    }
    b->left -= cost;
    return p;
}

static void budget_free(void *data, void *p) {
    (void)data, (void)p; /* the arena is freed as a whole */
}

static fv_status unpack(const ProtobufCMessageDescriptor *d, const uint8_t *p, size_t n,
                        fv_arena *arena, ProtobufCMessage **out) {
    FV_TRY(fv_pb_check(d, p, n));
    budget b = {arena, n + FV_RPC_UNPACK_EXTRA, false};
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &b};
    ProtobufCMessage *m = protobuf_c_message_unpack(d, &allocator, n, p);
    if (!m && b.refused)
        return FV_FAIL(FV_ENOMEM, "%s of %zu bytes would take too much memory when unpacked",
                       d->name, n);
    if (!m) return FV_FAIL(FV_EDATA, "not a valid %s: a field has the wrong type", d->name);
    *out = m;
    return FV_OK;
}

fv_status fv_rpc_unpack(const ProtobufCMessageDescriptor *d, grpc_byte_buffer *b, fv_arena *arena,
                        ProtobufCMessage **out) {
    grpc_byte_buffer_reader r;
    if (!grpc_byte_buffer_reader_init(&r, b))
        return FV_FAIL(FV_EDATA, "%s: cannot be decompressed", d->name);
    grpc_slice all = grpc_byte_buffer_reader_readall(&r); /* protobuf-c needs one piece */
    fv_status st = unpack(d, GRPC_SLICE_START_PTR(all), GRPC_SLICE_LENGTH(all), arena, out);
    grpc_slice_unref(all);
    grpc_byte_buffer_reader_destroy(&r);
    return st;
}

/* ---- borrowed memory -------------------------------------------------------------------- */

typedef struct loan {
    atomic_int left; /* slices not released yet */
    void (*release)(void *user);
    void *user;
} loan;

static void loan_unref(void *data) {
    loan *l = data;
    FV_TSAN_ACQUIRE(l); /* gRPC handed the slice from thread to thread */
    if (atomic_fetch_sub_explicit(&l->left, 1, memory_order_acq_rel) != 1) return;
    l->release(l->user);
    free(l);
}

fv_status fv_rpc_wrap(const void *head, size_t n_head, const fv_piece *piece, int32_t n,
                      void (*release)(void *user), void *user, grpc_byte_buffer **out) {
    loan *l = malloc(sizeof *l);
    grpc_slice *slice = malloc(((size_t)n + 1) * sizeof *slice);
    if (!l || !slice) {
        free(l);
        free(slice);
        return FV_FAIL(FV_ENOMEM, "no memory for a message of %d pieces", n);
    }
    *l = (loan){.release = release, .user = user};
    atomic_init(&l->left, n + 1);
    FV_TSAN_RELEASE(l);
    slice[0] = grpc_slice_from_copied_buffer(head, n_head);
    for (int32_t i = 0; i < n; i++)
        slice[i + 1] = grpc_slice_new_with_user_data((void *)(uintptr_t)piece[i].data,
                                                     piece[i].bytes, loan_unref, l);
    *out = grpc_raw_byte_buffer_create(slice, (size_t)n + 1);
    for (int32_t i = 0; i <= n; i++) grpc_slice_unref(slice[i]);
    free(slice);
    loan_unref(l); /* ours, so that a message without pieces is released as well */
    return FV_OK;
}

/* A buffer into which protobuf-c packs a message: bytes between pieces are gathered, and become a slice when the
 * next piece comes. */
typedef struct gatherer {
    ProtobufCBuffer base; /* first */
    const fv_piece *piece;
    int32_t n_piece;
    loan *loan;
    grpc_slice *slice; /* [n] */
    size_t n, cap;
    uint8_t *small; /* [n_small] */
    size_t n_small, cap_small;
    fv_status st;
} gatherer;

static void add_slice(gatherer *g, grpc_slice s) {
    if (g->st == FV_OK) g->st = fv_grow(&g->slice, &g->cap, g->n + 1, sizeof *g->slice);
    if (g->st == FV_OK)
        g->slice[g->n++] = s;
    else
        grpc_slice_unref(s);
}

static void end_small(gatherer *g) {
    if (g->n_small == 0) return;
    add_slice(g, grpc_slice_from_copied_buffer((const char *)g->small, g->n_small));
    g->n_small = 0;
}

static bool is_piece(const gatherer *g, const uint8_t *data, size_t n) {
    for (int32_t i = 0; i < g->n_piece; i++)
        if (g->piece[i].data == data && g->piece[i].bytes == n) return true;
    return false;
}

static void gather(ProtobufCBuffer *buffer, size_t n, const uint8_t *data) {
    gatherer *g = (gatherer *)buffer;
    if (n >= LEND_MIN && is_piece(g, data, n)) {
        end_small(g);
        atomic_fetch_add_explicit(&g->loan->left, 1, memory_order_relaxed);
        add_slice(g,
                  grpc_slice_new_with_user_data((void *)(uintptr_t)data, n, loan_unref, g->loan));
        return;
    }
    if (g->st == FV_OK) g->st = fv_grow(&g->small, &g->cap_small, g->n_small + n, 1);
    if (g->st != FV_OK || n == 0) return;
    memcpy(g->small + g->n_small, data, n);
    g->n_small += n;
}

static void nothing(void *user) { (void)user; }

fv_status fv_rpc_pack_borrowing(const ProtobufCMessage *m, const fv_piece *piece, int32_t n,
                                void (*release)(void *user), void *user, grpc_byte_buffer **out) {
    loan *l = malloc(sizeof *l);
    if (!l) return FV_FAIL(FV_ENOMEM, "out of memory for a message");
    *l = (loan){.release = release, .user = user};
    atomic_init(&l->left, 1);
    FV_TSAN_RELEASE(l);
    gatherer g = {.base = {gather}, .piece = piece, .n_piece = n, .loan = l};
    protobuf_c_message_pack_to_buffer(m, &g.base);
    end_small(&g);
    if (g.st == FV_OK)
        *out = grpc_raw_byte_buffer_create(g.slice, g.n);
    else
        l->release = nothing;
    for (size_t i = 0; i < g.n; i++) grpc_slice_unref(g.slice[i]);
    free(g.slice);
    free(g.small);
    loan_unref(l); /* ours, so that a message without pieces is released as well */
    return g.st;
}

/* ---- slices ----------------------------------------------------------------------------- */

bool fv_rpc_slices_begin(fv_rpc_slices *it, grpc_byte_buffer *b) {
    return grpc_byte_buffer_reader_init(&it->reader, b) != 0;
}

bool fv_rpc_slices_next(fv_rpc_slices *it, const uint8_t **p, size_t *n) {
    grpc_slice *s;
    if (!grpc_byte_buffer_reader_peek(&it->reader, &s)) return false;
    *p = GRPC_SLICE_START_PTR(*s);
    *n = GRPC_SLICE_LENGTH(*s);
    return true;
}

void fv_rpc_slices_end(fv_rpc_slices *it) { grpc_byte_buffer_reader_destroy(&it->reader); }
