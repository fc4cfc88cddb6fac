#ifndef FOVEA_HANDOFF_KV_SECTIONS_H
#define FOVEA_HANDOFF_KV_SECTIONS_H

/* PAYLOADS without KV entries: compatibility of the two sides, requested memory, the prompt and the
 * first token, as structures and as bytes; sender and receiver share only this file.
 *
 * Strings and arrays of a structure are borrowed, also those that point into the bytes it was read
 * from. */
#include "common/rope_map.h"
#include "handoff/kv_packet.h"
#include "handoff/links.h"

enum { FV_WIRE_PROTOCOL = 4, FV_COMPAT_MAX = 512, FV_WIRE_POLICY_MAX = 4096 };

/* ---- compatibility ---------------------------------------------------------------------- */

/* "key=value" lines that must agree, and their XXH64: the hash is compared first, the lines only to
 * say what differs. A newer build may have more lines; an older one can still read the others. */
typedef struct fv_compat {
    uint64_t hash;
    char text[FV_COMPAT_MAX];
} fv_compat;

typedef struct fv_compat_fields {
    const char *model; /* the checkpoint's fingerprint */
    int32_t n_layer, n_kv, d_head;
    const char *dtype;   /* of the rows: "bf16" */
    const char *compute; /* of products: "f32" */
    uint64_t latent;     /* checksum of latent directions; 0: the checkpoint has none */
} fv_compat_fields;

/* FV_EINVAL if the fields do not fit FV_COMPAT_MAX or a section's header. */
fv_status fv_compat_make(const fv_compat_fields *f, fv_compat *out);

/* FV_REFUSED_INCOMPATIBLE names the first line that differs, with both values. */
fv_status fv_compat_check(const fv_compat *mine, const fv_compat *theirs);

/* ---- HELO: the request for a grant ------------------------------------------------------ */

typedef struct fv_hello {
    /* Not in the stream: what the answer may have on the receiving side. Tokens at most, 0: max_tokens; tokens that
     * memory is reserved for at first, 0: all of these; and when the request reached its router, by fv_clock_s. */
    uint32_t tokens_most, tokens_reserved;
    double arrived_s;

    fv_compat compat;          /* only its hash is in the stream */
    uint32_t n_text, n_visual; /* prompt tokens */
    uint32_t max_tokens;       /* the most rows that the answer adds */
    uint32_t n_reused_text;    /* layers that use another layer's text keys */
    uint64_t bytes_visual;     /* the most bytes of a store for visual KV of all layers */
    uint64_t bytes_tables;     /* the most bytes of tables of packed layers */
    const char *policy;        /* text form; "" is exact */
    const char *owner;         /* the tenant; NULL: "". Not in the stream */
    const char *adapter;       /* digest of the KV's adapter; NULL or "": none. Not in the stream */
    const fv_wire_link *link;  /* [n_link] of the prompt; not in the stream */
    uint32_t n_link;
    /* The ids of the prompt's last tokens, which are text: what was kept after a link is found by them. Not in the
     * stream. */
    const int32_t *tail; /* [n_tail] */
    uint32_t n_tail;
    bool
        may_leave_rest; /* the sender can leave the end of the prompt to the receiver. Not in the stream */
} fv_hello;

size_t fv_hello_bytes(const fv_hello *h);
void fv_hello_put(const fv_hello *h, uint8_t *out);
/* out->policy has *n_policy bytes and no NUL. */
fv_status fv_hello_get(const uint8_t *p, size_t n, fv_hello *out, size_t *n_policy);

/* ---- LEAD ------------------------------------------------------------------------------ */

/* A lazy layer, which uses the image keys, and with `text` also the text keys, of an earlier layer. */
typedef struct fv_wire_lead {
    uint32_t source_layer;
    bool text;
} fv_wire_lead;

enum { FV_WIRE_LEAD_BYTES = 8 };
void fv_wire_lead_put(const fv_wire_lead *w, uint8_t *out);
fv_status fv_wire_lead_get(const uint8_t *p, fv_wire_lead *out); /* reads FV_WIRE_LEAD_BYTES */

/* ---- PRMT ------------------------------------------------------------------------------ */

typedef struct fv_wire_sampling { /* parameters of text/sample.h */
    float repetition_penalty, frequency_penalty, presence_penalty, temperature, min_p, top_p;
    int32_t top_k, n_logprobs, n_bias;
    uint64_t seed;
    const void *bias; /* [n_bias] pairs of i32 id, f32 bias, perhaps unaligned */
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

/* ---- GRDT ------------------------------------------------------------------------------ */

/* `n_grid` is dims 0 of the section. */
size_t fv_wire_grids_bytes(uint32_t n_grid);
void fv_wire_grids_put(const fv_rope_map *m, uint8_t *out);
/* Reads fv_wire_grids_bytes(n_grid) bytes into grid[n_grid], which *out borrows; refuses n above `most`. */
fv_status fv_wire_grids_get(const uint8_t *p, uint32_t n_grid, uint32_t most, fv_rope_grid *grid,
                            fv_rope_map *out);

/* ---- PACK ------------------------------------------------------------------------------ */

/* Image tokens of a layer as factors, codes, directions or coefficients: the shapes for
 * packed/part.h. Elements have the stores' type, heads and widths are the checkpoint's. For text
 * tokens only keys are factors: their values have rank 0, and are rows. */
typedef struct fv_wire_packed {
    uint32_t n, n_anchor;  /* tokens, and their blocks */
    uint32_t source_layer; /* owner of the keys or directions: this layer, or an earlier one */
    bool anchored;         /* keys are rotated to their block's anchor */
    bool importance;       /* IMPO follows */
    bool ranked;           /* rows are dropped in the order of their rank */
    bool coded, merged;    /* codes; directions that two layers share */
    bool latent;           /* coefficients; with none of the three: factors */
    bool exact;            /* coefficients: one token is stored exactly */
    /* Coefficients of an earlier layer: this layer has its first n_source tokens, and n and n_anchor are 0;
     * otherwise 0. */
    uint32_t n_source;
    struct {
        uint32_t rank, rank2, bits; /* coefficients: rank is a token's bits */
        uint32_t n_outlier;         /* outliers; coefficients: own directions */
    } part[2];                      /* keys, values */
    const void *first;              /* i32 [n_anchor + 1], perhaps unaligned */
    const void *anchor;             /* i32 [n_anchor] when anchored */
    const void *pos;                /* i32 [n] */
    const void *rank;               /* i32 [n] when ranked */
} fv_wire_packed;

/* Size for n tokens and n_anchor blocks, which are dims 0 and 1 of the section. */
size_t fv_wire_packed_bytes(uint32_t n, uint32_t n_anchor);
void fv_wire_packed_put(const fv_wire_packed *w, uint8_t *out);
fv_status fv_wire_packed_get(const uint8_t *p, size_t n, fv_wire_packed *out);

/* ---- TOKN ------------------------------------------------------------------------------ */

typedef struct fv_first_token {
    int32_t id;
    float logprob;
    uint64_t step; /* of the next token: random numbers depend on (seed, step) */
} fv_first_token;

enum { FV_FIRST_TOKEN_BYTES = 16 };
void fv_first_token_put(const fv_first_token *t, uint8_t *out);
fv_first_token fv_first_token_get(const uint8_t *p);

#endif
