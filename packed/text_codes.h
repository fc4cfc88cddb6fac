#ifndef FOVEA_PACKED_TEXT_CODES_H
#define FOVEA_PACKED_TEXT_CODES_H

/* TEXT AS CODES: a layer's text tokens in blocks of codes (packed/codes.h), of keys and values, or of
 * keys beside uncompressed values. Keys are quantized before rotation, and there are no outliers.
 * A block is never changed: later tokens go into another block with its own pairs. So no number is
 * quantized twice.
 *
 * Sizes follow from numbers of tokens alone. With B(n) the bytes of a block of n tokens, a block is made
 * once it is smaller than its rows, which holds from some n on; fewer rows wait for more.
 *
 * Pure functions; any thread. */
#include "common/text_rule.h"
#include "packed/codes.h"

/* The widths of a layer, and the type of its rows. */
typedef struct fv_text_width {
    int32_t n_kv, d_head;
    fv_dtype dtype;
} fv_text_width;

fv_packed_shape fv_text_shape(const fv_text_rule *r, fv_packed_kind kind, int32_t n,
                              const fv_text_width *w);

/* B(n): bytes of values, and of keys if the layer has its `own`; 0 for no rows. */
uint64_t fv_text_block_bytes(const fv_text_rule *r, int32_t n, const fv_text_width *w, bool own);

/* Bytes of the same tokens as uncompressed rows. */
static inline uint64_t fv_text_row_bytes(int64_t n, const fv_text_width *w, bool own) {
    uint64_t row = (uint64_t)w->n_kv * (uint64_t)w->d_head * fv_dtype_bytes(w->dtype);
    return (own ? 2 : 1) * (uint64_t)n * row;
}

/* The fewest rows that become a block: from this number on, B(n) is less than the rows' bytes. Layers that
 * share keys get the same answer, as if each had its own. INT32_MAX: no block is ever smaller. */
int32_t fv_text_min_rows(const fv_text_rule *r, const fv_text_width *w);

/* How `wait` rows that were due before, and T more that became due `times` times, are cut: a block of the
 * `first` rows (0: none), n_each blocks of `each`, and `left` rows in no block. */
typedef struct fv_text_cut {
    int32_t first, each, n_each, left;
} fv_text_cut;

fv_text_cut fv_text_cut_blocks(const fv_text_rule *r, int32_t wait, int32_t times,
                               const fv_text_width *w);

/* A layer's storage for a prompt's rows and n_answer rows after it, of which T became due `times` times:
 * bytes and number of blocks, and rows in no block. */
typedef struct fv_text_held {
    uint64_t codes;
    int32_t n_block, raw;
} fv_text_held;

fv_text_held fv_text_storage(const fv_text_rule *r, int32_t n_prompt, int32_t n_answer,
                             int32_t times, const fv_text_width *w, bool own);

/* The most uncompressed rows that a layer holds at a time, if it gets n in all. */
int32_t fv_text_raw_most(const fv_text_rule *r, int32_t n, const fv_text_width *w);

/* The most bytes of a layer's codes, for a prompt of at most n_prompt rows, some of which may be a resumed
 * answer, and n_answer more. */
uint64_t fv_text_codes_most(const fv_text_rule *r, int32_t n_prompt, int32_t n_answer,
                            const fv_text_width *w, bool own);

/* A bound on the bytes of tables, on host and device, of `n_block` blocks with n rows in all, in n_layer
 * layers, n_set of which have rows of their own. */
uint64_t fv_text_tables(int64_t n, int64_t n_block, int32_t n_layer, int32_t n_set, int32_t d_head);

#endif
