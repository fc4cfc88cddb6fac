/* condense=prumerge_plus: prumerge's tokens and tokens at even distances; with many outliers these
 * may be all tokens. */
#include "policy/plan/condense.h"
#include "policy/plan/contribute.h"

static fv_condense_count count(const void *params, int32_t n) {
    const fv_condense_prumerge_plus_params *p = params;
    return (fv_condense_count){n, p->keep * n >= n && p->neighbours == 0};
}

fv_status fv_plan_condense_prumerge_plus(fv_plan *plan, const fv_condense_prumerge_plus_params *p) {
    return fv_plan_condense(plan, &(fv_condense_rule){.count = count}, p);
}
