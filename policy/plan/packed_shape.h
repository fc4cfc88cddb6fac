#ifndef FOVEA_POLICY_PLAN_PACKED_SHAPE_H
#define FOVEA_POLICY_PLAN_PACKED_SHAPE_H

/* Shapes of a plan's packed layers for kernels. Separate from plan.h, because the router reads
 * plans but does not use kernels. */
#include "packed/codes.h"
#include "packed/latent.h"
#include "packed/lowrank.h"
#include "policy/plan/plan.h"

/* Shape of a compressed layer's keys or values with n visual tokens: factors with the plan's ranks,
 * at most n; codes; or merged, without exact vectors. */
fv_packed_shape fv_plan_packed_shape(const fv_plan *plan, int32_t layer, fv_packed_kind kind,
                                     int32_t n, fv_dtype dtype);

/* Bytes of a layer's n visual tokens, which the plan packs, or leaves raw if n is too small: of
 * values, and of keys if the layer owns them (`leads`). For merged layers, whose size depends on
 * data, the raw rows' bytes. */
uint64_t fv_plan_packed_bytes(const fv_plan *plan, int32_t layer, int32_t n, bool leads);

/* Block of text keys for n text tokens of this width; values stay rows. */
fv_packed_shape fv_text_keys_shape(const fv_text_keys *keys, fv_packed_kind kind, int32_t n,
                                   int32_t n_kv, int32_t d_head, fv_dtype dtype);

/* Bytes of that block for n > 0: of values, and of keys if the layer owns them. */
uint64_t fv_text_keys_bytes(const fv_text_keys *keys, int32_t n, int32_t n_kv, int32_t d_head,
                            fv_dtype dtype, bool own);

/* Returns whether the block is smaller than the keys by the policy's gain. */
bool fv_text_keys_pack(const fv_text_keys *keys, int32_t n, int32_t width);

/* Returns whether n visual tokens are packed: factors if they are smaller by the policy's gain,
 * codes and merged layers (with no vectors kept) if they are smaller at all. For layers that share
 * coefficients, whether there are any tokens: all of the group are packed, or none
 * (fv_plan_latents_pay). */
bool fv_plan_packs(const fv_plan *plan, int32_t layer, int32_t n);

/* Returns whether the coefficients of a group of layers, starting with `first`, are smaller than
 * its rows; n [group] visual tokens per layer. */
bool fv_plan_latents_pay(const fv_plan *plan, int32_t first, const int32_t *n);

/* Number of a group's n_dir directions with bits at which the plan reads unimportant tokens; 0:
 * all. */
int32_t fv_plan_latent_rank2(const fv_plan *plan, fv_packed_kind kind, int32_t n_dir);

/* ---- ranges of the number of rows ---------------------------------------------------------
 *
 * For bounds: results that hold for every n in from..to, computed from the range's ends. */

typedef enum fv_packs { FV_PACKS_NONE, FV_PACKS_SOME, FV_PACKS_ALL } fv_packs;

/* Which n in the range are packed; SOME: unknown. 0 rows count as packed if the others are. */
fv_packs fv_plan_packs_range(const fv_plan *plan, int32_t layer, int32_t from, int32_t to);
fv_packs fv_text_keys_pack_range(const fv_text_keys *keys, int32_t from, int32_t to, int32_t width);

/* Upper bound of fv_plan_packed_bytes for every n in the range. */
uint64_t fv_plan_packed_most(const fv_plan *plan, int32_t layer, int32_t from, int32_t to,
                             bool leads);

#endif
