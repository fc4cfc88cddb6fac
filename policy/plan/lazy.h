#ifndef FOVEA_POLICY_PLAN_LAZY_H
#define FOVEA_POLICY_PLAN_LAZY_H

/* What lazy=vla and lazy=gla have in common: the block map. */
#include "policy/plan/contribute.h"

/* Sets plan->source layer from the method's `map` and `blocks`; `text`: text tokens borrow too. A block is
 * cut where image tokens leave: its rows must be its source layer's. Where data say whether they do, it is
 * cut when they do (fv_plan.splits). FV_EINVAL for blocks that the checkpoint does not have, and
 * for map=calibrated without a calibration. */
fv_status fv_plan_lazy(fv_plan *plan, bool text);

#endif
