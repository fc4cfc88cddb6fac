#ifndef FOVEA_DECODE_WORKER_RECEIVE_INTERNAL_H
#define FOVEA_DECODE_WORKER_RECEIVE_INTERNAL_H

/* One hand-off that is being received: shared by receive.c (grants, the sink), bounds.c (its limits), stream.c (the
 * order of its sections), prompt.c, rows.c and packed.c (what they hold) only. */
#include "decode-worker/receive/receive.h"
#include "model/net/kv_packed.h"
#include "policy/plan/packed_shape.h"

/* What must come next. */
typedef enum fv_import_due {
    FV_DUE_HELLO = 0,
    FV_DUE_PROMPT,
    FV_DUE_ROWS, /* or a packed layer, before its ROWS */
    FV_DUE_LEAD, /* or its source layer, before both */
    FV_DUE_PACKED,
    FV_DUE_FACTOR,
    FV_DUE_IMPORTANCE,
    FV_DUE_POSITIONS,
    FV_DUE_ACCUM,
    FV_DUE_DATA,
    FV_DUE_TOKEN,
    FV_DUE_END,
    FV_DUE_NOTHING
} fv_import_due;

typedef struct fv_import {
    const fv_receiver_options *opt; /* borrowed */
    const fv_kv_shape *shape;
    size_t row_bytes;
    fv_wire_dtype dtype;
    fv_hello hello;  /* as it was granted; its text is not used */
    fv_received got; /* with the decode plan */
    fv_packet_reader reader;
    fv_import_due due;
    int32_t layer, layer_end; /* of the group that ROWS began */
    fv_kv_segment seg;
    int32_t head;   /* whose rows come next */
    uint32_t *rows; /* [N, Hkv, FV_N_SEG] as ROWS said */
    bool ranked;    /* RANK came for the layer whose ROWS are due */
    int32_t *mask;  /* [N] from the section MASK: masked visual tokens at the end of each head */
    uint8_t *seen;  /* [prompt tokens] which positions of a head in any order came; or NULL */
    uint64_t n_rows, bytes_visual; /* announced so far */
    int32_t n_reused_text;         /* layers that LEAD gave another's text keys */
    uint8_t *payload;              /* of a section that is not rows, while it comes */
    size_t cap_payload;
    fv_kv_segment packed_seg; /* of the packed rows that are coming */
    fv_packed_kind kind;      /* of the FACT section that is due */
    bool importance;          /* IMPO follows */
    int32_t head_at;          /* of the DATA section: the head that is being filled, */
    size_t head_off;          /* and the bytes of it that are there */
} fv_import;

/* ---- packed.c ------------------------------------------------------------------ */

/* PACK begins: of image tokens, or of text tokens where the policy has factors of their keys, or codes. */
fv_status fv_import_begin_packed(fv_import *l, const fv_section *s);

/* How long the packed layer's section that is due must be. */
fv_status fv_import_packed_length(const fv_import *l, const fv_section *s, uint64_t *want);

/* PACK arrived: it is checked against prompt and grant, and memory for the layer's compressed block
 * is allocated. */
fv_status fv_import_take_packed(fv_import *l, const fv_section *s);

/* The next bytes of a factor, to their place. */
fv_status fv_import_fill_factor(fv_import *l, uint64_t offset, const void *p, size_t n);

/* It is whole: what kernels follow in it stays inside it. */
fv_status fv_import_end_factor(fv_import *l);
void fv_import_next_factor(fv_import *l, int kind); /* what is due after the parts below `kind` */

fv_status fv_import_take_importance(fv_import *l);

/* ---- rows.c -------------------------------------------------------------------- */

size_t fv_import_row_bytes(const fv_kv_shape *s); /* of a key */

/* Rows of a head of a layer as ROWS said, and of heads [h0, h1) of the layer and segment that are due. */
uint32_t fv_import_rows(const fv_import *l, int32_t layer, int32_t head, fv_kv_segment seg);
uint64_t fv_import_rows_due(const fv_import *l, int32_t h0, int32_t h1);

/* 2: keys and values come; 1: the keys are another layer's. */
uint64_t fv_import_parts(const fv_import *l, int32_t layer, fv_kv_segment seg);

/* The payload of a section has arrived: it is checked, and kept. */
fv_status fv_import_take_rank(fv_import *l);
fv_status fv_import_take_mask(fv_import *l);
fv_status fv_import_take_lead(fv_import *l);
fv_status fv_import_take_rows(fv_import *l,
                              const fv_section *s); /* memory for the layers is taken */
fv_status fv_import_take_positions(fv_import *l, const fv_section *s);
void fv_import_take_accum(fv_import *l);

/* The next bytes of DATA, to their place. */
fv_status fv_import_fill_rows(fv_import *l, const uint8_t *p, size_t n);

/* ---- prompt.c ------------------------------------------------------------------ */

/* Likewise. */
fv_status fv_import_take_hello(fv_import *l, const fv_section *s);
fv_status fv_import_take_prompt(fv_import *l, const fv_section *s);
fv_status fv_import_take_grids(fv_import *l, const fv_section *s);
fv_status fv_import_take_token(fv_import *l);

/* ---- bounds.c ------------------------------------------------------------------ */

enum { FV_IMPORT_SKIP_MAX = 64 << 10 }; /* bytes of sections that we do not know, in a stream */

/* What n_visual image tokens in every layer can come to at most. */
uint64_t fv_import_most_visual(const fv_kv_shape *shape, uint32_t n_visual);

/* What tables of packed layers can come to at most. */
uint64_t fv_import_most_tables(const fv_kv_shape *shape, const fv_hello *hello);

/* Text rows that a layer may have at a time, of `rows` in all. */
int32_t fv_import_text_rows(const fv_kv_shape *shape, const fv_decode_plan *plan, int64_t rows);

/* Bytes of the pool, and of the stream, that a request of this kind may need. */
size_t fv_import_pool_bytes(const fv_kv_shape *shape, const fv_hello *hello,
                            const fv_decode_plan *plan);
uint64_t fv_import_wire_bytes(const fv_kv_shape *shape, const fv_hello *hello,
                              const fv_decode_plan *plan, int32_t n_group);

/* ---- stream.c ------------------------------------------------------------------ */

/* l->payload holds n bytes at least. */
fv_status fv_import_room(fv_import *l, size_t n);

/* Reserves everything. `hello` was checked. */
fv_status fv_import_open(const fv_receiver_options *opt, const fv_hello *hello,
                         const fv_decode_plan *plan, fv_import **out);
void fv_import_close(fv_import *l); /* NULL is fine */

fv_status fv_import_read(fv_import *l, const fv_piece *piece, int32_t n);

/* The same for bytes on the store's device. */
fv_status fv_import_read_oob(fv_import *l, const void *bytes, size_t n, uint32_t crc);

/* The stream is complete: releases surplus memory. */
fv_status fv_import_finish(fv_import *l);

#endif
