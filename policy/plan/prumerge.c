/* condense=prumerge: the number of outliers is known only when the image is encoded. */
#include "policy/plan/condense.h"
#include "policy/plan/contribute.h"

int32_t fv_prumerge_share(double share, int32_t n) {
    int32_t keep = fv_plan_share(share, n);
    return keep < 1 && n > 0 ? 1 : keep;
}

/* Upper bound of tokens above the third quartile: those after rank 3 (n - 1) / 4 of n sorted
 * ones. */
static int32_t most_outliers(int32_t n) {
    int32_t above = n - 1 - 3 * (n - 1) / 4;
    return above < 1 ? 1 : above;
}

static fv_condense_count count(const void *params, int32_t n) {
    const fv_condense_prumerge_params *p = params;
    int32_t keep = p->keep > 0 ? fv_prumerge_share(p->keep, n) : most_outliers(n);
    return (fv_condense_count){keep < n ? keep + 1 : n, keep == n && p->neighbours == 0};
}

fv_status fv_plan_condense_prumerge(fv_plan *plan, const fv_condense_prumerge_params *p) {
    return fv_plan_condense(plan, &(fv_condense_rule){.count = count, .exact = p->keep > 0}, p);
}
