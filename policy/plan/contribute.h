#ifndef FOVEA_POLICY_PLAN_CONTRIBUTE_H
#define FOVEA_POLICY_PLAN_CONTRIBUTE_H

/* CONTRIBUTION of a method to a plan: fv_plan_<stage>_<method>, one function per row of
 * methods.def, in a file of policy/plan/ named after the method, or a function that several methods
 * share (FV_METHOD_AS). They run in stage order, each on the plan that earlier ones left, starting
 * with that of `exact`. Layers in the parameters exist. FV_EINVAL if another value does not fit the
 * checkpoint; a method that can change nothing calls fv_plan_note. */
#include "policy/plan/plan.h"

#define FV_METHOD_AS(stage, name, source, summary, call)
#define FV_METHOD(stage, name, source, summary)                                                    \
    fv_status FV_NAME(fv_plan_, stage, name)(fv_plan * plan, const FV_PARAMS(stage, name) * p);
#include "policy/methods.def"

/* From `layer` on, keeps a share `keep` of the visual tokens, chosen without attention. */
fv_status fv_plan_prune_share(fv_plan *plan, int32_t layer, double keep);

/* Every KV head keeps the last floor(recent L) of a prompt's L tokens, and floor(heavy L) of those
 * before them: chosen without attention (budget), or by the attention from all tokens of the prompt
 * (hitters). Query heads, of the whole layer (`shared`) or of each KV head, are combined by maximum
 * (`max`) or mean. */
fv_status fv_plan_select_budget(fv_plan *plan, double heavy, double recent);
fv_status fv_plan_select_hitters(fv_plan *plan, double heavy, double recent, bool shared, bool max);

/* Refuses what a model with recurrent layers cannot run: their state holds every token that ran, so no
 * token can be masked, or taken out to run again; and the layer that comes next is not attention. */
fv_status fv_plan_check_recurrent(const fv_plan *plan);

/* ---- helpers for the methods' files ------------------------------------------------------ */

/* "prune=vtw does nothing here: <why>", for the report. */
void fv_plan_note(fv_plan *plan, fv_stage stage, const char *why);

/* Returns whether the prompt has no image; notes it as the reason why the stage does nothing. */
bool fv_plan_text_only(fv_plan *plan, fv_stage stage);

/* Removes the stage's mapped layers from the plan: they are not used for this request. */
void fv_plan_clear_mapped(fv_plan *plan, fv_stage stage);

/* Number of n tokens that a share is, rounded down; and the sum of that over all images. */
int32_t fv_plan_share(double share, int32_t n);
int32_t fv_plan_share_of_images(const fv_plan_shape *shape, double share);

/* Leaves `keep` visual tokens from `layer` on. Layers must ascend from call to call. If that is all
 * tokens, the plan notes that every visual token is kept, unless the stage has dropped some
 * before. */
void fv_plan_drop(fv_plan *plan, int32_t layer, int32_t keep);

/* Does the same, but the other tokens continue to run and are held, masked. */
void fv_plan_mask_after(fv_plan *plan, int32_t layer, int32_t keep);

/* Rule for text in codes, from a pack method's parameters compress_text, bits_text and
 * recompress. */
#define FV_TEXT_RULE_OF(p)                                                                         \
    fv_text_rule_of((p)->compress_text_no, (p)->compress_text_all, (p)->bits_text_4,               \
                    (p)->recompress)
fv_text_rule fv_text_rule_of(bool no, bool all, bool bits_4, int32_t recompress);

/* Adds the select stage: each KV head keeps `rows`, a pure function, at most what prune leaves in
 * the layer. If that is everything everywhere, the stage is left out and noted. */
void fv_plan_select(fv_plan *plan, fv_plan_count_fn rows);

/* Adds an evict method's attention-score accumulators: its rule is from fv_decode_<stage>_<method>;
 * they start with the attention of the prompt's last `tokens`, or with 0 from values of its own
 * (FV_VALUE). */
fv_status fv_plan_accumulate(fv_plan *plan, int32_t tokens);

#endif
