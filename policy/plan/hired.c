/* condense=hired: a share of each image's rows. */
#include "policy/plan/condense.h"
#include "policy/plan/contribute.h"

int32_t fv_hired_rows(const fv_condense_hired_params *p, int32_t n) {
    return fv_plan_share(p->keep, n);
}

fv_status fv_plan_condense_hired(fv_plan *plan, const fv_condense_hired_params *p) {
    int32_t n = fv_plan_image_rows(plan), keep = fv_hired_rows(p, n);
    if (n == 0)
        fv_plan_note(plan, FV_STAGE_CONDENSE, "the prompt has no image");
    else if (keep == n)
        fv_plan_note(plan, FV_STAGE_CONDENSE, "every visual token is kept");
    else
        return fv_plan_condense(plan, keep, true);
    return FV_OK;
}
