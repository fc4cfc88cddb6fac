/* condense=hired: a share of each image's rows. */
#include "policy/plan/condense.h"
#include "policy/plan/contribute.h"

int32_t fv_hired_rows(const fv_condense_hired_params *p, int32_t n) {
    return fv_plan_share(p->keep, n);
}

static fv_condense_count count(const void *params, int32_t n) {
    int32_t keep = fv_hired_rows(params, n);
    return (fv_condense_count){keep, keep == n};
}

fv_status fv_plan_condense_hired(fv_plan *plan, const fv_condense_hired_params *p) {
    return fv_plan_condense(plan, count, p, true);
}
