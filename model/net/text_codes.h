#ifndef FOVEA_MODEL_NET_TEXT_CODES_H
#define FOVEA_MODEL_NET_TEXT_CODES_H

/* TEXT OF A STORE AS CODES (kernels/text_codes.h): the text tokens of each layer that are due become a
 * block of their own, after the prompt and then between two tokens. All heads of a layer hold the
 * same text tokens.
 *
 *   text rows   [first] [.... due ....] [the others]  -->  [first] [the others],  blocks and one more
 *
 * A block depends on its tokens alone, and which tokens it has on how many have run, so the bits are the
 * same wherever the work is done.
 *
 * The thread that owns the store. */
#include "common/text_rule.h"
#include "kernels/matrices.h"
#include "model/net/decoder.h"
#include "model/net/kv_packed.h"

/* What came to be codes, or was compressed again (decode-worker/conversations/recompress.h). */
typedef struct fv_recompress_report {
    int32_t n_layer; /* layers in which rows did, the last time */
    uint64_t rows;   /* that did, in all layers together */
    size_t bytes;    /* that rows took more than what they came to */
    float error; /* the most that was left out of a layer's keys or values: ||M - M~|| / ||M|| */
    double seconds;
} fv_recompress_report;

/* The text of one store: the rule, and tokens of the prompt it began with. */
typedef struct fv_text_codes {
    fv_text_rule rule;
    int32_t n_prompt;
    fv_recompress_report report;
} fv_text_codes;

/* One layer, for reports. */
typedef struct fv_text_coded_layer {
    int32_t n;      /* rows that became codes; 0: none */
    float error[2]; /* of keys and values; of keys that are another layer's 0 */
} fv_text_coded_layer;

/* Text rows of layers [l0, l1) at positions below `end`, but for the first, become codes in every layer
 * that has enough of them. layer [l1 - l0]: in and out, of those that did. FV_EINVAL when a number is not finite, with a
 * sentence that names the layer; on other failures the store is inconsistent: close it. */
fv_status fv_text_codes_take(fv_backend *be, const fv_rope *rope, fv_kv *kv,
                             const fv_text_rule *rule, int32_t end, int32_t l0, int32_t l1,
                             fv_text_coded_layer *layer);

/* Before the tokens run that follow the first n_run: what is due by then. Does nothing when that has
 * been done. */
fv_status fv_text_codes_step(fv_text_codes *t, fv_decoder *dec, fv_kv *kv, int32_t n_run);

/* Memory for `tokens` more after the first n_run, in all layers or in none: pages for those that are
 * rows at a time, and bytes for blocks to come. What was set aside before and is not needed returns to
 * the pool. Without text in codes, pages for all. FV_EBUSY when the pool has not so much. */
fv_status fv_text_codes_reserve(const fv_text_codes *t, fv_kv *kv, int32_t n_run, int32_t tokens);

#endif
