#ifndef FOVEA_MODEL_NET_TEXT_CODES_H
#define FOVEA_MODEL_NET_TEXT_CODES_H

/* TEXT OF A STORE AS CODES (packed/text_codes.h): text tokens that are due become a block of codes
 * in each layer, first after the prompt, then between tokens of the answer. All heads of a layer
 * hold the same text tokens.
 *
 *   text rows   [first] [.... due ....] [the others]  -->  [first] [the others],  one more block
 *
 * A block depends only on its tokens, and its tokens only on how many have run, so the bits are the
 * same wherever the work is done.
 *
 * Runs on the thread that owns the store. */
#include "common/text_rule.h"
#include "factor/matrices.h"
#include "kv/packed.h"
#include "model/net/decoder.h"

/* Statistics of rows that became codes, or were compressed again
 * (decode-worker/conversations/recompress.h). */
typedef struct fv_recompress_report {
    int32_t n_layer; /* layers in which rows became codes, the last time */
    uint64_t rows;   /* such rows in all layers together */
    size_t bytes;    /* bytes saved */
    float error;     /* largest error of a layer's keys or values: ||M - M~|| / ||M|| */
    double seconds;
} fv_recompress_report;

/* Text compression of one store: the rule, and the number of tokens in its prompt. */
typedef struct fv_text_codes {
    fv_text_rule rule;
    int32_t n_prompt;
    fv_recompress_report report;
} fv_text_codes;

/* Result for one layer, for reports. */
typedef struct fv_text_coded_layer {
    int32_t n;      /* rows that became codes; 0: none */
    float error[2]; /* error of keys and values; 0 for keys of another layer */
} fv_text_coded_layer;

/* Compresses text rows of layers [l0, l1) at positions below `end`, without the first row, in every
 * layer that has enough of them. layer [l1 - l0]: in and out, set for the layers that were
 * compressed. FV_EINVAL, naming the layer, if a number is not finite; on other failures the store
 * is inconsistent: close it. */
fv_status fv_text_codes_take(fv_backend *be, const fv_rope *rope, fv_kv *kv,
                             const fv_text_rule *rule, int32_t end, int32_t l0, int32_t l1,
                             fv_text_coded_layer *layer);

/* Compresses the rows that are due before the token after the first n_run runs. Idempotent. */
fv_status fv_text_codes_step(fv_text_codes *t, fv_decoder *dec, fv_kv *kv, int32_t n_run);

/* Reserves memory for `tokens` more tokens after the first n_run, in all layers or in none: pages
 * for the tokens that are raw at a time, and bytes for future blocks. Earlier reservations that are
 * not needed return to the pool. If text is not in codes, reserves pages for all. FV_EBUSY if the
 * pool has too little left. */
fv_status fv_text_codes_reserve(const fv_text_codes *t, fv_kv *kv, int32_t n_run, int32_t tokens);

#endif
