#ifndef FOVEA_POLICY_POLICY_H
#define FOVEA_POLICY_POLICY_H

/* A compression policy: for each stage at most one method, with its parameters.
 *
 * The text form, used by the command line, tests and logs:
 *     prune=random,layer=4,keep=0.5;select=streaming,sink=4
 *     preset=paper-vtw;prune=vtw,layer=20          (a preset first, then what differs)
 * What may be written is methods.def. An empty text is `exact`. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FV_STAGE(id, name, where) FV_STAGE_##id,
typedef enum fv_stage {
#include "policy/methods.def"
    FV_N_STAGE
} fv_stage;

enum { FV_MAX_PARAMS = 12, FV_POLICY_TEXT_MAX = 1024 };

typedef enum fv_param_type { FV_PARAM_INT, FV_PARAM_FLOAT, FV_PARAM_LAYER } fv_param_type;

typedef struct fv_param_info {
    const char *name;
    fv_param_type type;
    double fallback, min, max;
    const char *unit, *meaning;
} fv_param_info;

typedef struct fv_method_info {
    fv_stage stage;
    const char *name, *source, *summary;
    int32_t n_param;
    fv_param_info param[FV_MAX_PARAMS];
} fv_method_info;

typedef struct fv_preset_info {
    const char *name, *text, *meaning;
} fv_preset_info;

typedef struct fv_choice {
    const fv_method_info *method; /* NULL: nothing happens in this stage */
    double value[FV_MAX_PARAMS];  /* in the order of method->param */
    bool given[FV_MAX_PARAMS];    /* written in the text, not a default */
} fv_choice;

typedef struct fv_policy {
    fv_choice stage[FV_N_STAGE];
} fv_policy; /* {0} is `exact` */

const char *fv_stage_name(fv_stage s);
const char *fv_stage_where(fv_stage s);

/* All methods in table order, all presets; *n says how many. */
const fv_method_info *fv_policy_methods(int32_t *n);
const fv_preset_info *fv_policy_presets(int32_t *n);

/* FV_EINVAL with a sentence for an unknown stage, method, parameter or preset (it lists what
 * there is), a value out of range, a stage given twice. */
fv_status fv_policy_parse(const char *text, fv_policy *out);

/* The text form, stages in order, every parameter written; "" for exact. What it prints parses
 * to the same policy. */
void fv_policy_print(const fv_policy *p, char out[FV_POLICY_TEXT_MAX]);

bool fv_policy_is_exact(const fv_policy *p);

/* The value of a parameter that the chosen method has (an unknown name is our own bug). */
double fv_choice_value(const fv_choice *c, const char *param);

/* A LAYER parameter for a network of n_layer layers: as given, or the default mapped from 32
 * layers, round(default * n_layer / 32), but no less than the parameter's minimum. */
int32_t fv_choice_layer(const fv_choice *c, const char *param, int32_t n_layer);

#ifdef __cplusplus
}
#endif
#endif
