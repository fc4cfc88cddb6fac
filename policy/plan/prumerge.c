/* condense=prumerge: the number of outliers is known when the image was encoded. */
#include "policy/plan/condense.h"
#include "policy/plan/contribute.h"

int32_t fv_prumerge_share(double share, int32_t n) {
    int32_t keep = fv_plan_share(share, n);
    return keep < 1 && n > 0 ? 1 : keep;
}

/* Above the third quartile are at most the tokens after rank 3 (n - 1) / 4 of n sorted ones. */
static int32_t most_outliers(int32_t n) {
    int32_t above = n - 1 - 3 * (n - 1) / 4;
    return above < 1 ? 1 : above;
}

fv_status fv_plan_condense_prumerge(fv_plan *plan, const fv_condense_prumerge_params *p) {
    int32_t n = fv_plan_image_rows(plan);
    int32_t keep = p->keep > 0 ? fv_prumerge_share(p->keep, n) : most_outliers(n);
    if (n == 0)
        fv_plan_note(plan, FV_STAGE_CONDENSE, "the prompt has no image");
    else if (keep == n && p->neighbours == 0)
        fv_plan_note(plan, FV_STAGE_CONDENSE, "every visual token is kept unchanged");
    else
        return fv_plan_condense(plan, keep < n ? keep + 1 : n, p->keep > 0);
    return FV_OK;
}
