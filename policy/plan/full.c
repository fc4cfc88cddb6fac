/* expand=full: the default way to read packed rows, stated explicitly. */
#include "policy/plan/contribute.h"

fv_status fv_plan_expand_full(fv_plan *plan, const fv_expand_full_params *p) {
    (void)p;
    if (!plan->pack.any) fv_plan_note(plan, FV_STAGE_EXPAND, "no layer is packed");
    return FV_OK;
}
