/* The sets of label values; some are read from other tables. */
#include "common/version.h"
#include "handoff/refusal.h"
#include "policy/policy.h"
#include "telemetry/metrics.h"

enum { VALUES_MAX = 24 };

static const struct set {
    const char *name;
    const char *value[VALUES_MAX]; /* up to a NULL */
} sets[FV_N_LABEL] = {
#define FV_LABEL(id, name, ...) {name, {__VA_ARGS__}},
#include "telemetry/metrics.def"
};

const char *fv_label_name(fv_label l) { return sets[l].name; }

int32_t fv_label_count(fv_label l) {
    int32_t n = 0;
    switch (l) {
    case FV_LABEL_NONE:
    case FV_LABEL_VERSION: return 1;
    case FV_LABEL_STAGE: return FV_N_STAGE;
    case FV_LABEL_REFUSAL: return FV_N_REFUSAL;
    case FV_LABEL_PRESET: (void)fv_policy_presets(&n); return n + 1;
    default: break;
    }
    while (sets[l].value[n]) n++;
    return n;
}

const char *fv_label_value(fv_label l, int32_t i) {
    int32_t n;
    switch (l) {
    case FV_LABEL_NONE: return "";
    case FV_LABEL_VERSION: return fv_version();
    case FV_LABEL_STAGE: return fv_stage_name((fv_stage)i);
    case FV_LABEL_REFUSAL: /* a pending hand-off is not refused, and a preempted one has become an answer */
        return i == FV_REFUSED_NONE || i == FV_REFUSED_PENDING || i == FV_REFUSED_PREEMPTED
                   ? NULL
                   : fv_refusal_name((fv_refusal)i);
    case FV_LABEL_PRESET: {
        const fv_preset_info *presets = fv_policy_presets(&n);
        return i < n ? presets[i].name : "custom";
    }
    default: return sets[l].value[i];
    }
}
