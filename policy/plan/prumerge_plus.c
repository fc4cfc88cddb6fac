/* condense=prumerge_plus: as prumerge, and tokens at even distances: with many outliers they
 * may be all. */
#include "policy/plan/condense.h"
#include "policy/plan/contribute.h"

fv_status fv_plan_condense_prumerge_plus(fv_plan *plan, const fv_condense_prumerge_plus_params *p) {
    int32_t n = fv_plan_image_rows(plan);
    if (n == 0)
        fv_plan_note(plan, FV_STAGE_CONDENSE, "the prompt has no image");
    else if (p->keep * n >= n && p->neighbours == 0)
        fv_plan_note(plan, FV_STAGE_CONDENSE, "every visual token is kept unchanged");
    else
        return fv_plan_condense(plan, n, false);
    return FV_OK;
}
