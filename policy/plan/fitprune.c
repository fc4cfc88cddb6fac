/* prune=fitprune: a schedule c_0, c_1, ... of n numbers: of 576 tokens, how many are dropped after
 * each of n layers. Let C(i) = (c_0 + ... + c_(i-1)) / 576 and i = round((l + 1) n / N) for layer l
 * of N. After it V - floor(C(i) V + 1e-9) of V visual tokens are left; for N = n layers and 576
 * tokens that is the schedule itself. The number after the last layer does not matter. A schedule
 * fitted for the checkpoint (eval/scenes/fit.h) replaces the authors'. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/plan/contribute.h"

enum { OF = FV_SCHEDULE_OF, MOST = FV_SCHEDULE_LAYERS };

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
            return FV_FAIL(FV_EINVAL,
                           "policy: prune=fitprune,schedule=%s: drops more than %d tokens", text,
                           OF);
        if (!*end) return FV_OK;
    }
}

/* A target, and the schedule that the authors fitted for it on LLaVA-1.5-7B (FitPrune's
 * repository). */
typedef struct target {
    bool chosen;
    int32_t percent;
    const char *leave;
} target;

static target target_of(const fv_prune_fitprune_params *p) {
    const target all[] = {
        {p->target_40, 40,
         "0/1/21/13/14/11/41/53/29/15/14/5/1/4/5/1/26/1/13/28/6/27/2/1/0/0/1/1/2/0/0/0"},
        {p->target_50, 50,
         "3/7/49/24/29/17/59/41/26/8/10/6/2/5/7/2/30/3/13/27/5/23/2/1/0/0/1/1/2/0/0/0"},
        {p->target_60, 60,
         "14/33/89/36/36/20/55/21/18/4/7/5/2/5/7/4/26/5/11/24/4/18/2/1/0/0/1/0/1/0/0/0"},
        {p->target_70, 70,
         "48/79/118/41/33/17/36/9/9/2/3/2/1/3/4/8/18/7/8/20/4/13/2/1/0/0/1/0/1/0/0/0"},
        {p->target_80, 80,
         "128/127/118/35/26/8/13/3/2/1/0/0/0/2/1/8/7/8/5/11/2/6/1/1/0/0/0/1/0/0/0/0"},
        {p->target_90, 90,
         "262/153/80/19/13/1/2/0/0/0/0/0/0/0/0/1/1/2/1/2/0/1/0/0/0/0/0/1/0/0/0/0"}};
    int32_t i = 0;
    while (!all[i].chosen) i++;
    return all[i];
}

/* The schedule fitted for the checkpoint and this target, or NULL. */
static const fv_schedule *fitted_of(const fv_plan *plan, target t) {
    for (int32_t i = 0; i < plan->shape.n_fitted; i++)
        if (plan->shape.fitted[i].target == t.percent) return &plan->shape.fitted[i];
    return NULL;
}

static void take_fitted(const fv_schedule *s, int32_t n_layer, int32_t *sum, int32_t *n) {
    sum[0] = 0;
    for (int32_t l = 0; l < n_layer; l++) sum[l + 1] = sum[l] + s->leave[l];
    *n = n_layer;
}

/* chose[FV_PLAN_NOTE_MAX]: says whose schedule is used, if the request leaves that open. */
static fv_status schedule_of(const fv_plan *plan, const fv_prune_fitprune_params *p, int32_t *sum,
                             int32_t *n, char *chose) {
    const char *text = p->schedule;
    bool open = strcmp(text, "-") == 0, paper = strcmp(text, "published") == 0;
    if (p->target_given == (open || paper))
        return FV_FAIL(FV_EINVAL,
                       "policy: prune=fitprune: target=given and schedule=... go together");
    if (!open && !paper) return read_schedule(text, sum, n);
    target t = target_of(p);
    const fv_schedule *fitted = open ? fitted_of(plan, t) : NULL;
    if (open)
        snprintf(chose, FV_PLAN_NOTE_MAX, "schedule of %s",
                 fitted                     ? "the checkpoint's calibration"
                 : plan->shape.uncalibrated ? "LLaVA-1.5, as the checkpoint's calibration is of "
                                              "other weights or damaged"
                                            : "LLaVA-1.5, as the checkpoint has none");
    if (!fitted) return read_schedule(t.leave, sum, n);
    take_fitted(fitted, plan->shape.n_layer, sum, n);
    return FV_OK;
}

fv_status fv_plan_prune_fitprune(fv_plan *plan, const fv_prune_fitprune_params *p) {
    int32_t sum[MOST + 1], n, N = plan->shape.n_layer, V = plan->shape.n_visual;
    char chose[FV_PLAN_NOTE_MAX] = "";
    FV_TRY(schedule_of(plan, p, sum, &n, chose));
    if (fv_plan_text_only(plan, FV_STAGE_PRUNE)) return FV_OK;
    for (int32_t l = 0; l < N - 1; l++) {
        int32_t i = (2 * (l + 1) * n + N) / (2 * N), n_edit = plan->prune.n_edit;
        fv_plan_drop(plan, l + 1, V - fv_plan_share((double)sum[i] / OF, V));
        if (plan->prune.n_edit > n_edit) plan->capture[l] |= FV_CAPTURE_HEAD_MAX;
    }
    if (plan->prune.n_edit == 0)
        fv_plan_note(plan, FV_STAGE_PRUNE, "every visual token is kept");
    else
        memcpy(plan->prune.chose, chose, sizeof chose);
    return FV_OK;
}
