#ifndef FOVEA_HANDOFF_KV_SECTIONS_H
#define FOVEA_HANDOFF_KV_SECTIONS_H

/* PAYLOADS without KV entries: compatibility of the two sides, requested memory, the prompt and the
 * first token. Structures and their bytes; sender and receiver share only this file.
 *
 * Strings and arrays of a structure are borrowed, also those that point into the bytes it was read
 * from. */
#include "common/rope_map.h"
#include "handoff/kv_packet.h"

enum { FV_WIRE_PROTOCOL = 4, FV_COMPAT_MAX = 512, FV_WIRE_POLICY_MAX = 4096 };

/* ---- may the two talk at all ------------------------------------------------------------ */

/* "key=value" lines that must agree, and XXH64 of them: the hash is compared first, the lines only
 * to say what differs. A build that knows more keys has more lines, and the rest still reads. */
typedef struct fv_compat {
    uint64_t hash;
    char text[FV_COMPAT_MAX];
} fv_compat;

typedef struct fv_compat_fields {
    const char *model; /* the checkpoint's fingerprint */
    int32_t n_layer, n_kv, d_head;
    const char *dtype;   /* of the rows: "bf16" */
    const char *compute; /* of products: "f32" */
    uint64_t latent;     /* checksum of latent directions; 0: it has none */
} fv_compat_fields;

/* FV_EINVAL when the fields do not fit FV_COMPAT_MAX or a section's header. */
fv_status fv_compat_make(const fv_compat_fields *f, fv_compat *out);

/* FV_REFUSED_INCOMPATIBLE names the first line that differs, with both values. */
fv_status fv_compat_check(const fv_compat *mine, const fv_compat *theirs);

/* ---- HELO: the request for a grant ------------------------------------------------------ */

typedef struct fv_hello {
    fv_compat compat;          /* in the stream only its hash travels */
    uint32_t n_text, n_visual; /* prompt tokens */
    uint32_t max_tokens;       /* rows that the answer may add */
    uint32_t n_reused_text;    /* layers whose text keys are another layer's */
    uint64_t bytes_visual;     /* visual KV of all layers, in bytes of a store, at most */
    uint64_t bytes_tables;     /* beside it, tables of packed layers, at most */
    const char *policy;        /* text form; "" is exact */
    const char *owner;         /* the tenant; NULL: "". Not in the stream */
} fv_hello;

size_t fv_hello_bytes(const fv_hello *h);
void fv_hello_put(const fv_hello *h, uint8_t *out);
/* *policy is not terminated: n_policy bytes. */
fv_status fv_hello_get(const uint8_t *p, size_t n, fv_hello *out, size_t *n_policy);

/* ---- LEAD ------------------------------------------------------------------------------ */

/* A lazy layer: its image keys, and with `text` its text keys, are those of an earlier one. */
typedef struct fv_wire_lead {
    uint32_t source_layer;
    bool text;
} fv_wire_lead;

enum { FV_WIRE_LEAD_BYTES = 8 };
void fv_wire_lead_put(const fv_wire_lead *w, uint8_t *out);
fv_status fv_wire_lead_get(const uint8_t *p, fv_wire_lead *out); /* FV_WIRE_LEAD_BYTES of them */

/* ---- PRMT ------------------------------------------------------------------------------ */

typedef struct fv_wire_sampling { /* text/sample.h says what they mean */
    float repetition_penalty, frequency_penalty, presence_penalty, temperature, min_p, top_p;
    int32_t top_k, n_logprobs, n_bias;
    uint64_t seed;
    const void *bias; /* [n_bias] of i32 id, f32 bias, perhaps unaligned */
} fv_wire_sampling;

typedef struct fv_wire_prompt {
    uint32_t n;
    int32_t next; /* position of the first generated token */
    fv_wire_sampling sampling;
    const void *ids;    /* i32 [n], perhaps unaligned */
    const uint8_t *seg; /* [n] segment of each row */
} fv_wire_prompt;

size_t fv_wire_prompt_bytes(uint32_t n, int32_t n_bias);
void fv_wire_prompt_put(const fv_wire_prompt *p, uint8_t *out);
fv_status fv_wire_prompt_get(const uint8_t *p, size_t n, fv_wire_prompt *out);

/* ---- GRID ------------------------------------------------------------------------------ */

/* `n_grid` is dims 0 of the section. */
size_t fv_wire_grids_bytes(uint32_t n_grid);
void fv_wire_grids_put(const fv_rope_map *m, uint8_t *out);
/* fv_wire_grids_bytes(n_grid) of them, into grid[n_grid], which *out borrows; its n is at most `most`. */
fv_status fv_wire_grids_get(const uint8_t *p, uint32_t n_grid, uint32_t most, fv_rope_grid *grid,
                            fv_rope_map *out);

/* ---- PACK ------------------------------------------------------------------------------ */

/* Image tokens of a layer as factors, codes or directions: what kernels/packed_part.h needs of
 * them. Elements have the stores' type, heads and widths are the checkpoint's. Of text tokens keys
 * alone are factors: their values have rank 0, and are rows. */
typedef struct fv_wire_packed {
    uint32_t n, n_anchor;  /* tokens, and their blocks */
    uint32_t source_layer; /* whose keys, or directions: this layer, or one before */
    bool anchored;         /* keys are rotated to their block's anchor */
    bool importance;       /* IMPO follows */
    bool ranked;           /* rows are let go in the order of their rank */
    bool coded, merged;    /* codes, or directions that two layers share; not factors, */
    bool
        latent; /* or coefficients. Of a layer that has its source layer's: n and n_anchor are 0, */
    bool exact; /* a token of them is kept as it is */
    uint32_t n_source; /* and its tokens the first so many of that layer's; of others 0 */
    struct {
        uint32_t rank, rank2, bits; /* rank of coefficients: a token's bits */
        uint32_t n_outlier;         /* of codes and directions; of coefficients: own directions */
    } part[2];                      /* keys, values */
    const void *first;              /* i32 [n_anchor + 1], perhaps unaligned */
    const void *anchor;             /* i32 [n_anchor] when anchored */
    const void *pos;                /* i32 [n] */
    const void *rank;               /* i32 [n] when ranked */
} fv_wire_packed;

/* Size for so many tokens and blocks, which are dims 0 and 1 of the section. */
size_t fv_wire_packed_bytes(uint32_t n, uint32_t n_anchor);
void fv_wire_packed_put(const fv_wire_packed *w, uint8_t *out);
fv_status fv_wire_packed_get(const uint8_t *p, size_t n, fv_wire_packed *out);

/* ---- TOKN ------------------------------------------------------------------------------ */

typedef struct fv_first_token {
    int32_t id;
    float logprob;
    uint64_t step; /* of the next one: random numbers depend on (seed, step) */
} fv_first_token;

enum { FV_FIRST_TOKEN_BYTES = 16 };
void fv_first_token_put(const fv_first_token *t, uint8_t *out);
fv_first_token fv_first_token_get(const uint8_t *p);

#endif
