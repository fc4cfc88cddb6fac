/* condense=hired: keeps a share of each image's tokens. */
#include "policy/plan/condense.h"
#include "policy/plan/contribute.h"

int32_t fv_hired_tokens(const fv_condense_hired_params *p, int32_t n) {
    return fv_plan_share(p->keep, n);
}

int32_t fv_hired_whole(const fv_condense_hired_params *p, int32_t budget) {
    return fv_plan_share(p->whole, budget);
}

int32_t fv_hired_first(const fv_condense_hired_params *p, int32_t n) {
    return fv_plan_share(1 - p->whole, n);
}

static fv_condense_count count(const void *params, int32_t n) {
    int32_t keep = fv_hired_tokens(params, n);
    return (fv_condense_count){keep, keep == n};
}

fv_status fv_plan_condense_hired(fv_plan *plan, const fv_condense_hired_params *p) {
    fv_condense_rule rule = {.count = count, .exact = true, .tiles = true};
    return fv_plan_condense(plan, &rule, p);
}
