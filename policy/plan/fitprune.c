/* prune=fitprune: a schedule c_0, c_1, ... of n numbers, rows of 576 that leave behind each of n
 * layers. With C(i) = (c_0 + ... + c_(i-1)) / 576, and layer l of N standing at i = round((l + 1) n
 * / N), V - floor(C(i) V + 1e-9)       of V visual rows are left behind layer l which on N = n
 * layers and 576 rows is the schedule itself. Behind the last layer nobody is left to see it. */
#include <stdlib.h>
#include <string.h>

#include "policy/plan/contribute.h"

enum { OF = 576, MOST = 128 };

/* Fitted by the authors for LLaVA-1.5-7B (FitPrune, its repository). */
static const char sixty[] =
    "14/33/89/36/36/20/55/21/18/4/7/5/2/5/7/4/26/5/11/24/4/18/2/1/0/0/1/0/1/"
    "0/0/0",
                  ninety[] =
                      "262/153/80/19/13/1/2/0/0/0/0/0/0/0/0/1/1/2/1/2/0/1/0/0/0/0/0/1/0/0/0/0";

/* Sums c_0 + ... + c_(i-1) into sum[0 .. *n]. */
static fv_status read_schedule(const char *text, int32_t *sum, int32_t *n) {
    const char *at = text;
    char *end;
    *n = 0;
    for (sum[0] = 0;; at = end + 1) {
        long c = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : -1;
        if (c < 0 || c > OF || *n == MOST || (*end && *end != '/'))
            return FV_FAIL(FV_EINVAL,
                           "policy: prune=fitprune,schedule=%s: write numbers 0..%d, layer "
                           "by layer, as 0/100/50",
                           text, OF);
        sum[*n + 1] = sum[*n] + (int32_t)c;
        *n += 1;
        if (sum[*n] > OF)
            return FV_FAIL(FV_EINVAL, "policy: prune=fitprune,schedule=%s: more than %d rows leave",
                           text, OF);
        if (!*end) return FV_OK;
    }
}

static fv_status schedule_of(const fv_choice *c, int32_t *sum, int32_t *n) {
    const char *given = fv_choice_text(c, "schedule");
    bool written = strcmp(given, "-") != 0;
    if (fv_choice_is(c, "target", "given") != written)
        return FV_FAIL(FV_EINVAL,
                       "policy: prune=fitprune: target=given and schedule=... go together");
    if (written) return read_schedule(given, sum, n);
    return read_schedule(fv_choice_is(c, "target", "60") ? sixty : ninety, sum, n);
}

fv_status fv_plan_prune_fitprune(fv_plan *plan) {
    int32_t sum[MOST + 1], n, N = plan->shape.n_layer, V = plan->shape.n_visual;
    FV_TRY(schedule_of(&plan->policy.stage[FV_STAGE_PRUNE], sum, &n));
    if (fv_plan_text_only(plan, FV_STAGE_PRUNE)) return FV_OK;
    for (int32_t l = 0; l < N - 1; l++) {
        int32_t i = (2 * (l + 1) * n + N) / (2 * N), n_edit = plan->n_edit;
        fv_plan_drop(plan, l + 1, V - fv_plan_share((double)sum[i] / OF, V));
        if (plan->n_edit > n_edit) plan->tap[l] |= FV_TAP_PEAKS;
    }
    if (plan->n_edit == 0) fv_plan_note(plan, FV_STAGE_PRUNE, "every visual row is kept");
    return FV_OK;
}
