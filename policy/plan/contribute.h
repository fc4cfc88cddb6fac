#ifndef FOVEA_POLICY_PLAN_CONTRIBUTE_H
#define FOVEA_POLICY_PLAN_CONTRIBUTE_H

/* What a method adds to a plan: fv_plan_<stage>_<method>, one function per row of methods.def, in a
 * file of policy/plan/ named after the method, or one that several methods share (FV_METHOD_AS).
 * They run in the order of the stages, each on what the earlier ones left: a plan of `exact` to
 * begin with. The parameters' layers exist. FV_EINVAL when another value does not fit the
 * checkpoint; a method that can change nothing calls fv_plan_note. */
#include "policy/plan/plan.h"

#define FV_METHOD_AS(stage, name, source, summary, call)
#define FV_METHOD(stage, name, source, summary)                                                    \
    fv_status FV_NAME(fv_plan_, stage, name)(fv_plan * plan, const FV_PARAMS(stage, name) * p);
#include "policy/methods.def"

/* From `layer` on, `keep` of the visual tokens; no attention is asked for. */
fv_status fv_plan_prune_share(fv_plan *plan, int32_t layer, double keep);

/* Of a prompt of L tokens every KV head keeps the last floor(recent L), and of those before them
 * floor(heavy L): chosen by no attention, or by what all tokens of the prompt attend to. All query
 * heads of a layer are brought together (`shared`), or those of each KV head, to their largest
 * (`max`) or to their mean. */
fv_status fv_plan_select_budget(fv_plan *plan, double heavy, double recent);
fv_status fv_plan_select_hitters(fv_plan *plan, double heavy, double recent, bool shared, bool max);

/* ---- what their files call --------------------------------------------------------------- */

/* "prune=vtw does nothing here: <why>", for the report. */
void fv_plan_note(fv_plan *plan, fv_stage stage, const char *why);

/* Whether the prompt has no image; notes it as the reason why the stage does nothing. */
bool fv_plan_text_only(fv_plan *plan, fv_stage stage);

/* The stage's layers of 32 are not used on this request. */
void fv_plan_forget_mapped(fv_plan *plan, fv_stage stage);

/* How many of n a share is, rounded down; and of every image's tokens, together. */
int32_t fv_plan_share(double share, int32_t n);
int32_t fv_plan_share_of_images(const fv_plan_shape *shape, double share);

/* From `layer` on, `keep` visual tokens are left. Layers ascend from call to call. When that is all
 * there are, the stage is noted to keep every visual token, unless it has dropped some before. */
void fv_plan_drop(fv_plan *plan, int32_t layer, int32_t keep);

/* The same, but the other tokens run on and are held, masked. */
void fv_plan_mask_after(fv_plan *plan, int32_t layer, int32_t keep);

/* Text in codes, as the parameters of a pack method with this name say: compress_text, bits_text and
 * recompress. */
#define FV_TEXT_RULE_OF(p)                                                                         \
    fv_text_rule_of((p)->compress_text_no, (p)->compress_text_all, (p)->bits_text_4,               \
                    (p)->recompress)
fv_text_rule fv_text_rule_of(bool no, bool all, bool bits_4, int32_t recompress);

/* The select stage leaves `rows` to each KV head: pure, at most what prune leaves to the layer.
 * When that is everything everywhere, the stage is left out and noted. */
void fv_plan_select(fv_plan *plan, fv_plan_count_fn rows);

/* Attention-score accumulators of an evict method: its rule (fv_decode_<stage>_<method>), which
 * begins with the attention of the prompt's last `tokens`; 0: with values of its own (FV_VALUE). */
fv_status fv_plan_accumulate(fv_plan *plan, int32_t tokens);

#endif
