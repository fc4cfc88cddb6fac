#ifndef FOVEA_KERNELS_TEXT_CODES_H
#define FOVEA_KERNELS_TEXT_CODES_H

/* TEXT AS CODES: a layer's text tokens in blocks of codes (kernels/codes.h), of keys and values, or of
 * keys beside values as they are. Keys are quantized before rotation, and nothing is stored exactly.
 * A block is never changed: what follows becomes another one, with pairs of its own. So no number is
 * quantized twice.
 *
 * Sizes are known from numbers of tokens. With B(n) the bytes of a block of n tokens, one is made
 * where it is smaller than the rows are, which holds from some n on; fewer wait for those that follow.
 *
 * Pure functions; any thread. */
#include "common/text_rule.h"
#include "kernels/packed.h"

/* The widths of a layer, and the type of its rows. */
typedef struct fv_text_width {
    int32_t n_kv, d_head;
    fv_dtype dtype;
} fv_text_width;

fv_packed_shape fv_text_shape(const fv_text_rule *r, fv_packed_kind kind, int32_t n,
                              const fv_text_width *w);

/* B(n), 0 for no rows: of values, and of keys if they are the layer's own. */
uint64_t fv_text_block_bytes(const fv_text_rule *r, int32_t n, const fv_text_width *w, bool own);

/* The same as rows. */
static inline uint64_t fv_text_row_bytes(int64_t n, const fv_text_width *w, bool own) {
    uint64_t row = (uint64_t)w->n_kv * (uint64_t)w->d_head * fv_dtype_bytes(w->dtype);
    return (own ? 2 : 1) * (uint64_t)n * row;
}

/* The fewest rows that become a block: with so many, or with more, B(n) is less than the rows'
 * bytes. Layers that share keys decide alike, as if each had its own. INT32_MAX: none ever is. */
int32_t fv_text_least(const fv_text_rule *r, const fv_text_width *w);

/* What becomes of `wait` rows that have been due before, when T more have become due `times` times: a
 * block of the first rows (0: none), n_each blocks of `each`, and rows that are left. */
typedef struct fv_text_cut {
    int32_t first, each, n_each, left;
} fv_text_cut;

fv_text_cut fv_text_cut_of(const fv_text_rule *r, int32_t wait, int32_t times,
                           const fv_text_width *w);

/* What a layer holds of a prompt's rows and of n_answer rows after it, when T of these have become due
 * `times` times: bytes and number of blocks, and rows that are in none. */
typedef struct fv_text_held {
    uint64_t codes;
    int32_t n_block, raw;
} fv_text_held;

fv_text_held fv_text_hold(const fv_text_rule *r, int32_t n_prompt, int32_t n_answer, int32_t times,
                          const fv_text_width *w, bool own);

/* The most rows that a layer has at a time of n that it gets in all. */
int32_t fv_text_raw_most(const fv_text_rule *r, int32_t n, const fv_text_width *w);

/* A layer's codes take no more, of a prompt of at most n_prompt rows, of which some may be an answer
 * that goes on, and of n_answer more. */
uint64_t fv_text_codes_most(const fv_text_rule *r, int32_t n_prompt, int32_t n_answer,
                            const fv_text_width *w, bool own);

/* Tables of `n_block` blocks of n rows together, in n_layer layers of which n_set have rows of their
 * own: a bound, for host and device. */
uint64_t fv_text_tables(int64_t n, int64_t n_block, int32_t n_layer, int32_t n_set, int32_t d_head);

#endif
