/* Counts references. gRPC sends images from slices that borrow their bytes and hold a reference. */
#include "gateway/held.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "common/tsan.h"

typedef struct counted {
    fv_request_memory held; /* first */
    atomic_int n_user;
} counted;

static atomic_int *users_of(fv_request_memory *h) { return &((counted *)h)->n_user; }

fv_status fv_request_memory_open(fv_request_memory **out) {
    counted *c = calloc(1, sizeof *c);
    if (!c) return FV_FAIL(FV_ENOMEM, "out of memory for a request");
    atomic_init(&c->n_user, 1);
    *out = &c->held;
    return FV_OK;
}

void fv_request_memory_ref(fv_request_memory *h) {
    atomic_fetch_add_explicit(users_of(h), 1, memory_order_relaxed);
}

void fv_request_memory_unref(void *held) {
    fv_request_memory *h = held;
    if (!h) return;
    FV_TSAN_RELEASE(h);
    if (atomic_fetch_sub_explicit(users_of(h), 1, memory_order_acq_rel) != 1) return;
    FV_TSAN_ACQUIRE(h);
    fv_api_bytes_free(h->bytes);
    fv_arena_fini(&h->arena);
    free(h);
}

fv_status fv_request_memory_own(fv_request_memory *h, uint8_t *data) {
    fv_api_bytes *b;
    FV_TRY(FV_ARENA_NEW(&h->arena, 1, b));
    *b = (fv_api_bytes){h->bytes, data};
    h->bytes = b;
    return FV_OK;
}

static bool owns(const fv_request_memory *h, const uint8_t *data) {
    const fv_api_bytes *b = h->bytes;
    while (b && b->data != data) b = b->next;
    return b != NULL;
}

/* Lends the images that `h` owns; gRPC gets a copy of others. */
fv_status fv_request_memory_pack(fv_request_memory *h,
                                 const Fovea__Inference__V1__GenerateRequest *m,
                                 grpc_byte_buffer **out) {
    fv_piece *piece;
    int32_t n = 0;
    FV_TRY(FV_ARENA_NEW(&h->arena, m->n_images, piece));
    for (size_t i = 0; i < m->n_images; i++) {
        const ProtobufCBinaryData *b = &m->images[i]->data;
        if (b->len && owns(h, b->data)) piece[n++] = (fv_piece){b->data, b->len};
    }
    fv_request_memory_ref(h);
    fv_status st = fv_rpc_pack_borrowing(&m->base, piece, n, fv_request_memory_unref, h, out);
    if (st != FV_OK) fv_request_memory_unref(h);
    return st;
}
