#ifndef FOVEA_POLICY_PLAN_PACKED_SHAPE_H
#define FOVEA_POLICY_PLAN_PACKED_SHAPE_H

/* What the plan says of packed layers, as kernels want it. Apart from plan.h, because the router
 * reads plans and knows no kernels. */
#include "kernels/packed.h"
#include "policy/plan/plan.h"

/* The shape of a compressed layer's keys or values with n visual tokens: with the plan's ranks, as
 * far as so few tokens have them, as codes, or merged, with no exact vectors. */
fv_packed_shape fv_plan_packed_shape(const fv_plan *plan, int32_t layer, fv_packed_kind kind,
                                     int32_t n, fv_dtype dtype);

/* Bytes of n visual tokens of a layer that the plan packs, or leaves raw when n is too small: of
 * its values, and of its keys if they are its own (`leads`). What merged layers keep depends on
 * data: never more than their rows. */
uint64_t fv_plan_packed_bytes(const fv_plan *plan, int32_t layer, int32_t n, bool leads);

/* The block of text keys when a layer has n text tokens of this width; values are rows. */
fv_packed_shape fv_text_keys_shape(const fv_text_keys *keys, fv_packed_kind kind, int32_t n,
                                   int32_t n_kv, int32_t d_head, fv_dtype dtype);

/* Bytes of that block, if there are rows: of its values, and of its keys if they are the layer's
 * own. */
uint64_t fv_text_keys_bytes(const fv_text_keys *keys, int32_t n, int32_t n_kv, int32_t d_head,
                            fv_dtype dtype, bool own);

/* Whether it is as much smaller than the keys as the policy wants it. */
bool fv_text_keys_pack(const fv_text_keys *keys, int32_t n, int32_t width);

/* Whether n visual tokens are as much smaller packed as the policy wants them: factors by its gain,
 * codes at all, and so two merged layers of which nothing is kept. Of layers that share coefficients
 * whether there are any: all of the group are packed, or none (fv_plan_latents_pay). */
bool fv_plan_packs(const fv_plan *plan, int32_t layer, int32_t n);

/* Whether the coefficients of a group of layers, `first` and those after it, are smaller than their
 * rows; they hold n [group] visual tokens. */
bool fv_plan_latents_pay(const fv_plan *plan, int32_t first, const int32_t *n);

/* With how many of a group's n_dir directions that have bits the plan reads unimportant tokens;
 * 0: with all. */
int32_t fv_plan_latent_rank2(const fv_plan *plan, fv_packed_kind kind, int32_t n_dir);

/* ---- of a range of numbers of rows ---------------------------------------------------------
 *
 * For bounds: what holds for every n of from..to, at the cost of looking at its ends. */

typedef enum fv_packs { FV_PACKS_NONE, FV_PACKS_SOME, FV_PACKS_ALL } fv_packs;

/* Which of them are packed; SOME: it is not known. 0 rows are packed or not, as others are. */
fv_packs fv_plan_packs_range(const fv_plan *plan, int32_t layer, int32_t from, int32_t to);
fv_packs fv_text_keys_pack_range(const fv_text_keys *keys, int32_t from, int32_t to, int32_t width);

/* No n of them takes more than this (fv_plan_packed_bytes). */
uint64_t fv_plan_packed_most(const fv_plan *plan, int32_t layer, int32_t from, int32_t to,
                             bool leads);

#endif
