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
 * The thread that owns the store. */
#include "model/net/kv_packed.h"

/* Nothing changes below where the store's rule (fv_kv_sequence) is off. */

/* Groups of every packed layer whose importance has changed since. */
fv_status fv_expand_regroup(fv_kv *kv);

/* The rows of a turn have all run: what was gathered becomes importance. */
fv_status fv_expand_end_turn(fv_kv *kv);

/* Of every packed layer that had n rows at first, the ceil(share * n) of highest importance stay
 * ("(E)" of the paper); layers that share keys keep those that are important to the one whose keys
 * they are, and latents as fv_expand_nest does. What stays once stays. */
fv_status fv_expand_keep(fv_kv *kv, double share);

/* Of one packed layer, and those that share its keys, the v rows of highest importance stay, and
 * are ranked by it from then on. */
fv_status fv_expand_least(fv_kv *kv, int32_t layer, int32_t v);

/* Of a group of latents, whose source layer is `layer`: layer l is left with n[l] rows, no more than
 * it has, and no layer with more than one before it. A row's importance is the mean over the layers
 * that hold it; from the last layer to the first, each keeps what the layers after it keep, and of
 * its other rows the most important. They are ranked by it from then on. */
fv_status fv_expand_nest(fv_kv *kv, int32_t layer, const int32_t *n);

#endif
