#ifndef FOVEA_DECODE_WORKER_RECEIVE_INTERNAL_H
#define FOVEA_DECODE_WORKER_RECEIVE_INTERNAL_H

/* One hand-off that is being received: what receive.c (grants, the sink) and receive_stream.c
 * (sections to rows) share, and nobody else. */
#include "decode-worker/receive.h"

/* What must come next. */
typedef enum fv_landing_due {
    FV_DUE_HELLO = 0,
    FV_DUE_PROMPT,
    FV_DUE_ROWS,
    FV_DUE_POSITIONS,
    FV_DUE_DATA,
    FV_DUE_TOKEN,
    FV_DUE_END,
    FV_DUE_NOTHING
} fv_landing_due;

typedef struct fv_landing {
    const fv_receiver_options *opt; /* borrowed */
    const fv_kv_shape *shape;
    size_t row_bytes;
    fv_wire_dtype dtype;
    fv_hello hello; /* as it was granted; its text is not used */
    fv_received got;
    fv_packet_reader reader;
    fv_landing_due due;
    int32_t layer, layer_end; /* of the group that ROWS began */
    fv_kv_segment seg;
    int32_t head;                  /* whose rows come next */
    uint32_t *rows;                /* [N, Hkv, FV_N_SEG] as ROWS said */
    uint64_t n_rows, bytes_visual; /* announced so far */
    uint8_t *payload;              /* of a section that is not rows, while it comes */
    size_t cap_payload;
    int32_t head_at; /* of the DATA section: the head that is being filled, */
    size_t head_off; /* and the bytes of it that are there */
} fv_landing;

/* What n_visual image rows in every layer can come to at most. */
uint64_t fv_landing_most_visual(const fv_kv_shape *shape, uint32_t n_visual);

/* Bytes of the pool, and of the stream, that a request of this kind may need. */
size_t fv_landing_pool_bytes(const fv_kv_shape *shape, const fv_hello *hello);
uint64_t fv_landing_wire_bytes(const fv_kv_shape *shape, const fv_hello *hello);

/* Reserves everything. `hello` was checked. */
fv_refusal fv_landing_open(const fv_receiver_options *opt, const fv_hello *hello, fv_landing **out);
void fv_landing_close(fv_landing *l); /* NULL is fine */

fv_refusal fv_landing_read(fv_landing *l, const fv_piece *piece, int32_t n);

/* The stream is whole: gives back what was too much. */
fv_refusal fv_landing_finish(fv_landing *l);

#endif
