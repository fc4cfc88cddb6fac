#ifndef FOVEA_POLICY_PLAN_CONTRIBUTE_H
#define FOVEA_POLICY_PLAN_CONTRIBUTE_H

/* What a method adds to a plan: one function per row of methods.def, in a file of policy/plan/
 * that is named after the method, or after what several methods add alike (FV_METHOD_AS):
 *
 *   prune: share    from layer `layer` on, `keep` of the visual tokens; no attention is asked for
 *
 * They run in the order of the stages, each on what the earlier
 * ones left: a plan of `exact` to begin with. */
#include "policy/plan/plan.h"

/* fv_status fv_plan_<stage>_<method>(fv_plan *plan), for every method there is. FV_EINVAL when a
 * value does not fit the checkpoint; one that can change nothing calls fv_plan_note. */
#define FV_PLAN_CONDENSE(name) fv_plan_condense_##name
#define FV_PLAN_PRUNE(name) fv_plan_prune_##name
#define FV_PLAN_LAZY(name) fv_plan_lazy_##name
#define FV_PLAN_SELECT(name) fv_plan_select_##name
#define FV_PLAN_PACK(name) fv_plan_pack_##name
#define FV_PLAN_EXPAND(name) fv_plan_expand_##name
#define FV_PLAN_EVICT(name) fv_plan_evict_##name
#define FV_METHOD(stage, name, source, summary) fv_status FV_PLAN_##stage(name)(fv_plan * plan);
#define FV_METHOD_AS(stage, name, source, summary, plan) FV_METHOD(stage, plan, source, summary)
#include "policy/methods.def"

/* "prune=vtw does nothing here: <why>", for the report. */
void fv_plan_note(fv_plan *plan, fv_stage stage, const char *why);

/* Whether the prompt has no image; notes it as the reason why the stage does nothing. */
bool fv_plan_text_only(fv_plan *plan, fv_stage stage);

/* A LAYER parameter of the stage's method, which the plan writes down if it was mapped; FV_EINVAL
 * when the checkpoint has no such layer. */
fv_status fv_plan_layer(fv_plan *plan, fv_stage stage, const char *param, int32_t *layer);

/* Likewise, of one that counts layers. */
int32_t fv_plan_stride(fv_plan *plan, fv_stage stage, const char *param);

/* The stage's layers of 32 are not used on this request. */
void fv_plan_forget_mapped(fv_plan *plan, fv_stage stage);

/* How many of n a share is, rounded down; and of every image's tokens, together. */
int32_t fv_plan_share(double share, int32_t n);
int32_t fv_plan_share_of_images(const fv_plan_shape *shape, double share);

/* From `layer` on, `keep` visual tokens are left. Layers ascend from call to call. When that is all
 * there are, the stage is noted to keep every visual token, unless it has dropped some before. */
void fv_plan_drop(fv_plan *plan, int32_t layer, int32_t keep);

/* The same, but that the others run on and are held, and nobody sees them. */
void fv_plan_mask_after(fv_plan *plan, int32_t layer, int32_t keep);

/* The select stage leaves `rows` to each KV head: pure, at most what prune leaves to the layer.
 * When that is everything everywhere, the stage is left out and noted. */
void fv_plan_select(fv_plan *plan, fv_plan_rows_fn rows);

#endif
