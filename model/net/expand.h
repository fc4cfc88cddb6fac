#ifndef FOVEA_MODEL_NET_EXPAND_H
#define FOVEA_MODEL_NET_EXPAND_H

/* EXPAND: partial decompression. The rank at which a compressed token is read follows the attention
 * that it receives (AttentionPack, CVPR 2026, section 3.3). Per layer and request every compressed
 * token j has an importance
 *
 *     I_j <- alpha^Tq I_j + (1 - alpha^Tq) (1 / Tq) sum of A_ij over the Tq tokens i of a step
 *
 * where A is the attention over all keys, mean over heads; I starts with the attention of the last
 * prompt token. A step is one token in decoding, and all tokens of a question in a conversation.
 * The ceil(full * n) tokens of highest importance are read at full rank, the others at R2.
 *
 * The tokens of a step may be spread over several forward batches, depending on other requests:
 * their mean is accumulated token by token, and groups change between steps only. So an answer does
 * not depend on the requests it shares a batch with. (The authors' code has one grouping for a
 * whole batch, made once, after the prompt.)
 *
 * Runs on the thread that owns the store. */
#include "kv/packed.h"

/* These functions do nothing if the store's rule is off (fv_kv_sequence). */

/* Assigns tokens to groups again in every packed layer whose importance has changed. */
fv_status fv_expand_regroup(fv_kv *kv);

/* Ends a turn whose rows have all run: merges the attention gathered in it into the importance. */
fv_status fv_expand_end_turn(fv_kv *kv);

/* Keeps, of every packed layer that had n rows at first, the ceil(share * n) of highest importance
 * ("(E)" of the paper). Layers that share keys keep the rows that matter most to their source
 * layer; latents are shortened by fv_expand_shrink_group. Dropped rows do not come back. */
fv_status fv_expand_keep(fv_kv *kv, double share);

/* Keeps the v most important rows of one packed layer, and of the layers that share its keys, and
 * ranks them by importance. */
fv_status fv_expand_keep_top(fv_kv *kv, int32_t layer, int32_t v);

/* Shortens a group of latents with source layer `layer`: layer l keeps n[l] rows, no more than it
 * has and no more than any layer before it. A row's importance is the mean over the layers that
 * hold it; from the last layer to the first, each keeps the rows that the layers after it keep, and
 * the most important of its others. Ranks the rows by importance. */
fv_status fv_expand_shrink_group(fv_kv *kv, int32_t layer, const int32_t *n);

#endif
