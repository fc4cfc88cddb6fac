#ifndef FOVEA_DECODE_WORKER_RECEIVE_INTERNAL_H
#define FOVEA_DECODE_WORKER_RECEIVE_INTERNAL_H

/* The state of a hand-off that is being received, only for receive.c (grants, the sink), bounds.c (its
 * limits), stream.c (the order of its sections), prompt.c, rows.c and packed.c (their contents), kept.c (what it leaves
 * out). */
#include "decode-worker/receive/receive.h"
#include "kv/packed.h"
#include "policy/plan/packed_shape.h"

/* The section that must come next. */
typedef enum fv_import_due {
    FV_DUE_HELLO = 0,
    FV_DUE_PROMPT,
    FV_DUE_STATE, /* first in each layer of a model with recurrent layers */
    FV_DUE_ROWS,  /* or a packed layer, before its ROWS */
    FV_DUE_LEAD,  /* or its source layer, before both */
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
    struct fv_import *next, **at;   /* in the receiver's list; at NULL: in none */
    const fv_receiver_options *opt; /* borrowed */
    const fv_kv_shape *shape;
    size_t row_bytes;
    fv_wire_dtype dtype;
    fv_hello hello;  /* as granted; its policy is got.policy */
    fv_received got; /* with the decode plan */
    uint32_t
        max_tokens; /* as granted; that of `hello` counts the rows that memory is reserved for */
    fv_packet_reader reader;
    fv_import_due due;
    int32_t layer, layer_end; /* of the group that ROWS began */
    fv_kv_segment seg;
    int32_t head;   /* the head whose rows come next */
    uint32_t *rows; /* [N, Hkv, FV_N_SEG] as ROWS said */
    bool ranked;    /* RANK came for the layer whose ROWS are due */
    int32_t *mask;  /* [N] from the section MASK: masked visual tokens at the end of each head */
    uint8_t *seen;  /* [prompt tokens] how often a position of an unordered head came; or NULL */
    uint64_t n_rows, bytes_visual; /* announced so far */
    int32_t n_reused_text;         /* layers that LEAD gave another's text keys */
    /* The prompt's first tokens, which the stream leaves out. */
    fv_wire_link *link;   /* [hello.n_link] owned; NULL: the prompt is not kept */
    uint32_t n_kept;      /* links that the grant names; 0: none */
    uint32_t n_kept_tail; /* tokens after the last of these */
    fv_kv_prefix kept;    /* their rows */
    fv_kv_share *share;   /* which hold them, in use; NULL once the store has adopted them */
    bool adopted;
    bool committed;
    uint8_t *payload; /* of a section that is neither DATA nor FACT, as it arrives */
    size_t cap_payload;
    fv_kv_segment packed_seg; /* segment of the packed rows that are arriving */
    fv_packed_kind kind;      /* of the FACT section that is due */
    bool importance;          /* IMPO follows */
    int32_t head_at;          /* of the DATA section: the head that is being filled */
    size_t head_off;          /* bytes of that head that have arrived */
} fv_import;

/* ---- packed.c ------------------------------------------------------------------ */

/* Accepts the header of PACK: of image tokens, or of text tokens if the policy compresses text. */
fv_status fv_import_begin_packed(fv_import *l, const fv_section *s);

/* Sets *want to the length that the due section of a packed layer must have. */
fv_status fv_import_packed_length(const fv_import *l, const fv_section *s, uint64_t *want);

/* Checks PACK's payload against prompt and grant, and allocates the layer's compressed block. */
fv_status fv_import_take_packed(fv_import *l, const fv_section *s);

/* Copies the next bytes of a factor to their place. */
fv_status fv_import_fill_factor(fv_import *l, uint64_t offset, const void *p, size_t n);

/* Checks a factor that has arrived: indices that kernels follow must stay inside it. */
fv_status fv_import_end_factor(fv_import *l);
void fv_import_next_factor(fv_import *l, int kind); /* sets what is due after parts below `kind` */

fv_status fv_import_take_importance(fv_import *l);

/* ---- rows.c -------------------------------------------------------------------- */

size_t fv_import_row_bytes(const fv_kv_shape *s); /* of a key */

/* Copies the next bytes of STAT to the state of the due layer. */
fv_status fv_import_fill_state(fv_import *l, uint64_t offset, const void *p, size_t n);

/* Number of rows of a head of a layer as ROWS said; of heads [h0, h1) of the due layer and segment. */
uint32_t fv_import_rows(const fv_import *l, int32_t layer, int32_t head, fv_kv_segment seg);
uint64_t fv_import_rows_due(const fv_import *l, int32_t h0, int32_t h1);

/* Values of accumulators that come for a segment: of all its rows, of those that are not sent, too. */
uint64_t fv_import_accum_due(const fv_import *l);

/* 2: keys and values come; 1: values only, as keys are another layer's. */
uint64_t fv_import_parts(const fv_import *l, int32_t layer, fv_kv_segment seg);

/* Check the payload of a section that has arrived, and keep it. */
fv_status fv_import_take_rank(fv_import *l);
fv_status fv_import_take_mask(fv_import *l);
fv_status fv_import_take_lead(fv_import *l);
fv_status fv_import_take_rows(fv_import *l,
                              const fv_section *s); /* allocates memory for the layers */
fv_status fv_import_take_positions(fv_import *l, const fv_section *s);
void fv_import_take_accum(fv_import *l);

/* Copies the next bytes of DATA to their place. */
fv_status fv_import_fill_rows(fv_import *l, const uint8_t *p, size_t n);

/* ---- prompt.c ------------------------------------------------------------------ */

/* Check the payload of a section of the whole prompt, and keep it. */
fv_status fv_import_take_hello(fv_import *l, const fv_section *s);
fv_status fv_import_take_prompt(fv_import *l, const fv_section *s);
fv_status fv_import_take_grids(fv_import *l, const fv_section *s);
fv_status fv_import_take_token(fv_import *l);

/* ---- kept.c -------------------------------------------------------------------- */

/* Finds the rows of the prompt that were kept, and keeps them in use until the hand-off ends. */
fv_status fv_import_find_kept(fv_import *l);

/* Gives up what was found: everything is to be sent. */
void fv_import_forgo_kept(fv_import *l);

/* Tokens of a segment that are left out of the stream. */
/* Bytes of the pool that a request need not reserve, because it uses kept rows where they are. */
size_t fv_import_kept_bytes(const fv_import *l);

int32_t fv_import_left_out(const fv_import *l, fv_kv_segment seg);

/* Checks KEPT against the grant and the prompt, and puts the rows into the store. */
fv_status fv_import_take_kept(fv_import *l);

/* Whether this hand-off, once it is committed, has much of what a prompt lacks of which `have` tokens are kept. */
bool fv_import_brings(const fv_import *l, const fv_hello *hello, const fv_wire_link *have);

/* How many tokens after those that were kept may be left to this worker. */
uint32_t fv_import_rest_most(const fv_import *l);

/* Says in got.n_held how much of the prompt has come; refuses a stream in which its end is missing, if that is not allowed. */
fv_status fv_import_take_rest(fv_import *l);

/* Keeps the prompt of a complete hand-off. */
void fv_import_keep(fv_import *l);
void fv_import_count_kept(const fv_import *l, fv_receiver_counters *count);
void fv_import_close_kept(fv_import *l);

/* ---- bounds.c ------------------------------------------------------------------ */

enum { FV_IMPORT_SKIP_MAX = 64 << 10 }; /* bytes of unknown sections in a stream */

/* The most bytes that n_visual image tokens in every layer can take. */
uint64_t fv_import_most_visual(const fv_kv_shape *shape, uint32_t n_visual);

/* The most bytes that tables of packed layers can take. */
uint64_t fv_import_most_tables(const fv_kv_shape *shape, const fv_hello *hello);

/* The most text rows that a layer holds uncompressed at a time, of `rows` in all. */
int32_t fv_import_text_rows(const fv_kv_shape *shape, const fv_decode_plan *plan, int64_t rows);

/* Bytes of the pool, and of the stream, that a request of this kind may need. */
size_t fv_import_pool_bytes(const fv_kv_shape *shape, const fv_hello *hello,
                            const fv_decode_plan *plan);
uint64_t fv_import_wire_bytes(const fv_kv_shape *shape, const fv_hello *hello,
                              const fv_decode_plan *plan, int32_t n_group);

/* ---- stream.c ------------------------------------------------------------------ */

/* Grows l->payload to at least n bytes. */
fv_status fv_import_room(fv_import *l, size_t n);

/* Rows of the answer that memory is reserved for at first. */
uint32_t fv_import_answer_rows(const fv_hello *hello);

/* Begins a hand-off and reserves all its memory. `hello` has been checked. */
fv_status fv_import_open(const fv_receiver_options *opt, const fv_hello *hello,
                         const fv_decode_plan *plan, fv_import **out);
void fv_import_close(fv_import *l); /* NULL is fine */

/* Reads the pieces of the next frame. */
fv_status fv_import_read(fv_import *l, const fv_piece *piece, int32_t n);

/* The same for bytes on the store's device. */
fv_status fv_import_read_oob(fv_import *l, const void *bytes, size_t n, uint32_t crc);

/* Ends a stream that must be complete, and releases surplus memory. */
fv_status fv_import_finish(fv_import *l);

#endif
